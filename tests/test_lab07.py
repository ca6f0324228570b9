"""Lab 07: what fits is what the compiler says, a tuner is traced and never run, wrong answers are told apart."""

import functools
import itertools
import json
import linecache
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import jupytext
import pytest
import tilelang
import tilelang.language as T
import torch
from cells import ROOT
from kernels import json_of

from grader import catalog, ir, simulator
from grader.admit import admit
from grader.capture.format import Capture, Handed
from grader.capture.tracing import trace, trace_kernels
from grader.catalog import Group, at_schedules
from grader.gpu import lowering
from grader.gpu.lowering import Job, Lowered, lower_all, timed_out
from grader.judge import lab07_autotuning as lab07
from grader.judge import seeds
from grader.judge.comparison import compare, poison
from grader.judge.submission import Submission
from grader.student.checking import name_of
from grader.verdict import Finding, JudgeFailed, Outcome

LAB = catalog.find("lab07_autotuning")
(KERNEL,) = LAB.kernels
GOOD = {"block_N": 64, "block_K": 64, "num_stages": 4, "threads": 128}
_numbers = itertools.count(1)


@functools.cache
def code_cells():
    cells = jupytext.read(ROOT / "solutions" / f"{LAB.id}.py", fmt="py:percent").cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


def run(names, *marks, changes=()):
    """The names that the solution's cells define which hold ``marks``, with texts changed."""
    text = "\n\n".join(source for mark in marks for source in code_cells() if mark in source)
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    file = f"<lab 07, {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), names)
    return names


def projection(*changes):
    return run({"tilelang": tilelang, "T": T}, "def projection", changes=changes)["projection"]


# What fits


def test_the_notebooks_space_is_the_judges():
    names = run({}, "space = [", "def shared_bytes")
    assert names["space"] == list(lab07.SPACE)
    assert names["BUDGET"] == lab07.BUDGET
    assert [names["shared_bytes"](schedule) for schedule in lab07.SPACE] == [*map(lab07.shared_bytes, lab07.SPACE)]
    assert names["kept"] == list(lab07.FITTING)


def lowered(schedules, arch):
    """The bytes of shared memory that the lab's kernel takes at the timed shape, for an architecture."""
    (timed,) = KERNEL.group(Group.TIMED)
    kernel = projection()
    shapes = [replace(timed, schedule=schedule) for schedule in schedules]
    traced = [json_of(kernel.get_tir(**shape.sizes, **shape.schedule)) for shape in shapes]
    admitted = [admit(one, KERNEL, shape) for one, shape in zip(traced, shapes, strict=True)]
    found = lower_all([Job(one.json, arch, one.options) for one in admitted])
    assert all(isinstance(result, Lowered) for result in found), found
    return [result.shared for result in found]


def near_the_budget():
    """The two that only just fit, the two that only just don't, and the worked example."""
    ordered = sorted(lab07.SPACE, key=lab07.shared_bytes)
    fitting = len(lab07.FITTING)
    example = {"block_N": 128, "block_K": 64, "num_stages": 2, "threads": 128}
    return [*ordered[fitting - 2 : fitting + 2], example]


def test_shared_memory_near_the_budget_is_what_the_compiler_takes():
    schedules = near_the_budget()
    needs = [lab07.shared_bytes(schedule) for schedule in schedules]
    assert needs[1] <= lab07.BUDGET < needs[2]
    assert needs[-1] == 64 * 1024
    assert lowered(schedules, "sm_90a") == needs


@pytest.mark.architectures
def test_shared_memory_of_the_whole_space_is_what_the_compiler_takes():
    assert lowered(lab07.SPACE, "sm_90a") == [lab07.shared_bytes(schedule) for schedule in lab07.SPACE]


@pytest.mark.architectures
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100a", "sm_120a"])
def test_it_takes_the_same_for_other_architectures(arch):
    schedules = near_the_budget()
    assert lowered(schedules, arch) == [lab07.shared_bytes(schedule) for schedule in schedules]


def test_exactly_what_fits_is_kept():
    assert lab07.filtered(lab07.FITTING[::-1]).outcome is Outcome.PASSED
    for number in (0, 7, len(lab07.FITTING) - 1):
        fewer = [*lab07.FITTING[:number], *lab07.FITTING[number + 1 :]]
        (finding,) = lab07.filtered(fewer).findings
        assert finding.message == "Dropped, though they fit into 101376 bytes: 1 of 62."
    too_large = next(schedule for schedule in lab07.SPACE if schedule not in lab07.FITTING)
    (finding,) = lab07.filtered([*lab07.FITTING, too_large]).findings
    assert finding.message == "Too large for 101376 bytes: 1 of the 63 that are kept."
    assert finding.evidence == (
        f"{', '.join(f'{name}={n}' for name, n in too_large.items())} takes {lab07.shared_bytes(too_large)} bytes",
    )


@pytest.mark.parametrize(
    "wrong",
    [
        (" + tile)", ")"),
        (" + tile)", " + 2 * tile)"),
        ("return 2 * (", "return 4 * ("),
        ('64 * schedule["block_K"] + ', ""),
        ('schedule["num_stages"] * stage', "stage"),
        ("<= BUDGET", "< BUDGET / 2"),
    ],
)
def test_a_wrong_formula_is_seen(wrong):
    names = run({"space": list(lab07.SPACE)}, "def shared_bytes", changes=(wrong,))
    assert lab07.filtered(names["kept"]).outcome is Outcome.FAILED


# The tuner


def test_the_tuner_gets_what_was_kept():
    assert lab07.shortlisted([GOOD], [GOOD]).outcome is Outcome.PASSED
    (finding,) = lab07.shortlisted([GOOD, GOOD | {"threads": 256}], [GOOD]).findings
    assert finding.message.startswith("configs[1] is none of 'kept'")
    reason = Finding("kept is not filled in yet")
    assert lab07.shortlisted([GOOD], reason).findings == (reason,)
    assert lab07.among(GOOD, [GOOD]).outcome is Outcome.PASSED
    assert lab07.among(GOOD | {"threads": 256}, [GOOD]).outcome is Outcome.FAILED
    assert lab07.among(GOOD, reason).findings == (reason,)


def test_a_tuner_is_traced_at_the_given_schedule_and_never_run(monkeypatch):
    kernel = projection()
    tuner = tilelang.autotune(configs=[GOOD])(kernel)
    assert tuner.configs == [GOOD]
    monkeypatch.setattr(type(tuner), "__call__", lambda *_arguments, **_more: pytest.fail("the tuner was run"))
    shape = replace(KERNEL.shape("64 rows"), schedule=GOOD)
    found, plain = (trace(target, KERNEL, shape, lambda _file: True) for target in (tuner, kernel))
    assert found.error is None
    assert found.ir == plain.ir
    assert name_of(tuner) == name_of(kernel) == "projection"
    given = functools.partial(tuner, **GOOD)  # as show_cuda(tuner, block_N=64, ...) makes it
    assert trace(given, KERNEL, KERNEL.shape("64 rows"), lambda _file: True).ir == plain.ir
    assert name_of(given) == "projection"


def test_what_has_every_attribute_has_no_name():
    assert name_of(Mock()) == "None"


def judged(kernel, configs):
    handed = (Handed("configs", configs), Handed("tuned", configs[0]))
    capture = Capture(LAB.id, LAB.version, (), values=handed)
    scheduled = at_schedules(LAB, capture.plain_values)
    traces = trace_kernels({"projection": kernel}, scheduled.kernels, lambda _file: True)
    return Submission(replace(capture, traces=tuple(traces)), scheduled, None, "test")


def test_the_shortlist_is_compiled_and_must_fit():
    too_large = GOOD | {"block_N": 128, "num_stages": 6}
    kernel = projection(("threads=threads)", "threads=threads if block_K > 32 else 96)"))
    found = lab07.compiled(judged(kernel, [GOOD, too_large, GOOD | {"block_K": 32}]))
    assert found.outcome is Outcome.FAILED
    large, broken = (finding.message for finding in found.findings)
    assert large == (
        "With block_N=128, block_K=64, num_stages=6, threads=128 it takes 163840 bytes of shared memory; "
        "the budget is 101376."
    )
    assert broken.startswith("It doesn't compile for sm_90a with block_N=64, block_K=32, ")


def test_after_a_timeout_no_further_schedule_is_compiled(monkeypatch):
    def endless(jobs, _seconds, _until):
        return [timed_out(jobs[0].arch)]

    monkeypatch.setattr(lowering, "_one_worker", endless)
    found = lab07.compiled(judged(projection(), [GOOD, GOOD | {"threads": 256}, GOOD | {"num_stages": 2}]))
    assert found.outcome is Outcome.FAILED
    assert len(found.findings) == 1
    assert found.findings[0].message.endswith("The compiler did not come to an end.")


def test_without_the_compiler_nothing_is_decided(monkeypatch):
    def broken(_jobs, **_more):
        raise JudgeFailed("no module named tilelang")

    monkeypatch.setattr(lab07, "lower_all", broken)
    found = lab07.compiled(judged(projection(), [GOOD, GOOD | {"threads": 256}, GOOD | {"num_stages": 2}]))
    assert found.outcome is Outcome.NOT_ASSESSED
    assert found.findings[0].evidence == ("no module named tilelang",)


# The cache

FOUND_NOTHING = {"after", "copied_file", "first_of_two", "second_of_two", "replaced"}
IN_MEMORY = ("json.loads(file.read_text()) if file.exists() else {}", "MEMORY")
CACHES = [
    ((), set()),
    ((("[shape, dtype, card, version]", "[dtype, card, version]"),), {"other_shape"}),
    ((("[shape, dtype, card, version]", "[shape, card, version]"),), {"other_dtype"}),
    ((("[shape, dtype, card, version]", "[shape, dtype, version]"),), {"other_card", "first_of_two"}),
    ((("[shape, dtype, card, version]", "[shape, dtype, card]"),), {"other_version"}),
    ((("    known[key] = schedule\n", "    known = {key: schedule}\n"),), {"first_of_two"}),
    ((IN_MEMORY,), {"other_file"}),
    ((("    known[key] = schedule\n", "    known.setdefault(key, schedule)\n"),), {"replaced"}),
    (
        (("    file.write_text(", "    str("),),
        {"after", "copied_file", "first_of_two", "second_of_two", "replaced"},
    ),
]


@pytest.mark.parametrize(("changes", "wrong"), CACHES)
def test_a_cache_is_told_from_one_that_forgets(changes, wrong):
    names = {"json": json, "shutil": shutil, "tempfile": tempfile, "Path": Path, "MEMORY": {}}
    answers = run(names, "def key_of", "def try_cache", changes=changes)["cache_answers"]
    assert set(answers) == set(lab07.ANSWERS)
    found = lab07.remembered(answers)
    assert found.outcome is (Outcome.FAILED if wrong else Outcome.PASSED)
    assert {finding.message.partition(":")[0] for finding in found.findings} == wrong


# The kernel


def passes(kernel, shape):
    typed = ir.read(json_of(kernel.get_tir(**shape.sizes)))
    for family in lab07.PROJECTION.families:
        inputs = lab07.PROJECTION.inputs(family, shape, seeds.generator("test", family, shape.name))
        reference = lab07.PROJECTION.reference(inputs)
        output = torch.empty(reference.shape, dtype=torch.float16)
        poison(output)
        ran = simulator.run(typed, (*inputs, output), outputs=(3,))
        if ran.faults or compare("Y", output, reference, lab07.PROJECTION.bound(inputs, reference)) is not None:
            return False
    return True


SHAPES = [shape for shape in KERNEL.shapes if shape.group is not Group.TIMED]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_what_is_right_passes(shape):
    assert passes(projection(), shape)
    assert passes(projection(("block_N=128, block_K=32", "block_N=32, block_K=64")), shape)


WRONG = {
    "no R": ("acc[i, j] += R_tile[i, j]", "acc[i, j] += 0"),
    "R twice": ("acc[i, j] += R_tile[i, j]", "acc[i, j] += R_tile[i, j] * 2"),
    "another column of R": ("T.copy(R[by * rows, bx * block_N]", "T.copy(R[by * rows, by * block_N]"),
    "R's rows": ("+= R_tile[i, j]", "+= R_tile[0, j]"),
    "starts at R's place": ("            T.clear(acc)\n", ""),
    "last tile of K left out": ("T.Pipelined(T.ceildiv(K, block_K)", "T.Pipelined(K // block_K - 1"),
    "sums in fp16": ('"float32"', '"float16"'),
    "X's rows": ("X[by * rows, step * block_K]", "X[0, step * block_K]"),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_what_is_wrong_fails(change):
    assert not all(passes(projection(change), shape) for shape in SHAPES)
