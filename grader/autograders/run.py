"""Runs a lab's pytest file on a captured submission, in a process of its own, and reads the verdict.

The process starts in an empty folder with plugins, options and start-up files of the surroundings switched off:
nothing that lies beside a submission can reach it.
"""

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from grader import catalog, verdict
from grader.autograders.official import extended, read_rows
from grader.autograders.table import PointRow
from grader.capture.format import Capture
from grader.gpu import disposable, hardware, lock, targets, unfit
from grader.messages import _, progress
from grader.verdict import Finding, JudgeFailed, Unusable, Verdict

#: For one submission, waiting for the card included: what is slow in it has limits of its own.
SECONDS = 3600


def judge_notebook(
    notebook: Path, lab_id: str, *, device: str = "auto", official_run: bool = False, seed: str | None = None
) -> Verdict:
    """Captures the notebook in the sandbox and judges it.

    Raises Unusable if it can't be judged at all, Unavailable if that is not the notebook's fault.
    """
    from grader.capture.run import capture_notebook

    must_have(device)
    lab = catalog.find(lab_id)
    capture = capture_notebook(notebook, extended(lab) if official_run else lab)
    return judge_capture(capture, device=device, official_run=official_run, seed=seed)


def judge_capture(
    capture: Capture,
    *,
    device: str = "auto",
    official_run: bool = False,
    seed: str | None = None,
    part: str | None = None,
) -> Verdict:
    """Judges what was captured. Raises Unusable, and JudgeFailed for a fault of ours.

    ``device`` is "auto", "sim" or "gpu"; ``part`` picks some of the tests ("right", "fast"). Without a ``seed``,
    a local run uses one that is always the same, an official run the course's secret one.
    """
    lab = lab_of(capture)
    must_have(device)
    if official_run:
        _must_hold(extended(lab), capture)
    if official_run and seed is None:
        from grader.autograders.private.seeds import seed_for

        seed = seed_for(capture.sha256)
    with tempfile.TemporaryDirectory(prefix="tilelab-judge-", ignore_cleanup_errors=True) as folder:
        captured, table, result = (Path(folder, f"{name}.json") for name in ("capture", "points", "verdict"))
        captured.write_text(capture.to_json())
        options = ["--capture-file", str(captured), "--device", device]
        options += ["--points", str(table), "--verdict", str(result)]
        options += ["--official"] if official_run else []
        options += ["--part", part] if part is not None else []
        process = _pytest(lab.id, options, folder, seed)
        rows = read_rows(table) if table.exists() else ()
        if not rows and process.returncode == 5:  # pytest's word for: nothing was collected
            parts = ", ".join(sorted({row.part for row in point_table(lab.id)}))
            raise Unusable(
                _("{lab} has no part '{part}'. Its parts are: {parts}.").format(lab=lab.id, part=part, parts=parts)
            )
        if not result.exists():
            raise JudgeFailed(
                f"the autograder gave no verdict (status {process.returncode}):\n{process.stdout[-4000:]}"
            )
        judged = verdict.read(result)
    missing = {row.name for row in rows} - {check.name for check in judged.checks}
    if missing:
        raise JudgeFailed(f"these checks were not run: {', '.join(sorted(missing))}")
    return judged


def must_have(device: str) -> None:
    """Before anything is run, or touched. Raises Unavailable if ``device`` can't judge here."""
    if device == "sim":
        return
    gpu = hardware.look()
    card = hardware.judging_card(gpu)
    if device == "gpu":
        card = unfit.needed(
            _("There is no GPU here that could judge."), _("Or use the simulator: --device sim."), gpu
        )
    if card is not None:
        targets.of_card(card.name)  # a slip in the teacher's file is told here, once


def _must_hold(lab: catalog.Lab, capture: Capture) -> None:
    """The capture must have been made for the official run, or every check would fail for want of its shapes."""
    lab = catalog.at_schedules(lab, capture.plain_values)
    wanted = {(kernel.name, shape.name) for kernel in lab.kernels for shape in kernel.shapes}
    if wanted - {(trace.kernel, trace.shape) for trace in capture.traces}:
        raise Unusable(
            Finding(
                _("This capture does not hold the shapes of the official run."),
                _("Capture the notebook again: tilelab capture NOTEBOOK -o FILE --official"),
            )
        )


def lab_of(capture: Capture) -> catalog.Lab:
    """The lab that a capture is of. Raises Unusable if it is not one of these, in this version."""
    try:
        lab = catalog.find(capture.lab)
    except KeyError as error:
        raise Unusable(error.args[0]) from None
    if capture.lab_version != lab.version:
        raise Unusable(
            Finding(
                _("The capture is of version {got} of {lab}; this is version {want}.").format(
                    got=capture.lab_version, lab=lab.id, want=lab.version
                ),
                _("Capture the notebook again."),
            )
        )
    return lab


@cache
def point_table(lab_id: str) -> tuple[PointRow, ...]:
    """What the lab's tests are worth, in their order."""
    with tempfile.TemporaryDirectory(prefix="tilelab-points-") as folder:
        path = Path(folder, "points.json")
        process = _pytest(lab_id, ["--points", str(path), "--collect-only"], folder)
        if process.returncode != 0 or not path.exists():
            raise JudgeFailed(f"the points of {lab_id} can't be read:\n{process.stdout[-4000:]}")
        return read_rows(path)


def _pytest(
    lab_id: str, options: list[str], folder: str, seed: str | None = None
) -> subprocess.CompletedProcess[str]:
    here = Path(__file__).parent
    command = [sys.executable, "-P", "-m", "pytest", str(here / f"test_{lab_id}.py")]
    command += [
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        str(here / "pytest.ini"),
        "--rootdir",
        str(here),
        "--color=no",
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "TILELAB_SEED"))
    }
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if seed is not None:
        environment["TILELAB_SEED"] = seed
    # Whatever becomes of that process, what it and its own leave in temporary folders goes with this one.
    environment |= {"TMPDIR": folder, "TILELAB_LOCKS": str(lock.folder().absolute())} | _from_anywhere()
    with (
        progress.handed_up() as pipe,
        subprocess.Popen(
            [*command, *options],
            cwd=folder,
            env=environment | {progress.VARIABLE: str(pipe)},
            pass_fds=(pipe,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        try:
            printed, _nothing = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            disposable.kill_family(process.pid)
            raise JudgeFailed(f"the autograder did not end within {SECONDS} s") from None
        except BaseException:
            disposable.kill_family(process.pid)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, printed)


def _from_anywhere() -> dict[str, str]:
    """Settings that name files: they mean the same in another folder."""
    names = ("TILELAB_TARGETS", "TILELAB_CACHE", "TILELAB_SECRET", "CUDA_HOME", "CUDA_PATH", "PYTHONPATH")
    return {
        name: os.pathsep.join(os.path.abspath(path) if path else path for path in value.split(os.pathsep))
        for name in names
        if (value := os.environ.get(name))
    }
