"""Calibrating a card that isn't there: what is made of a worker's report, and how peers are taken or not."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from cells import ROOT
from rich.console import Console
from typer.testing import CliRunner

from grader import catalog
from grader.catalog import Group, Shape
from grader.cli.app import app
from grader.gpu import hardware, lock, targets, unfit
from grader.gpu.ceilings import Measurement
from grader.gpu.hardware import Card, Compiler, Driver, Gpu
from grader.gpu.state import State
from grader.gpu.timing import Clock, Samples
from grader.judge import calibration, calibration_worker, sweep
from grader.judge.calibration import Reported, conclude
from grader.judge.lab01_vector_add import VECTOR_ADD
from grader.judge.peers import Missing, Peer
from grader.messages import progress
from grader.report import calibration as report
from grader.verdict import JudgeFailed, Unavailable
from grader.verdict.calibration import from_json, to_json

CARD = Card("NVIDIA A40", 48 * 2**30, (8, 6), "GPU-aaaa")
GPU = Gpu(Driver("580.1", (13, 0), (CARD,)), torch_cuda=(13, 0), compiler=Compiler("/nvcc", (13, 0)))
MEASURED = Measurement(
    bandwidth={"read": 600.0, "fill": 610.0, "copy": 560.0, "add": 580.123},
    matmul={"float16": 120.0},
    lacking={"float8_e4m3fn": "needs compute capability 8.9, the card has 8.6"},
    array=2**30,
    launch_us=3.21,
    kernel_us=1.6,
    event_us=2.5,
)
ENTRIES = (
    sweep.Entry(
        "lab03_schedules",
        "scheduled_matmul",
        Shape("4096, schedule 0", {"M": 4096, "N": 4096, "K": 4096}, Group.TIMED, schedule={"block_M": 128}),
        library="here",
    ),
)
QUIET = State(sm_mhz=(1700, 1740), celsius=(40, 50), watts=200.0, samples=100)


def rated(peer: str, rate: float) -> dict:
    return {"peer": peer, "rate": rate, "low": rate - 1, "high": rate + 1, "milliseconds": 1.0, "rounds": 50}


ADD = {"rows": [rated("torch.add", 570.0), rated("torch.compile", 571.0)], "disturbed": 0.001}
MATMUL = {"rows": [rated("cuBLAS (torch.matmul)", 110.0)], "disturbed": 0.001}
SWEPT = {
    "rows": [
        {"schedule": {"block_M": 64}, "rate": 60.0, "why_not": ""},
        {"schedule": {"block_M": 128}, "rate": 100.0, "why_not": ""},
        {"schedule": {"block_M": 256}, "rate": None, "why_not": "too large"},
    ],
    "disturbed": 0.002,
}
LINES = [
    {"phase": "ceiling", "limit": 60.0, "what": "bandwidth"},
    {"ceilings": asdict(MEASURED)},
    {"phase": "peers", "limit": 240.0, "what": "lab01_vector_add: vector_add"},
    {"peers": ADD, "lab": "lab01_vector_add", "kernel": "vector_add", "shape": "large"},
    {"peers": MATMUL, "lab": "lab02_matmul", "kernel": "matmul", "shape": "4096"},
    {"peers": MATMUL, "lab": "lab03_schedules", "kernel": "scheduled_matmul", "shape": "4096"},
    {"sweep": SWEPT, "lab": "lab03_schedules", "kernel": "scheduled_matmul"},
    {"state": asdict(QUIET)},
    {"done": True},
]


REPORTED = {(line["lab"], line["kernel"], line["shape"]) for line in LINES if "peers" in line}
#: The report of a whole calibration: the works above, and all others.
WHOLE = [
    *LINES[:-2],
    *(
        {"peers": {"rows": [rated(one.peers[0], 50.0)], "disturbed": 0.001}}
        | dict(zip(("lab", "kernel", "shape"), one.key, strict=True))
        for one in targets.asked()
        if one.key not in REPORTED
    ),
    *(
        {"sweep": SWEPT, "lab": one.lab, "kernel": one.kernel}
        for one in targets.asked()
        if one.of_sweep and one.key not in REPORTED
    ),
    *LINES[-2:],
]


def heard(*lines: dict) -> Reported:
    reported = Reported()
    for line in lines:
        reported.hear(json.loads(json.dumps(line)))
    return reported


def concluded(**changes):
    """A calibration from a report in which some lines are others."""
    lines = [replace_line(line, changes) for line in LINES]
    return conclude(CARD, "580.1", heard(*lines), 60.0)


def replace_line(line: dict, changes: dict) -> dict:
    if "peers" in line and line["kernel"] in changes:
        return line | {"peers": changes[line["kernel"]]}
    if "sweep" in line and "sweep" in changes:
        return line | {"sweep": changes["sweep"]}
    return {"state": asdict(changes["state"])} if "state" in line and "state" in changes else line


# From a report to rows


def test_the_best_peer_gives_the_row_and_small_differences_are_noise():
    found = concluded()
    add, matmul, *_others = found.works
    assert add.best == "torch.add"
    assert (add.tiers, matmul.tiers) == (((342.0, 0.5), (513.0, 1.0)), ((49.5, 0.5), (88.0, 1.0)))
    faster = concluded(
        vector_add={"rows": [rated("torch.add", 570.0), rated("torch.compile", 580.0)], "disturbed": 0}
    )
    assert faster.works[0].best == "torch.compile"
    assert [(row.peer, row.peer_rate) for row in calibration.rows(faster)] == [
        ("torch.compile", 580.0),
        ("cuBLAS (torch.matmul)", 110.0),
        ("cuBLAS (torch.matmul)", 110.0),
    ]
    for row in calibration.rows(found):
        assert row.card == CARD.name
        assert row.origin.startswith("measured 20")
        assert "driver 580.1, torch " in row.origin
    assert found.disturbed == ()
    assert from_json(to_json(found)) == found


def test_where_shares_of_a_sweep_are_asked_its_best_gives_the_row():
    found = concluded()
    (row,) = (row for row in calibration.rows(found) if row.lab == "lab03_schedules")
    assert (row.peer_rate, row.sweep.rate, row.sweep.schedule) == (110.0, 100.0, {"block_M": 128})
    assert [(tier.at, tier.share) for tier in row.tiers] == [(70.0, 0.5), (93.0, 1.0)]
    assert found.works[2].sweep.left_out == ("{'block_M': 256}: too large",)
    assert "the best of 2 schedules does 100 TFLOP/s (block_M = 128)" in shown(found)
    nothing = concluded(sweep={"rows": [SWEPT["rows"][2]], "disturbed": 0.0})
    assert [row.lab for row in calibration.rows(nothing)] == ["lab01_vector_add", "lab02_matmul"]
    assert "scheduled_matmul, 4096: no schedule was measured" in shown(nothing)
    restless = concluded(sweep=SWEPT | {"disturbed": 0.5})
    assert restless.works[2].sweep.disturbed == 0.5
    assert not restless.disturbed  # one of four; medians outlast that


def test_a_kernel_that_is_timed_at_two_shapes_gets_a_row_of_each():
    lab = {"lab": "lab06_flash_attention", "kernel": "attention"}
    rates = {"2k": 560.0, "8k": 590.0}
    lines = [
        {"peers": {"rows": [rated("cuDNN attention", rate)], "disturbed": 0}, "shape": shape} | lab
        for shape, rate in rates.items()
    ]
    found = conclude(CARD, "580.1", heard(LINES[1], *lines, *LINES[-2:]), 60.0)
    assert {row.shape: row.peer_rate for row in calibration.rows(found)} == rates


def test_no_ceiling_lies_below_what_a_library_reached():
    fast = concluded(
        matmul={"rows": [rated("cuBLAS (torch.matmul)", 130.0)], "disturbed": 0},
        vector_add={"rows": [rated("torch.add", 590.0)], "disturbed": 0},
    )
    assert (fast.matmul["float16"], fast.bandwidth["add"], fast.bandwidth["copy"]) == (130.0, 590.0, 560.0)
    slow = concluded(matmul={"rows": [{"peer": "cuBLAS (torch.matmul)", "why_not": "why"}], "disturbed": 0})
    assert slow.matmul["float16"] == 120.0


def test_a_peer_that_was_not_taken_is_told_and_gives_no_row():
    refused = {
        "rows": [{"peer": "torch.add", "why_not": "it is wrong"}, rated("torch.compile", 500.0)],
        "disturbed": 0,
    }
    found = concluded(vector_add=refused)
    assert found.works[0].best == "torch.compile"
    none = concluded(matmul={"rows": [{"peer": "cuBLAS (torch.matmul)", "why_not": "no memory"}], "disturbed": 0})
    assert (none.works[1].best, none.works[1].tiers) == (None, ())
    assert [row.lab for row in calibration.rows(none)] == ["lab01_vector_add", "lab03_schedules"]
    page = shown(none)
    assert "no memory" in page
    assert "lab02_matmul: matmul, 4096: no peer was measured" in page


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"state": replace(QUIET, slowed=["too hot (driver)"])}, "too hot (driver)"),
        ({"state": replace(QUIET, others=["process 7 (30 % of the card)"])}, "process 7"),
        (
            {
                "vector_add": ADD | {"disturbed": 0.3},
                "matmul": MATMUL | {"disturbed": 0.4},
                "scheduled_matmul": MATMUL | {"disturbed": 0.4},
            },
            "30.0% of the launches",
        ),
    ],
)
def test_on_a_card_that_was_not_quiet_figures_are_not_to_be_trusted(changes, says):
    found = concluded(**changes)
    (reason,) = found.disturbed
    assert says in reason
    assert says in found.origin
    assert "not to be trusted" in shown(found)


def shown(found) -> str:
    console = Console(width=200, file=io.StringIO())
    report.show(found, console)
    return console.file.getvalue()


def test_the_page_shows_every_figure():
    page = shown(concluded())
    for words in (
        "580 GB/s",
        "120 TFLOP/s",
        "needs compute capability 8.9",
        "570 GB/s (569–571)",
        "98.3%",
        "the best",
    ):
        assert words in page
    assert "50% of the points from 342 GB/s on, 100% of the points from 513 GB/s on" in page
    assert "1700–1740 MHz" in page
    assert "of the datasheet" in page
    assert "not to be trusted" not in page


def test_the_page_says_where_a_peak_is_unknown():
    known = replace(concluded(), datasheet={"copy": 5800.0})
    lines = {line.split(",")[0]: line for line in shown(known).splitlines()}
    (copy,) = (line for name, line in lines.items() if "copy (one read" in name)
    assert "peak unknown" not in copy
    assert "peak unknown" in shown(replace(known, datasheet={}))


# The worker's process


@pytest.fixture
def scripted(monkeypatch):
    """The worker says what it is told to."""

    def script(*lines: dict) -> None:
        monkeypatch.setenv("SCRIPT", json.dumps(lines))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests"), *sys.path]))
        monkeypatch.setattr(calibration, "WORKER", "scripted_calibration")
        monkeypatch.setattr(calibration.sweep, "entries", lambda card: iter(ENTRIES))

    return script


def test_a_calibration_is_what_the_worker_reports(scripted, tmp_path, monkeypatch):
    monkeypatch.delenv("TILELAB_LOCKS", raising=False)
    facts = tmp_path / "facts.json"
    scripted({"where": str(facts)}, *LINES)
    said = []
    with progress.heard(said.append):
        found = calibration.calibrate(CARD, "580.1")
    assert calibration.rows(found) == calibration.rows(concluded())
    assert said == [
        "compiling the judge's own sweep",
        "measuring what the card can do: bandwidth",
        "timing libraries: lab01_vector_add: vector_add",
    ]
    seen = json.loads(facts.read_text())
    assert seen["visible"] == seen["job"]["uuid"] == CARD.uuid
    assert [entry["shape"]["schedule"] for entry in seen["job"]["sweep"]] == [{"block_M": 128}]
    # Its files are its own and gone, and the lock is the one that all others take.
    assert seen["tmp"] == seen["folder"]
    assert not Path(seen["folder"]).exists()
    assert seen["lock"] == str(lock.path_for(CARD.uuid))


@pytest.mark.parametrize(
    ("lines", "kind", "says"),
    [
        ([{"lacking": "Only 0.1 of the card's 47.0 GiB of memory are free"}], Unavailable, "Only 0.1"),
        ([{"die": 1, "saying": "torch.OutOfMemoryError: CUDA out of memory."}], Unavailable, "ran out of memory"),
        ([{"phase": "ceiling", "limit": 0.1, "what": "int8"}, {"sleep": 60.0}], Unavailable, "int8' within 0 s"),
        ([{"die": 3, "saying": "a last word"}], JudgeFailed, "status 3:\na last word"),
        (LINES[:-1], JudgeFailed, "status 0"),
        ([{"done": True}], JudgeFailed, "without its figures"),
    ],
)
def test_a_worker_that_does_not_get_through_says_why(scripted, lines, kind, says):
    scripted(*lines)
    with pytest.raises(kind, match=says.replace("(", r"\(")):
        calibration.calibrate(CARD, "580.1")


# The peers


SMALL = Shape("large", {"N": 1000}, Group.TIMED)
KERNEL = catalog.find("lab01_vector_add").kernel("vector_add")


def peer(name: str, work) -> Peer:
    return Peer(name, lambda inputs, output: lambda: work(inputs, output))


def missing(_inputs, _output):
    raise Missing("no such library\nat all")


def clocked(launches, **options):
    """In place of the card's clock: launch i takes i + 1 milliseconds."""
    for launch in launches:
        launch(0)
    times = tuple([float(number + 1)] * 40 for number in range(len(launches)))
    return Samples(times, Clock.EVENTS, 0.0, (0.0,) * len(launches))


def test_peers_that_are_wrong_or_missing_are_told_and_not_timed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**40, 2**40))
    monkeypatch.setattr(calibration_worker, "interleave", clocked)
    peers = (
        peer("absent", missing),
        peer("right", lambda inputs, output: torch.add(*inputs, out=output)),
        peer("elsewhere", lambda inputs, output: inputs[0] + inputs[1]),
        peer("idle", lambda inputs, output: output),
        peer("wrong", lambda inputs, output: torch.sub(*inputs, out=output)),
        peer("wide", lambda inputs, output: inputs[0].double() + inputs[1]),
    )
    task = replace(VECTOR_ADD, peers=peers)
    found = calibration_worker.measure_peers(task, KERNEL, SMALL, device="cpu")
    rows = {row["peer"]: row for row in found["rows"]}
    assert list(rows) == [peer.name for peer in peers]
    assert rows["right"]["rate"] == pytest.approx(3 * 4 * 1000 / 1.0 / 1e6)
    assert rows["elsewhere"]["milliseconds"] == 2.0
    assert rows["absent"]["why_not"] == "no such library"
    assert "never written" in rows["idle"]["why_not"]
    assert "wrong" in rows["wrong"]["why_not"]
    assert "torch.float64" in rows["wide"]["why_not"]


def test_without_memory_no_peer_is_taken(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**20, 2**40))
    found = calibration_worker.measure_peers(VECTOR_ADD, KERNEL, KERNEL.shape("large"), device="cpu")
    assert all("GiB of free memory" in row["why_not"] for row in found["rows"])
    assert len(found["rows"]) == len(VECTOR_ADD.peers)


def test_everything_that_is_asked_is_measured():
    assert [(lab.id, kernel.name, shape.name) for lab, _task, kernel, shape in calibration_worker.timed()] == [
        one.key for one in targets.asked()
    ]


# The command


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with the card, and a teacher without a file."""
    monkeypatch.delenv(targets.FILE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(hardware, "look", lambda: GPU)
    return tmp_path / "config" / "tilelab" / "targets.toml"


def run(*arguments: str):
    return CliRunner().invoke(app, ["calibrate", *arguments])


def test_the_command_writes_a_file_that_the_judge_takes(machine, scripted, tmp_path, monkeypatch):
    scripted(*WHOLE)
    path = tmp_path / "a40.toml"
    done = run("-o", str(path))
    assert done.exit_code == 0, done.output
    assert "the best" in done.stdout
    assert "timing libraries" in done.stderr
    assert f"{targets.FILE_VARIABLE}={path}" in done.stderr
    assert not machine.exists()
    assert targets.of_card(CARD.name) == ()
    monkeypatch.setenv(targets.FILE_VARIABLE, str(path))
    row = targets.find("lab01_vector_add", "vector_add", "large", CARD.name)
    assert (row.full, row.peer, row.ceiling) == (513.0, "torch.add", 580.1)
    assert targets.ceilings(CARD.name).launch_us == 3.21


def test_keeping_adds_to_the_teachers_file(machine, scripted):
    scripted(*WHOLE)
    machine.parent.mkdir(parents=True)
    other = targets.PACKAGED.read_text().split("\n[[target]]")[1].replace("NVIDIA H200", "Mine")
    machine.write_text(f"# my own\n[[target]]{other}")
    assert run("--keep").exit_code == 0
    assert machine.read_text().startswith("# my own")
    assert targets.of_card("Mine")
    assert len(targets.of_card(CARD.name)) == len(targets.asked())
    scheduled = targets.find("lab03_schedules", "scheduled_matmul", "4096", CARD.name)
    assert (scheduled.sweep.rate, scheduled.sweep.schedule, scheduled.full) == (100.0, {"block_M": 128}, 93.0)


def test_what_was_measured_on_a_restless_card_is_shown_and_not_kept(machine, scripted, tmp_path):
    restless = {"state": asdict(replace(QUIET, slowed=["too hot (driver)"]))}
    scripted(*LINES[:-2], restless, LINES[-1])
    path = tmp_path / "a40.toml"
    done = run("--keep", "-o", str(path))
    assert done.exit_code == 1
    assert "not to be trusted" in " ".join(done.stdout.split())
    assert "Nothing was kept." in done.stderr
    assert not machine.exists()
    assert "too hot (driver)" in path.read_text()


def test_json_is_all_of_it(machine, scripted):
    scripted(*WHOLE)
    done = run("--json")
    assert done.exit_code == 0
    assert from_json(done.stdout).works[0].best == "torch.add"
    assert done.stderr == ""


def test_a_slip_in_the_teachers_file_is_told_before_measuring(machine, scripted):
    scripted({"die": 9, "saying": "never"})
    machine.parent.mkdir(parents=True)
    machine.write_text("x = 1\n")
    with pytest.raises(Unavailable, match="x: Extra inputs"):
        CliRunner().invoke(app, ["calibrate", "--keep"], catch_exceptions=False)


def test_without_a_card_the_command_says_what_is_missing(monkeypatch):
    bare = Gpu(None, None, None)
    monkeypatch.setattr(hardware, "look", lambda: bare)
    with pytest.raises(Unavailable) as error:
        CliRunner().invoke(app, ["calibrate"], catch_exceptions=False)
    assert error.value.finding.message == f"Calibrating needs a card that can judge. {unfit.why(bare).message}"
    assert error.value.finding.advice


@pytest.mark.gpu
def test_a_real_card_is_below_its_datasheet_and_gets_all_rows():
    found = calibration.calibrate(hardware.judging_card(), "the test's")
    assert {peer.why_not for work in found.works for peer in work.peers} == {""}
    assert len(calibration.rows(found)) == len(targets.asked())
    assert set(found.bandwidth) == set(targets.MIXES)
    for name, peak in found.datasheet.items():
        assert 0.3 * peak < (found.bandwidth | found.matmul)[name] < peak


def test_an_interrupted_calibration_leaves_nothing(scripted, tmp_path):
    facts, output = tmp_path / "facts.json", tmp_path / "out" / "x.toml"
    scripted({"where": str(facts)}, {"sleep": 60.0})
    code = (
        "import sys; from grader.judge import calibration; from grader.gpu import hardware\n"
        "from test_calibration import GPU; from grader.cli import main\n"
        "calibration.WORKER = 'scripted_calibration'; hardware.look = lambda: GPU\n"
        "calibration.sweep.entries = lambda card: iter(())\n"
        f"sys.argv = ['tilelab', 'calibrate', '--keep', '-o', {str(output)!r}]; main()"
    )
    environment = os.environ | {"XDG_CONFIG_HOME": str(tmp_path / "config"), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        if facts.exists() and facts.read_text().endswith("}"):
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _out, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["facts.json"]
