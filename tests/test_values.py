"""Values that a lab asks for: what is plain, what is of its kind, and kernels at the schedules that they name."""

import contextlib
import json
import math
from dataclasses import replace

import pytest
from cells import MATMUL
from hypothesis import given
from hypothesis import strategies as st

from grader import catalog
from grader.capture import capture_notebook, plain
from grader.capture.format import Capture, Handed, Source, parse_capture
from grader.catalog import Group, Scheduled, Value, at_schedules, values
from grader.catalog.values import Choice, Flag, ListOf, Real, Record, Text, Whole, WrongValue
from grader.judge.submission import Submission
from grader.verdict import Assessment, Finding, Outcome, Unusable

SCHEDULE = Record({"block_M": Whole(among=(32, 64, 128)), "num_stages": Whole(1, 4)})
MATMUL_LAB = catalog.find("lab02_matmul")
(KERNEL,) = MATMUL_LAB.kernels
FEW = tuple(shape for shape in KERNEL.shapes if shape.name in ("square", "small", "4096"))
LAB = replace(
    MATMUL_LAB,
    kernels=(replace(KERNEL, shapes=FEW, schedules=Scheduled(tried="schedules", timed="best")),),
    values=(
        Value("schedules", ListOf(SCHEDULE, least=2, most=8, distinct=True)),
        Value("best", SCHEDULE),
        Value("bytes_moved", Whole(0, 10**9)),
    ),
)
TWO = 'schedules = [{"block_M": 64, "num_stages": 2}, dict(block_M=128, num_stages=1)]'
BEST = "best = schedules[1]"

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


def depth(value) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


# Plain data


@given(PLAIN.filter(lambda value: depth(value) <= plain.MAX_DEPTH))
def test_plain_data_stays_as_it_is(value):
    assert plain.plain(value) == value
    assert plain.check(json.loads(json.dumps(plain.plain(value)))) == value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "finite"),
        (-math.inf, "finite"),
        (2**53 + 1, "2^53"),
        ("x" * 2001, "2000 characters"),
        ([[[[[1]]]]], "4 deep"),
        ([[0] * 600, [0] * 600], "1000 values"),
        ({1: 2}, "no texts"),
        (object(), "a object"),
        (lambda: 0, "a function"),
        (b"bytes", "a bytes"),
        (1j, "a complex"),
    ],
)
def test_what_is_not_plain_is_named(value, said):
    with pytest.raises(plain.NotPlain, match=said.replace("^", r"\^")):
        plain.plain(value)


def test_tuples_sets_and_numbers_of_arrays_become_plain():
    import numpy
    import torch

    assert plain.plain((1, {"b", "a"}, ...)) == [1, ["a", "b"], None]
    assert plain.plain([numpy.int64(3), numpy.float32(0.5), torch.tensor(7), numpy.arange(2)]) == [
        3,
        0.5,
        7,
        [0, 1],
    ]
    assert type(plain.plain(numpy.float64(0.5))) is float


# Kinds

KINDS = [
    (3, Whole(1, 8)),
    (64, Whole(among=(32, 64))),
    (0.25, Real(0, 1)),
    (1, Real(0, 1)),
    (True, Flag()),
    ("wgmma", Choice(("wgmma", "mma"))),
    ("because", Text(10)),
    ({"block_M": 64, "num_stages": 2}, SCHEDULE),
    ([{"block_M": 64, "num_stages": 2}], ListOf(SCHEDULE)),
]


@pytest.mark.parametrize(("value", "kind"), KINDS)
def test_values_of_their_kind_are_read(value, kind):
    assert values.read(value, kind, "v") == value


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (9, Whole(1, 8), "v is 9; it has to be a whole number from 1 to 8"),
        (True, Whole(0, 8), "v is True"),
        (3.0, Whole(0, 8), "v is 3.0"),
        (48, Whole(among=(32, 64)), "one of 32, 64"),
        (1.5, Real(0, 1, "TB/s"), r"a number from 0 to 1 \(TB/s\)"),
        (1, Flag(), "True or False"),
        ("hmma", Choice(("wgmma", "mma")), "one of 'wgmma', 'mma'"),
        ("   ", Text(10), "a text"),
        ({"block_M": 64}, SCHEDULE, "v lacks 'num_stages'"),
        ({"block_M": 64, "num_stages": 2, "warps": 4}, SCHEDULE, 'the name "warps"'),
        ([{"block_M": 64, "num_stages": 9}], ListOf(SCHEDULE), r'v\[0\]\["num_stages"\] is 9'),
        ([1, 2, 1], ListOf(Whole(), distinct=True), r"v\[2\] is the same as v\[0\]"),
        ([], ListOf(Whole(), least=2), "v holds 0; it has to be a list of 2 to 8 values"),
        (None, Whole(), "v is not filled in yet"),
    ],
)
def test_what_is_not_of_its_kind_is_said(value, kind, said):
    with pytest.raises(WrongValue, match=said):
        values.read(value, kind, "v")


@given(PLAIN, st.sampled_from([kind for _value, kind in KINDS]))
def test_whatever_is_read_is_of_its_kind_or_refused(value, kind):
    with contextlib.suppress(WrongValue):
        found = values.read(value, kind, "v")
        assert values.read(found, kind, "v") == found


# From the notebook


def test_values_and_kernels_at_their_schedules_are_captured(notebook):
    capture = capture_notebook(notebook("lab02_matmul", MATMUL, TWO, BEST, "bytes_moved = 12"), LAB)
    assert capture.plain_values == {
        "schedules": [{"block_M": 64, "num_stages": 2}, {"block_M": 128, "num_stages": 1}],
        "best": {"block_M": 128, "num_stages": 1},
        "bytes_moved": 12,
    }
    tried = [f"{name}, schedule {number}" for name in ("square", "small") for number in (0, 1)]
    assert [trace.shape for trace in capture.traces] == [*tried, "4096"]
    assert all(trace.ir for trace in capture.traces)
    assert parse_capture(capture.to_json()) == capture
    lab = at_schedules(LAB, capture.plain_values)
    submission = Submission(capture, lab, None, "test")
    (kernel,) = lab.kernels
    blocks = {shape.name: submission.admitted("matmul", shape).kernel.grid for shape in kernel.shapes}
    assert [d.extent.value for d in blocks["square, schedule 0"]] == [2, 4]  # 256 / 128, 256 / 64
    assert [d.extent.value for d in blocks["square, schedule 1"]] == [2, 2]
    assert submission.correct("matmul", Group.TAILS).outcome is Outcome.PASSED
    assert submission.fast("matmul").outcome is Outcome.NOT_ASSESSED  # here is no card


def test_a_kernel_that_is_wrong_at_one_schedule_fails_there(notebook):
    wrong = MATMUL.replace("T.clear(C_tile)", "if num_stages > 1:\n                T.clear(C_tile)")
    capture = capture_notebook(notebook("lab02_matmul", wrong, TWO, BEST), LAB)
    found = Submission(capture, at_schedules(LAB, capture.plain_values), None, "test").correct(
        "matmul", Group.TILES
    )
    assert found.outcome is Outcome.FAILED
    assert "block_M = 128, num_stages = 1" in str(found.findings)
    assert "block_M = 64" not in str(found.findings)


@pytest.mark.parametrize(
    ("cells", "said", "line"),
    [
        ((BEST,), "NameError: name 'schedules' is not defined", BEST),
        ((TWO,), "The notebook defines no 'best'.", None),
        ((TWO, "x = 1\nbest = {'block_M': 64}"), "best lacks 'num_stages'", "best = {'block_M': 64}"),
        ((TWO, "best = print"), "'best' is or holds a builtin_function_or_method", "best = print"),
        (("schedules = [1, 2]", BEST), "schedules[0] is 1", "schedules = [1, 2]"),
        (("schedules = [dict(block_M=64, num_stages=2)] * 9", BEST), "schedules holds 9", None),
    ],
)
def test_without_its_schedules_a_kernel_fails_for_that_reason(notebook, cells, said, line):
    capture = capture_notebook(notebook("lab02_matmul", MATMUL, *cells), LAB)
    submission = Submission(capture, at_schedules(LAB, capture.plain_values), None, "test")
    for found in (submission.signature("matmul"), submission.correct("matmul", Group.TILES)):
        assert found.outcome is Outcome.FAILED
        assert said in found.findings[0].message
        if line is not None:
            assert found.findings[0].where.text == line
    assert submission.clean("matmul").outcome is submission.fast("matmul").outcome is Outcome.FAILED


def test_an_object_that_fights_back_is_only_no_value(notebook):
    hostile = """
class Angry(dict):
    def __iter__(self):
        raise SystemError("x" * 10_000)
    def __len__(self):
        raise SystemError("y")
bytes_moved = Angry()
best = type("int64", (int,), {"__module__": "numpy", "tolist": lambda self: [self] * 3})(4)
"""
    capture = capture_notebook(notebook("lab02_matmul", MATMUL, TWO, hostile), LAB)
    assert set(capture.plain_values) == {"schedules"}
    assert all(len(handed.error) <= 600 for handed in capture.values)


def test_forged_values_are_refused(notebook):
    """What no ``plain`` would have written can't come by way of the channel either."""
    forge = """
import json, sys
value = {"name": "best", "value": [[[[[[[1]]]]]]], "error": ""}
with open(int(sys.argv[1]), "w", closefd=False) as results:
    results.write(json.dumps({"done": {"traces": [], "cell_errors": [], "values": [value]}}) + "\\n")
"""
    with pytest.raises(Unusable, match="wrote something of its own"):
        capture_notebook(notebook("lab02_matmul", MATMUL, TWO, BEST, forge), LAB)


def test_a_damaged_capture_is_refused():
    capture = Capture("lab02_matmul", 1, (), values=(Handed("best", [[[[[1]]]]]),))
    with pytest.raises(Unusable, match="damaged at 'values'"):
        parse_capture(capture.to_json())


def test_the_hash_knows_the_values():
    one, two = (Capture("lab02_matmul", 1, (), values=(Handed("best", n),)) for n in (1, 2))
    assert len({one.sha256, two.sha256, Capture("lab02_matmul", 1, ()).sha256}) == 3


# Judging


def test_a_judge_of_values_gets_them_and_says_where():
    source = Source("/notebook/cell-1", "code cell 1", "bytes_moved = 12\nprint(bytes_moved == 12)")
    capture = Capture("lab02_matmul", 1, (), (source,), values=(Handed("bytes_moved", 12),))
    submission = Submission(capture, LAB, None, "test")
    assert submission.value("bytes_moved") == 12

    def judge(value: int) -> Assessment:
        return Assessment(Outcome.FAILED, (Finding(f"{value} is too few."),))

    (finding,) = submission.judge_value("bytes_moved", judge).findings
    assert (finding.message, finding.where.line, finding.where.text) == ("12 is too few.", 1, "bytes_moved = 12")
    missing = submission.judge_value("best", judge)
    assert missing.outcome is Outcome.FAILED
    assert "defines no 'best'" in missing.findings[0].message


def test_names_of_values_can_be_passed_to_check_and_belong_to_one_lab():
    names = [value.name for lab in catalog.LABS for value in lab.values]
    assert len(names) == len(set(names))
    assert not {"kernel", "part", "device"} & set(names)
    for lab in catalog.LABS:
        for kernel in lab.kernels:
            if kernel.schedules is not None:
                assert {kernel.schedules.tried, kernel.schedules.timed} <= {value.name for value in lab.values}
