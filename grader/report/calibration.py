"""A card's calibration in the terminal: ceilings, peers, thresholds, and whether the card was quiet."""

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from grader.messages import _
from grader.report.text import printable
from grader.verdict.calibration import Calibration, PeerRate, WorkRates

BAD = "bold red"


def show(calibration: Calibration, console: Console) -> None:
    console.print(render(calibration))


def render(calibration: Calibration) -> RenderableType:
    parts: list[RenderableType] = [_ceilings(calibration), _peers(calibration), *map(_asked, calibration.works)]
    text = _(
        "A launch costs the CPU {launch:.1f} µs; the smallest kernel takes {kernel:.1f} µs; events {event:.1f} µs."
    )
    parts.append(
        Text(text.format(launch=calibration.launch_us, kernel=calibration.kernel_us, event=calibration.event_us))
    )
    text = _("{origin}; {seconds:.0f} s. The card meanwhile: {state}.")
    parts.append(
        Text(
            text.format(origin=calibration.origin, seconds=calibration.seconds, state=calibration.state),
            style="dim",
        )
    )
    parts += [Text(line, style=BAD) for line in warnings(calibration)]
    return Group(*parts)


def warnings(calibration: Calibration) -> list[str]:
    """What keeps the figures from being trusted; nothing for a quiet card."""
    if not calibration.disturbed:
        return []
    text = _("These figures are not to be trusted: {why}. Calibrate again when nothing else is on the card.")
    return [text.format(why="; ".join(calibration.disturbed))]


def _ceilings(calibration: Calibration) -> Table:
    title = _("{card}: what it reaches with library calls").format(card=calibration.card)
    table = Table(title=Text(title), title_justify="left")
    table.add_column(_("work"))
    table.add_column(_("measured"), justify="right")
    table.add_column(_("of the datasheet"), justify="right")
    size = f"{calibration.array / 2**20:.0f} MiB"
    labels = {
        "read": _("only reads"),
        "fill": _("only writes"),
        "copy": _("copy (one read a write)"),
        "add": _("add (two reads a write)"),
    }
    for mix, figure in calibration.bandwidth.items():
        label = _("{label}, arrays of {size}").format(label=labels.get(mix, mix), size=size)
        table.add_row(label, f"{figure:.0f} GB/s", _of_peak(figure, calibration.datasheet.get(mix)))
    for dtype, figure in calibration.matmul.items():
        label = _("matrix product, {dtype}").format(dtype="float32 (tf32)" if dtype == "float32" else dtype)
        table.add_row(label, f"{figure:.4g} TFLOP/s", _of_peak(figure, calibration.datasheet.get(dtype)))
    for dtype, why in calibration.lacking.items():
        table.add_row(_("matrix product, {dtype}").format(dtype=dtype), "–", Text(printable(why)))
    return table


def _peers(calibration: Calibration) -> Table:
    table = Table(title=Text(_("Peers")), title_justify="left")
    for column in (_("work"), _("peer")):
        table.add_column(column, overflow="fold")
    for column in (_("rate (95 % interval)"), _("time"), _("of the ceiling")):
        table.add_column(column, justify="right")
    table.add_column("", overflow="fold")
    for work in calibration.works:
        ceiling = (calibration.bandwidth | calibration.matmul).get(work.ceiling)
        for peer in work.peers:
            name = Text(f"{work.lab}: {work.kernel}, {work.shape}")
            table.add_row(name, Text(peer.peer), *_figures(peer, work, ceiling))
    return table


def _figures(peer: PeerRate, work: WorkRates, ceiling: float | None) -> tuple[str, str, str, Text]:
    if peer.rate is None or peer.low is None or peer.high is None or peer.milliseconds is None:
        return "–", "–", "–", Text(printable(peer.why_not))
    rate = f"{peer.rate:.4g} {work.unit} ({peer.low:.4g}–{peer.high:.4g})"
    best = Text(_("the best"), style="green") if peer.peer == work.best else Text("")
    return rate, f"{peer.milliseconds:.3f} ms", _share(peer.rate, ceiling), best


def _asked(work: WorkRates) -> Text:
    name = f"{work.lab}: {work.kernel}, {work.shape}"
    if work.best is not None and not work.tiers:
        return Text(_("{work}: no schedule was measured, so there is no row.").format(work=name), style=BAD)
    if not work.tiers:
        return Text(_("{work}: no peer was measured, so there is no row.").format(work=name), style=BAD)
    steps = [
        _("{share:.0%} of the points from {at:g} {unit} on").format(share=share, at=at, unit=work.unit)
        for at, share in work.tiers
    ]
    if work.sweep is not None:
        text = _("the best of {count} schedules does {rate:.4g} {unit} ({schedule})")
        schedule = ", ".join(f"{key} = {value}" for key, value in work.sweep.schedule.items())
        best = text.format(count=work.sweep.measured, rate=work.sweep.rate, unit=work.unit, schedule=schedule)
        steps.insert(0, best)
    return Text(f"{name}: {', '.join(steps)}.")


def _of_peak(figure: float, peak: float | None) -> str:
    return _("peak unknown") if peak is None else _share(figure, peak)


def _share(figure: float, whole: float | None) -> str:
    return "" if whole is None else f"{figure / whole:.1%}"
