"""Options and fixtures of the autograders, and the record of what each test found.

A test gets points only if it passed *and* recorded an assessment that says so: a test that did nothing, was not
run, or was skipped earns nothing.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grader import catalog, verdict
from grader.autograders import official
from grader.autograders.table import row_of
from grader.capture.format import Capture, read_capture
from grader.gpu import hardware, unfit
from grader.messages import _
from grader.report.text import describe_findings
from grader.verdict import Assessment, Check, Finding, Outcome, Unusable, Verdict

if TYPE_CHECKING:
    from grader.judge.submission import Submission

_CHECKS = pytest.StashKey[list[Check]]()
_ASSESSMENT = pytest.StashKey[Assessment]()
_FAULTS = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tilelab")
    group.addoption("--submission", type=Path, help="the notebook to judge")
    group.addoption("--capture-file", type=Path, help="a capture to judge (from 'tilelab capture')")
    group.addoption("--device", choices=("auto", "sim", "gpu"), default="auto", help="who judges")
    group.addoption("--seed", help="what the inputs are drawn from (default: TILELAB_SEED, else 'local')")
    group.addoption("--official", action="store_true", help="judge at the further shapes of the official run too")
    group.addoption("--part", help="run only the tests of this part, e.g. 'right' or 'fast'")
    group.addoption("--verdict", type=Path, help="write the verdict here, as JSON")
    group.addoption("--points", type=Path, help="write the table of points of what is run here, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "points(maximum, cell, title, free): what a test of a lab is worth")
    config.stash[_CHECKS] = []
    config.stash[_FAULTS] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("part")
    if part is not None:
        left_out = [item for item in items if row_of(item).part != part]
        items[:] = [item for item in items if row_of(item).part == part]
        config.hook.pytest_deselected(items=left_out)
    rows = [row_of(item) for item in items]
    path = config.getoption("points")
    if path is not None:
        official.write_rows(path, rows)


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> catalog.Lab:
    """The lab whose test file this is."""
    names = {Path(item.fspath).stem.removeprefix("test_") for item in request.session.items}
    if len(names) != 1:
        raise pytest.UsageError(_("Judge one lab at a time: name one test file."))
    lab = catalog.find(names.pop())
    return official.extended(lab) if request.config.getoption("official") else lab


@pytest.fixture(scope="session")
def capture(request: pytest.FixtureRequest, lab: catalog.Lab) -> Capture:
    """The submission's captured IR: read, or captured now in the sandbox."""
    notebook, file = request.config.getoption("submission"), request.config.getoption("capture_file")
    if (notebook is None) == (file is None):
        raise pytest.UsageError(_("Say what to judge: --submission NOTEBOOK or --capture-file FILE."))
    try:
        if file is not None:
            return read_capture(file)
        from grader.capture.run import capture_notebook

        return capture_notebook(notebook, lab)
    except Unusable as error:
        pytest.exit(describe_findings([error.finding]), returncode=2)


@pytest.fixture(scope="session")
def card(request: pytest.FixtureRequest) -> hardware.Card | None:
    """The card that judges; None stands for the simulator."""
    device = request.config.getoption("device")
    found = None if device == "sim" else hardware.judging_card()
    if device == "gpu" and found is None:
        pytest.exit(
            _("There is no GPU here that could judge. Leave out --device gpu to use the simulator."), returncode=2
        )
    return found


@pytest.fixture(scope="session")
def no_card(request: pytest.FixtureRequest, card: hardware.Card | None) -> Finding | None:
    """Why the simulator judges, if nobody asked for it."""
    return None if card is not None or request.config.getoption("device") == "sim" else unfit.why()


@pytest.fixture(scope="session")
def submission(
    request: pytest.FixtureRequest,
    capture: Capture,
    lab: catalog.Lab,
    card: hardware.Card | None,
    no_card: Finding | None,
) -> "Submission":
    # Only a run needs torch; collecting the points does not.
    import torch

    from grader.judge.submission import Submission

    torch.set_num_threads(1)  # simulated kernels run in forked processes, and a fork takes no threads along

    request.config.stash[_DEVICE] = verdict.SIMULATOR if card is None else card.name
    request.config.stash[_CAPTURE] = capture
    scheduled = catalog.at_schedules(lab, capture.plain_values)
    return Submission(capture, scheduled, card, _seed(request.config), no_card)


def _seed(config: pytest.Config) -> str:
    """An official run's seed comes in the environment: a command line can be read by everybody on the machine."""
    return config.getoption("seed") or os.environ.get("TILELAB_SEED") or "local"


_DEVICE = pytest.StashKey[str]()
_CAPTURE = pytest.StashKey[Capture]()


@pytest.fixture
def assess(request: pytest.FixtureRequest) -> Callable[[Assessment], None]:
    """Records what a test found; ends the test as failed, or as skipped if nothing could be decided."""

    def record(assessment: Assessment) -> None:
        if _ASSESSMENT in request.node.stash:
            raise RuntimeError("a test records one assessment")
        request.node.stash[_ASSESSMENT] = assessment
        text = describe_findings(assessment.findings)
        match assessment.outcome:
            case Outcome.FAILED:
                pytest.fail(text, pytrace=False)
            case Outcome.NOT_ASSESSED | Outcome.INCONCLUSIVE:
                pytest.skip(f"{assessment.outcome}: {text}")

    return record


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    assessment = item.stash.get(_ASSESSMENT, None)
    if assessment is None and call.when == "call" and report.passed:
        report.outcome = "failed"
        report.longrepr = "the test recorded no assessment"
    if assessment is None and report.failed:
        item.config.stash[_FAULTS].append(f"{item.name}: {report.longreprtext}")
    elif assessment is not None and call.when == "call":
        item.config.stash[_CHECKS].append(_check(item, report, assessment))
    return report


def _check(item: pytest.Item, report: pytest.TestReport, assessment: Assessment) -> Check:
    row = row_of(item)
    passed = assessment.outcome is Outcome.PASSED and report.passed
    return Check(
        name=row.name,
        title=_(row.title),
        cell=row.cell,
        outcome=assessment.outcome,
        points=row.max_points * assessment.share if passed else 0.0,
        max_points=row.max_points,
        findings=assessment.findings,
        figures=assessment.figures,
        seconds=report.duration,
        free=row.free,
        manual=row.manual,
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("verdict")
    if path is None or _CAPTURE not in session.config.stash or session.config.stash[_FAULTS]:
        return  # after a fault of ours there is no verdict: what was seen would be half of the truth
    capture, checks = session.config.stash[_CAPTURE], session.config.stash[_CHECKS]
    result = Verdict(
        lab=capture.lab,
        device=session.config.stash[_DEVICE],
        checks=tuple(checks),
        capture=capture.sha256,
        seed=_seed(session.config),
        notes=official.notes(capture),
        versions=capture.versions,
    )
    path.write_text(verdict.to_json(result))
