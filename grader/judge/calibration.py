"""Calibrates a card: starts the worker that measures, and makes rows of targets for the card of its report."""

import contextlib
import dataclasses
import importlib.metadata
import statistics
import time
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from grader.gpu import derived, roofline, target_file, targets
from grader.gpu.ceilings import Measurement
from grader.gpu.hardware import Card
from grader.gpu.state import State
from grader.gpu.target_file import TargetRow
from grader.gpu.targets import Asked, Ceilings
from grader.judge import sweep
from grader.judge.speed import in_words, unquiet
from grader.judge.worker_process import Ending, Line, Worker
from grader.messages import _, progress
from grader.verdict import Finding, JudgeFailed, Unavailable
from grader.verdict.calibration import Calibration, PeerRate, SweepRates, WorkRates

WORKER = "grader.judge.calibration_worker"
CLEARLY = 1.005  # times the rate of an earlier peer: what makes a later one the better; less is noise


@dataclass
class Reported:
    """What the worker has said so far."""

    measured: Measurement | None = None
    peers: dict[targets.Key, dict[str, Any]] = field(default_factory=dict)
    sweeps: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    state: State | None = None
    lacking: str = ""
    done: bool = False

    def hear(self, line: Line) -> None:
        match line:
            case {"phase": str(phase), **more}:
                progress.say(_said(phase, str(more.get("what", ""))))
            case {"ceilings": dict(found)}:
                self.measured = Measurement(**found)
            case {"peers": dict(found), "lab": str(lab), "kernel": str(kernel), "shape": str(shape)}:
                self.peers[lab, kernel, shape] = found
            case {"sweep": dict(found), "lab": str(lab), "kernel": str(kernel)}:
                self.sweeps[lab, kernel] = found
            case {"state": dict(found)}:
                self.state = State(**found)
            case {"lacking": str(why)}:
                self.lacking = why
            case {"done": True}:
                self.done = True


def calibrate(card: Card, driver: str) -> Calibration:
    """Measures ``card`` in a process of its own; ``driver`` is the driver's version.

    Raises Unavailable if the card can't be measured as it is, JudgeFailed for a fault of ours.
    """
    begin = time.monotonic()
    reported = Reported()
    with Worker(WORKER, _environment(card)) as worker:
        progress.say(_("compiling the judge's own sweep"))
        swept = [dataclasses.asdict(entry) for entry in sweep.entries(card)]
        ending = worker.run({"uuid": card.uuid, "sweep": swept}, reported.hear)
    if not reported.done:
        raise _ended(reported, ending)
    return conclude(card, driver, reported, time.monotonic() - begin)


def rows(calibration: Calibration) -> list[TargetRow]:
    """The rows of targets that follow."""
    asked = {one.key: one for one in targets.asked()}
    return [
        derived.row(
            asked[work.lab, work.kernel, work.shape],
            calibration.card,
            peer.peer,
            peer.rate,
            calibration.origin,
            _best(work.sweep),
        )
        for work in calibration.works
        for peer in work.peers
        if work.tiers and peer.peer == work.best and peer.rate is not None
    ]


def ceilings(calibration: Calibration) -> Ceilings:
    """The ceilings, as files of targets hold them: to four digits."""

    def short(value: float) -> float:
        return float(f"{value:.4g}")

    return Ceilings(
        calibration.card,
        calibration.origin,
        {name: short(value) for name, value in calibration.bandwidth.items()},
        {name: short(value) for name, value in calibration.matmul.items()},
        short(calibration.launch_us),
        short(calibration.kernel_us),
        short(calibration.event_us),
    )


def conclude(card: Card, driver: str, reported: Reported, seconds: float) -> Calibration:
    """A whole report, judged: which peer is the best, what follows, and whether the card was quiet."""
    measured, seen = reported.measured, reported.state
    if measured is None or seen is None:
        raise JudgeFailed("the calibration ended without its figures")
    # What shares the card does so most of the time. A median outlasts what disturbs a single work.
    shares = [found["disturbed"] for found in (*reported.peers.values(), *reported.sweeps.values())]
    noise = statistics.median_low(shares) if shares else 0.0
    disturbed = unquiet({"disturbed": noise}, seen)
    origin = _origin(driver, disturbed)
    works = tuple(
        _work(
            one,
            reported.peers.get(one.key, {"rows": [], "disturbed": 0.0}),
            _swept(reported.sweeps.get(one.key[:2])),
            card,
            origin,
        )
        for one in targets.asked()
    )
    datasheet = roofline.of_driver(card.name)
    # What a library reached with real work was reached: no ceiling lies below it.
    for work in works:
        ceilings_of = measured.bandwidth if work.ceiling in measured.bandwidth else measured.matmul
        rates = [peer.rate for peer in work.peers if peer.rate is not None]
        if work.ceiling in ceilings_of:
            ceilings_of[work.ceiling] = max([ceilings_of[work.ceiling], *rates])
    return Calibration(
        card=card.name,
        origin=origin,
        bandwidth=measured.bandwidth,
        matmul=measured.matmul,
        lacking=measured.lacking,
        array=measured.array,
        launch_us=measured.launch_us,
        kernel_us=measured.kernel_us,
        event_us=measured.event_us,
        works=works,
        state=in_words(seen),
        disturbed=disturbed,
        seconds=seconds,
        datasheet={} if datasheet is None else _peaks(datasheet, measured),
    )


def _swept(found: dict[str, Any] | None) -> SweepRates | None:
    """The best of what was measured; None if nothing was."""
    if found is None:
        return None
    measured = [row for row in found["rows"] if row["rate"] is not None]
    if not measured:
        return None
    best = max(measured, key=lambda row: row["rate"])
    left_out = tuple(f"{row['schedule']}: {row['why_not']}" for row in found["rows"] if row["rate"] is None)
    return SweepRates(len(measured), best["rate"], best["schedule"], left_out, found["disturbed"])


def _best(swept: SweepRates | None) -> target_file.Sweep | None:
    return None if swept is None else target_file.Sweep(rate=swept.rate, schedule=swept.schedule)


def _work(one: Asked, found: dict[str, Any], swept: SweepRates | None, card: Card, origin: str) -> WorkRates:
    peers = tuple(PeerRate(**row) for row in found["rows"])
    best: PeerRate | None = None
    for peer in peers:
        if peer.rate is not None and (best is None or peer.rate > CLEARLY * best.rate):
            best = peer
    work = WorkRates(one.lab, one.kernel, one.shape, one.unit, one.ceiling, peers, disturbed=found["disturbed"])
    if best is None or best.rate is None:
        return work
    work = replace(work, best=best.peer, sweep=swept)
    if one.of_sweep and swept is None:
        return work
    row = derived.row(one, card.name, best.peer, best.rate, origin, _best(swept))
    return replace(work, tiers=tuple((tier.at, tier.share) for tier in row.tiers))


def _peaks(datasheet: roofline.Peaks, measured: Measurement) -> dict[str, float]:
    peaks = dict.fromkeys(measured.bandwidth, datasheet.memory)
    for dtype in measured.matmul:
        peak = datasheet.tensor.get(roofline.TENSOR_CORES[dtype])
        if peak is not None:
            peaks[dtype] = peak
    return peaks


def _origin(driver: str, disturbed: tuple[str, ...]) -> str:
    parts = [f"measured {date.today().isoformat()}", f"driver {driver}"]
    for package, name in (("torch", "torch"), ("tilelang", "TileLang")):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # it may lie on a path, uninstalled
            parts.append(f"{name} {importlib.metadata.version(package)}")
    return "; ".join([", ".join(parts), *disturbed])


def _environment(card: Card) -> dict[str, str]:
    # One process compiles: it would start others, which outlive a Ctrl-C by seconds.
    return card.alone | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}


def _said(phase: str, what: str) -> str:
    words = {
        "waiting": _("waiting for the card: another measurement is on it"),
        "starting": _("starting"),
        "ceiling": _("measuring what the card can do: {what}"),
        "peers": _("timing libraries: {what}"),
        "sweep": _("timing the judge's own sweep: {what}"),
    }
    return words[phase].format(what=what)


def _ended(reported: Reported, ending: Ending) -> Exception:
    """Why the worker did not get to its end."""
    advice = _("End what else uses the card ('nvidia-smi' lists it), and run it again.")
    if reported.lacking:
        return Unavailable(Finding(reported.lacking, advice))
    if ending.late is not None:
        text = _("The card did not get on with '{phase}' within {seconds:.0f} s.")
        phase = _said(ending.late["phase"], str(ending.late.get("what", "")))
        return Unavailable(Finding(text.format(phase=phase, seconds=ending.late["limit"]), advice))
    if "out of memory" in ending.console:
        return Unavailable(Finding(_("The card ran out of memory."), advice))
    return JudgeFailed(f"the calibration's worker ended with status {ending.status}:\n{ending.console}")
