"""Reports of compute-sanitizer: read from its log, and told in the student's terms."""

import json
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kernels import json_of, kernel_of, shape_of
from sanitizer import faulty
from sanitizer.faulty import FAULTY
from typer.testing import CliRunner

from grader import catalog
from grader.admit import admit
from grader.capture.format import Capture, Source, Trace
from grader.catalog import Group
from grader.cli.app import app
from grader.gpu import sanitizer, unfit
from grader.gpu.generated import Generated
from grader.gpu.hardware import Card, Gpu
from grader.gpu.lowering import Job, lower_all
from grader.gpu.sanitizer import Kind, Place, parse
from grader.judge import sanitized
from grader.judge.sanitizer_words import about, finding_of
from grader.verdict import Location, Unavailable

ODD = shape_of("lab01_vector_add", "odd")
FILE = faulty.__file__

OUT_OF_BOUNDS = """\
========= COMPUTE-SANITIZER
========= Invalid __shared__ write of size 4 bytes
=========     at main_kernel+0x1b0 in kernel-811.cu:{line}
=========     by thread ({thread},0,0) in block (0,0,0)
=========     Access to 0x{thread:x}00 is out of bounds
=========
========= Invalid __shared__ write of size 4 bytes
=========     at main_kernel+0x1b0 in kernel-811.cu:{line}
=========     by thread (1,0,0) in block (3,0,0)
=========     Access to 0x810 is out of bounds
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to
========= ERROR SUMMARY: 3 errors
"""
MISALIGNED = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 16 bytes
=========     at tl::load(const float *)+0x20 in copy.h:57
=========         Device Frame: main_kernel+0x1b0 in kernel-811.cu:23
=========     by thread (65,0,0) in block (0,0,0)
=========     Access to 0x7bd889c03041 is misaligned
=========     and is inside the nearest allocation at 0x7bd889c03000 of size 1,024 bytes
========= ERROR SUMMARY: 1 error
"""
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at main_kernel+0x130 in kernel-9.cu:{write}
=========     and Write access at main_kernel+0x130 in kernel-9.cu:{write} [34 hazards]
=========     and Read access at main_kernel+0x2d0 in kernel-9.cu:{read} [16 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
UNINITIALISED = """\
========= COMPUTE-SANITIZER
========= Uninitialized __shared__ memory read of size 4 bytes
=========     at main_kernel+0x130 in /tmp/x/kernel-9.cu:{line}
=========     by thread (0,0,0) in block (0,0,0)
=========     Access at 0x1000
=========
========= ERROR SUMMARY: 257 errors
========= ERROR SUMMARY: 157 errors were not printed. Use --print-limit option to adjust
"""
UNWRITTEN = """\
========= COMPUTE-SANITIZER
========= Uninitialized access at 0x7f3c7ec04000 on access by cudaMemcpyAsync source.
=========
========= ERROR SUMMARY: 1 error
"""
BARRIER = """\
========= COMPUTE-SANITIZER
something that the program printed
========= Barrier error detected. Divergent thread(s) in block.
=========     at main_kernel+0xa0 in kernel-9.cu:{line}
=========     by thread (19,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
NO_RACE = "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"


# The log


def test_accesses_out_of_bounds_are_counted_by_line_and_block():
    log = parse(OUT_OF_BOUNDS.format(line=21, thread=7), "memcheck")
    fault, other = log.reports
    assert log.errors == 3
    assert (fault.kind, fault.space, fault.size) == (Kind.OUT_OF_BOUNDS, "shared", 4)
    assert fault.places == (Place("write", 21),)
    assert (fault.count, fault.blocks, fault.thread, fault.block) == (2, 2, (7, 0, 0), (0, 0, 0))
    assert other.kind is Kind.OTHER


def test_the_line_of_a_function_that_was_not_inlined_is_its_callers():
    (fault,) = parse(MISALIGNED, "memcheck").reports
    assert (fault.kind, fault.size, fault.places) == (Kind.MISALIGNED, 16, (Place("read", 23),))


def test_a_race_has_all_its_accesses():
    (fault,) = parse(RACE.format(write=9, read=14), "racecheck").reports
    assert fault.kind is Kind.RACE
    assert fault.places == (Place("write", 9), Place("read", 14))
    assert fault.count == 50


def test_a_race_whose_lines_are_broken():
    text = """\
========= Error: Race reported between Write access at buggy_kernel(float *, int)+0x580
=========     in memory_errors.cu:25
=========     and Read access at buggy_kernel(float *, int)+0x890 in memory_errors.cu:31
=========     [4080 hazards]
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
    (fault,) = parse(text, "racecheck").reports
    assert fault.places == (Place("write", 25), Place("read", 31))
    assert fault.count == 4080


@pytest.mark.parametrize(
    ("text", "kind", "errors"),
    [
        (UNINITIALISED.format(line=4), Kind.UNINITIALISED, 257),
        (UNWRITTEN, Kind.UNWRITTEN, 1),
        (BARRIER.format(line=4), Kind.BARRIER, 1),
    ],
)
def test_other_kinds(text, kind, errors):
    log = parse(text, "initcheck")
    assert ([report.kind for report in log.reports], log.errors) == ([kind], errors)


@pytest.mark.parametrize(("text", "errors"), [(CLEAN, 0), (NO_RACE, 0), ("========= COMPUTE-SANITIZER\n", None)])
def test_a_clean_log_and_one_without_an_end(text, errors):
    log = parse(text, "memcheck")
    assert (log.reports, log.errors) == ((), errors)


RECORDED = Path(__file__).parent / "sanitizer" / "recorded"


@pytest.mark.parametrize(
    ("name", "tool", "kind", "marker", "words"),
    [
        ("outside of a tile", "memcheck", Kind.OUT_OF_BOUNDS, "outside", "writes 4 bytes outside of tile"),
        ("race", "racecheck", Kind.RACE, "race", "same elements of tile"),
        ("half", "initcheck", Kind.UNWRITTEN, None, "a part of its output was never written"),
    ],
)
def test_what_was_recorded_on_a_card_is_understood(generated, name, tool, kind, marker, words):
    """Logs of version 2025.3.1 on an H200, of the kernels in ``faulty``; reports that repeat others are cut."""
    log = parse((RECORDED / f"{name.replace(' ', '-')}.{tool}.log").read_text(), tool)
    assert log.errors
    own = [report for report in log.reports if report.kind is not Kind.OTHER]
    assert {report.kind for report in own} == {kind}
    finding = finding_of(own[0], generated[name], locate)
    assert words in finding.message
    assert marker is None or finding.where.line == line_of(marker)


@pytest.mark.parametrize("tool", sanitizer.TOOLS)
def test_what_was_recorded_of_a_right_kernel_is_clean(tool):
    log = parse((RECORDED / f"right.{tool}.log").read_text(), tool)
    assert (log.reports, log.errors) == ((), 0)


def test_what_was_recorded_of_a_tool_whose_program_was_ended_is_a_consequence():
    log = parse((RECORDED / "outside-of-a-tile.racecheck.log").read_text(), "racecheck")
    assert ([report.kind for report in log.reports], log.errors) == ([Kind.OTHER], 0)


# The tool


def test_the_tool_is_looked_for_on_the_path_and_in_the_toolkit(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    tool = tmp_path / "toolkit" / "bin" / "compute-sanitizer"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    assert sanitizer.find() != str(tool)  # it can't be executed
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    assert sanitizer.find() == str(tool)
    monkeypatch.setenv("PATH", str(tool.parent))
    assert sanitizer.find() == str(tool)


def test_a_program_runs_under_the_tool_until_its_time_is_over(tmp_path):
    tool = tmp_path / "tool"
    tool.write_text(
        f"#!{sys.executable}\nimport sys, time\nprint(*sys.argv[1:])\ntime.sleep(float(sys.argv[-1]))\n"
    )
    tool.chmod(0o700)
    log = tmp_path / "x.log"
    done = [
        sanitizer.run(str(tool), "initcheck", ["program", wait], log, environment=os.environ, seconds=2.0)
        for wait in ("0", "60")
    ]
    assert [status for status, _console in done] == [0, None]
    assert "--tool initcheck" in done[0][1]
    assert f"--log-file {log}" in done[0][1]
    assert done[0][1].strip().endswith("-- program 0")


@pytest.mark.parametrize("newer", [False, True])
def test_initcheck_looks_at_tiles_where_it_can(tmp_path, newer):
    known = "--initcheck-address-space" if newer else "--track-unused-memory"
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\n[ \"$1\" = --help ] && echo ' {known} arg' || echo $*\n")
    tool.chmod(0o700)
    given = {
        name: sanitizer.run(str(tool), name, ["x"], tmp_path / "log", environment=os.environ, seconds=20.0)[1]
        for name in ("initcheck", "memcheck")
    }
    assert sanitizer.sees_tiles(str(tool)) is newer
    assert ("--initcheck-address-space all" in given["initcheck"]) is newer
    assert "address-space" not in given["memcheck"]
    assert ("tiles" in about("initcheck", tiles=newer)) is not newer


# From the generated source to the student's line


@pytest.fixture(scope="module")
def generated() -> dict[str, Generated]:
    kernel = kernel_of("lab01_vector_add")
    admitted = {name: admit(json_of(found.get_tir(4097)), kernel, ODD) for name, found in FAULTY.items()}
    jobs = [Job(found.json, "sm_90a", sanitized.LINE_MARKS) for found in admitted.values()]
    return {
        name: Generated(lowered.source, found.kernel)
        for (name, found), lowered in zip(admitted.items(), lower_all(jobs), strict=True)
    }


def line_of(marker: str, file: str = FILE) -> int:
    with open(file) as source:
        return next(number for number, line in enumerate(source, 1) if line.rstrip().endswith(f"# {marker}"))


def line_with(source: Generated, text: str) -> int:
    number = 1
    while text not in source.text(number):
        number += 1
        assert number < 200, text
    return number


def locate(line) -> Location | None:
    return None if line is None else Location("cell 1", line.number, f"line {line.number}")


def test_a_line_that_was_marked_is_that_line(generated):
    source = generated["outside of a tile"]
    number = line_with(source, "s0[((i * 256)")
    (site,) = source.statements(number, "write", "shared")
    assert site.line.number == line_of("outside")
    assert source.touched(number, "shared") == "tile"
    assert source.touched(number, "global") in "AB"


def test_nothing_is_said_of_lines_that_say_nothing(generated):
    source = generated["race"]
    assert source.statements(None) == source.statements(10_000) == ()
    assert source.touched(1) == ""


def test_a_line_without_a_mark_of_its_own_is_told_by_its_buffers():
    """The TMA's loads stand where the swizzle's mark is the last one: that is no reason to blame the swizzle."""
    from kernels import matmul

    square = shape_of("lab02_matmul", "square")
    admitted = admit(json_of(matmul.get_tir(256, 256, 256)), kernel_of("lab02_matmul"), square)
    (lowered,) = lower_all([Job(admitted.json, "sm_90a", sanitized.LINE_MARKS)])
    source = Generated(lowered.source, admitted.kernel)
    for descriptor, name in (("g0_desc, mbarrier", "A"), ("g1_desc, mbarrier", "B")):
        number = line_with(source, descriptor)
        (site,) = source.statements(number)
        assert (site.op, site.buffers[0].name) == ("copy", name)
        assert source.touched(number, "global") == name


@pytest.mark.parametrize(
    ("name", "tool", "log", "marks", "marker", "words"),
    [
        (
            "outside of a tile",
            "memcheck",
            OUT_OF_BOUNDS,
            {"line": "s0[((i"},
            "outside",
            "writes 4 bytes outside of tile",
        ),
        ("race", "racecheck", RACE, {"write": "s0[(((int)", "read": "] = s0["}, "race", "same elements of tile"),
        (
            "never written tile",
            "initcheck",
            UNINITIALISED,
            {"line": "= s0["},
            "never written",
            "reads 4 bytes of tile",
        ),
        ("barrier", "synccheck", BARRIER, {"line": "__syncthreads"}, None, "not reached by all threads"),
        ("half", "initcheck", UNWRITTEN, {}, None, "a part of its output was never written"),
    ],
)
def test_reports_in_the_students_terms(generated, name, tool, log, marks, marker, words):
    source = generated[name]
    lines = {key: line_with(source, text) for key, text in marks.items()}
    report = parse(log.format(thread=1, **lines), tool).reports[0]
    finding = finding_of(report, source, locate)
    assert words in finding.message
    assert finding.advice
    if marker is not None:
        assert finding.where.line == line_of(marker)
    if name == "race":
        assert any(item.startswith("and cell 1, line") for item in finding.evidence)


def test_without_a_source_the_report_still_stands():
    (report,) = parse(UNINITIALISED.format(line=4), "initcheck").reports
    finding = finding_of(report, None, locate)
    assert finding.message == "A thread reads 4 bytes of shared memory that nothing has written."
    assert finding.where is None


# All of it


@pytest.fixture
def capture() -> Capture:
    lab = catalog.find("lab01_vector_add")
    (kernel,) = lab.kernels
    traces = tuple(
        Trace(kernel.name, shape.name, ir=json_of(faulty.outside_of_a_tile.get_tir(**shape.sizes)))
        for shape in kernel.shapes
        if shape.group is not Group.TIMED
    )
    with open(FILE) as file:
        source = Source(FILE, "code cell 2", file.read())
    return Capture(lab.id, lab.version, traces, (source,), sandbox="test")


@pytest.fixture
def watched(monkeypatch, generated):
    """The tools' answers without a card: memcheck has something to say at N = 4097, the others don't."""
    card = Card(name="a card", memory=2**34, capability=(9, 0), uuid="")
    monkeypatch.setattr(sanitized, "must_have", lambda: ("compute-sanitizer", card))
    monkeypatch.setattr(sanitizer, "sees_tiles", lambda _path: True)
    number = line_with(generated["outside of a tile"], "s0[((i")

    def watch(_path, _lab, _kernel, admitted, _card, _seed, _folder):
        logs = {
            (name, tool): NO_RACE if tool == "racecheck" else CLEAN
            for name in admitted
            for tool in sanitizer.TOOLS
        }
        logs["odd", "memcheck"] = OUT_OF_BOUNDS.format(line=number, thread=0)
        return {}, {run: sanitized.Watched(log, 0, "") for run, log in logs.items()}

    monkeypatch.setattr(sanitized, "watch", watch)


def test_a_capture_is_watched_and_its_fault_named(watched, capture, tmp_path):
    file = tmp_path / "capture.json"
    file.write_text(capture.to_json())
    done = CliRunner().invoke(app, ["judge", str(file), "--sanitize", "--json"])
    assert done.exit_code == 1, done.output
    (kernel,) = json.loads(done.stdout)
    found = {tool["tool"]: tool["findings"] for tool in kernel["tools"]}
    assert set(found) == set(sanitizer.TOOLS)
    (finding,) = found.pop("memcheck")
    assert not any(found.values())
    assert finding["where"]["cell"] == "code cell 2"
    assert finding["where"]["text"].endswith("# outside")
    assert "seen at N = 4097" in finding["evidence"]
    shown = CliRunner().invoke(app, ["judge", str(file), "--sanitize"])
    assert "nothing found" in shown.stdout
    assert "outside of tile" in shown.stdout


CRASHED = """\
========= COMPUTE-SANITIZER
========= Error: process didn't terminate successfully
========= Target application returned an error
========= ERROR SUMMARY: 0 errors
"""


@pytest.mark.parametrize("explained", [True, False])
def test_a_crash_is_told_once_by_the_tool_that_knows_why(watched, capture, monkeypatch, explained):
    watch, lab = sanitized.watch, catalog.find(capture.lab)

    def crashing(*given):
        refused, runs = watch(*given)
        tools = ["racecheck", "synccheck"] if explained else sanitizer.TOOLS
        return refused, runs | {("odd", tool): sanitized.Watched(CRASHED, 6, "") for tool in tools}

    monkeypatch.setattr(sanitized, "watch", crashing)
    (kernel,) = sanitized.sanitize(capture, lab)
    found = {tool.tool: [finding.message for finding in tool.findings] for tool in kernel.tools}
    if explained:
        assert [tool for tool, said in found.items() if said] == ["memcheck"]
    else:
        assert all("terminate" in message for (message,) in found.values())


def test_on_an_architecture_that_is_not_known_here_a_finding_has_no_line(watched, monkeypatch, capture, tmp_path):
    card = Card(name="a newer card", memory=2**34, capability=(12, 1), uuid="")
    monkeypatch.setattr(sanitized, "must_have", lambda: ("compute-sanitizer", card))
    file = tmp_path / "capture.json"
    file.write_text(capture.to_json())
    done = CliRunner().invoke(app, ["judge", str(file), "--sanitize", "--json"])
    (kernel,) = json.loads(done.stdout)
    (finding,) = next(tool["findings"] for tool in kernel["tools"] if tool["tool"] == "memcheck")
    assert finding["where"] is None
    assert "outside of" in finding["message"]


def test_each_tool_watches_each_shape_on_the_one_card_that_is_held(monkeypatch, tmp_path):
    """With a tool that runs nothing and tells how it was called, and libraries that nobody loads."""
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "given = sys.argv[1:]\n"
        "told = {'given': given, 'card': os.environ['CUDA_VISIBLE_DEVICES'],"
        " 'apart': os.environ['PYTORCH_NO_CUDA_MEMORY_CACHING']}\n"
        "open(given[given.index('--log-file') + 1], 'w').write(json.dumps(told))\n"
    )
    tool.chmod(0o700)
    monkeypatch.setenv("TILELAB_LOCKS", str(tmp_path))
    lab = catalog.find("lab01_vector_add")
    (kernel,) = lab.kernels
    source = json_of(faulty.right.get_tir(4097))
    admitted = {name: admit(source, kernel, ODD) for name in ("odd", "tail")}

    def build_all(sources, *, into, way):
        assert way == sanitized.toolchain.NVCC  # the source's lines are then those of the log
        assert {source.arch for source in sources.values()} == {"sm_90a"}
        yield "odd", sanitized.compiler.Built(into / "odd.so", 1.0, False)
        yield "tail", sanitized.compiler.NotBuilt("nvcc", "no", 1.0)

    monkeypatch.setattr(sanitized.compiler, "build_all", build_all)
    card = Card(name="a card", memory=2**34, capability=(9, 0), uuid="GPU-1")
    refused, watched = sanitized.watch(str(tool), lab, kernel, admitted, card, "seed", tmp_path)
    assert refused == {"tail": "no"}
    assert set(watched) == {("odd", tool) for tool in sanitizer.TOOLS}
    for (name, which), seen in watched.items():
        told = json.loads(seen.log)
        assert (seen.status, told["card"], told["apart"]) == (0, "GPU-1", "1")
        assert told["given"][told["given"].index("--tool") + 1] == which
        assert told["given"][-3:] == ["grader.judge.sanitize_worker", str(tmp_path), name]
    job = json.loads((tmp_path / "job.json").read_text())
    assert job["shapes"] == {
        "odd": {"sizes": {"N": 4097}, "group": "tails", "library": str(tmp_path / "libraries" / "odd.so")}
    }
    assert (tmp_path / "tilelab-GPU-1.lock").exists()


def test_a_tool_that_does_not_end_is_said_and_one_that_breaks_is_our_fault(watched, capture, monkeypatch):
    from grader.verdict import JudgeFailed

    watch, lab = sanitized.watch, catalog.find(capture.lab)
    for status, log in ((None, ""), (1, "")):
        ended = sanitized.Watched(log, status, "no such tool")

        def late(*given, ended=ended):
            refused, runs = watch(*given)
            return refused, runs | {("tail", "synccheck"): ended}

        monkeypatch.setattr(sanitized, "watch", late)
        if status is None:
            (kernel,) = sanitized.sanitize(capture, lab)
            (finding,) = next(tool.findings for tool in kernel.tools if tool.tool == "synccheck")
            assert "synccheck did not come to an end" in finding.message
        else:
            with pytest.raises(JudgeFailed, match="no such tool"):
                sanitized.sanitize(capture, lab)


def test_what_is_missing_is_said_before_anything_runs(monkeypatch, capture, tmp_path):
    file = tmp_path / "capture.json"
    file.write_text(capture.to_json())
    monkeypatch.setattr(unfit, "look", lambda: Gpu(None, None, None))
    done = CliRunner().invoke(app, ["judge", str(file), "--sanitize"])
    assert isinstance(done.exception, Unavailable)
    assert "no GPU here for compute-sanitizer" in done.exception.finding.message
    card = Card(name="a card", memory=2**34, capability=(9, 0), uuid="")
    monkeypatch.setattr(unfit, "needed", lambda *_words: card)
    monkeypatch.setattr(sanitized.sanitizer, "find", lambda: None)
    with pytest.raises(Unavailable, match="compute-sanitizer is not here") as caught:
        sanitized.must_have()
    assert "CUDA toolkit" in caught.value.finding.advice


def test_one_capture_at_a_time(capture, tmp_path):
    file = tmp_path / "capture.json"
    file.write_text(capture.to_json())
    done = CliRunner().invoke(app, ["judge", str(file), str(file), "--sanitize"])
    assert "one capture at a time" in str(done.exception)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "tool", "words"),
    [
        ("right", None, ""),
        ("outside of a tile", "memcheck", "outside of tile"),
        ("race", "racecheck", "same elements of tile"),
        ("half", "initcheck", "never written"),
    ],
)
def test_on_the_card(name, tool, words):
    kernel = replace(kernel_of("lab01_vector_add"), shapes=(ODD,))
    lab = replace(catalog.find("lab01_vector_add"), kernels=(kernel,))
    traces = (Trace(kernel.name, ODD.name, ir=json_of(FAULTY[name].get_tir(**ODD.sizes))),)
    (found,) = sanitized.sanitize(Capture(lab.id, lab.version, traces, sandbox="test"), lab)
    assert found.clean is (tool is None)
    if tool is not None:
        findings = next(run.findings for run in found.tools if run.tool == tool)
        assert any(words in finding.message for finding in findings), findings
