"""``show_prints``: what T.print prints on the simulator, in a notebook and in words."""

import html
from dataclasses import replace

import pytest
from cells import IMPORTS, VECTOR_ADD
from test_notebook import run

from grader import catalog
from grader.capture.format import Capture
from grader.catalog import Group, Shape
from grader.judge.submission import MOST_BYTES, Submission, bytes_of
from grader.report import printout as report
from grader.verdict import Location, Unusable
from grader.verdict.printout import Printed, Printout


def shown(*printed: Printed, left_out: int = 0) -> list[str]:
    found = Printout("k", "N = 4", printed, left_out)
    return [report.page(found), report.plain(found)]


def test_each_print_has_its_block_its_line_and_its_values():
    where = Location("In [3]", 7, "T.print(x)")
    rows = (
        Printed((0, 0, 0), where, "x", (1.0, -0.5, float("nan"))),
        Printed((2, 1, 0), where, "<b>here</b>", ()),
        Printed((2, 1, 0), None, "n", (3, True)),
    )
    page, text = shown(*rows)
    for out in (page, text):
        assert "k at N = 4: what T.print printed on the simulator" in out
        assert "(2, 1, 0)" in out
        assert "In [3], line 7" in out
        assert "1, -0.5, nan" in out
        assert "3, True" in out
    assert html.escape("<b>here</b>") in page
    assert "<b>here" not in page
    assert "\x1b" not in text


def test_much_is_cut_and_said(monkeypatch):
    monkeypatch.setattr(report, "MOST_ROWS", 2)
    row = Printed((0, 0, 0), None, "x", tuple(float(n) for n in range(20)))
    for out in shown(row, row, row, left_out=7):
        text = " ".join(out.split())
        assert "(20 values, from 0 to 19)" in text.replace("│ │ │ │ ", "")
        assert "These are the first 2 of 3." in text
        assert "7 further values were printed, and not kept." in text


def test_nothing_printed_is_said():
    for out in shown():
        assert "printed nothing" in html.unescape(out)
        assert "<table" not in out


def test_what_was_printed_and_not_kept_is_not_nothing():
    for out in shown(left_out=7):
        assert "printed nothing" not in html.unescape(out)
        assert "7 further values were printed" in out


PRINTING = VECTOR_ADD.replace("as bx:\n", 'as bx:\n            T.print(bx * block_N, msg="first")\n')


def test_in_a_notebook():
    small = "{'N': 6}, block_N=4, threads=32"
    calls = ["from grader import show_prints", f"show_prints(vector_add, {small})"]
    calls += [
        f"show_prints(vector_add, block=(1,), shape={small})",
        "show_prints(print)",
        "show_prints(vector_add, 'x')",
        "show_prints(vector_add, [6])",
        f"show_prints(vector_add, block=0, shape={small})",
        f"show_prints(vector_add, block=(2,), shape={small})",
        "show_prints(vector_add, {'N': 2**20}, (9999,), block_N=64, threads=64)",
    ]
    both, one, unknown, no_shape, no_sizes, no_block, outside, late = run(IMPORTS, PRINTING, "\n".join(calls))
    for text in ("vector_add at N = 6", "first", "(0, 0, 0)", "(1, 0, 0)", "In [2], line 6"):
        assert text in both
    assert "(0, 0, 0)" not in one
    assert "(1, 0, 0)" in one
    assert "No lab asks for a kernel" in unknown
    assert "has no shape" in no_shape
    assert "These are no sizes" in no_sizes
    assert "'0' is no block" in html.unescape(no_block)
    assert "has no block (2)" in outside
    assert "(9999, 0, 0)" in late  # however much the blocks before it print
    assert "not kept" not in late


def test_tensors_that_fit_no_memory_are_refused_before_they_are_made():
    lab = catalog.find("lab08_introspection")
    shape = Shape("own", {"M": 2**20, "N": 2**20}, Group.TILES)
    kernel = replace(lab.kernel("scale_rows"), shapes=(shape,))
    submission = Submission(Capture(lab.id, lab.version, ()), replace(lab, kernels=(kernel,)), None, "test")
    submission._admit = lambda *_asked: None
    for ask in (submission.printout, submission.count):
        with pytest.raises(Unusable, match=r"need 8,192\.0 GiB of memory; at most 4 may be"):
            ask("scale_rows", shape)


def test_every_timed_shape_may_be_looked_at():
    for lab in catalog.LABS:
        for kernel in lab.kernels:
            for shape in kernel.shapes:
                assert bytes_of(kernel, shape) <= MOST_BYTES, (kernel.name, shape.name)


@pytest.mark.parametrize("values", [(), (1,) * report.MOST_VALUES])
def test_what_fits_is_not_cut(values):
    for out in shown(Printed((0, 0, 0), None, "x", values)):
        assert "…" not in out
