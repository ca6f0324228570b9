"""Gaps that hold code to be mended: what students get, and what of it counts as a secret."""

import pytest
from test_build import SCRIPT, check, judge, lab_file, make, table

from grader.catalog.labs import VECTOR_ADD
from grader.classroom import gaps

CELL = """\
def kernel(bx):
    ### BEGIN SOLUTION lines=3 hint="One of these lines is wrong."
    ### HINT Which?
    ### PLANTED for i in range(4):
    ### PLANTED     load_the_tile(i)
    ### PLANTED
    ### PLANTED store_the_tile_at(0)
    for i in range(4):
        load_the_tile(i)
    store_the_tile_at(bx)
    ### END SOLUTION
    return bx
"""


def test_the_planted_lines_stand_in_the_gap():
    assert (
        gaps.skeleton(CELL)
        == """\
def kernel(bx):
    # YOUR CODE HERE (mend these lines)
    # Hint: One of these lines is wrong. Which?
    for i in range(4):
        load_the_tile(i)

    store_the_tile_at(0)
    # END OF YOUR CODE
    return bx
"""
    )
    (_given, gap, _more) = gaps.split(CELL)
    assert gap.body == ("    for i in range(4):", "        load_the_tile(i)", "    store_the_tile_at(bx)")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    return bx", "    ### PLANTED return bx", "looks like a mark but is none"),
        ("### HINT Which?", "### PLANTED x = 1\n    ### HINT Which?", "below that"),
        ("### PLANTED store_the_tile_at(0)", "### PLANTED pass", "hold no 'pass'"),
        (
            "    ### PLANTED\n    ### PLANTED store_the_tile_at(0)",
            "    ### PLANTED store_the_tile_at(bx)",
            "must differ",
        ),
        ("### PLANTED store", "#### planted store", "looks like a mark but is none"),
    ],
)
def test_wrong_marks_are_said(old, new, message):
    assert old in CELL
    with pytest.raises(gaps.MarkError, match=message):
        gaps.split(CELL.replace(old, new, 1))


MENDED = SCRIPT.replace(
    "        tile = load_both_operands(bx, N)\n",
    "        ### PLANTED tile = load_one_operand_alone(bx, N)\n"
    "        ### PLANTED store_the_sum_of(tile)\n"
    "        tile = load_both_operands(bx, N)\n",
)


def test_a_lab_with_planted_lines_is_built_and_checked(tmp_path):
    assert MENDED != SCRIPT
    assert make(tmp_path, MENDED).ok
    assert check(tmp_path) == []
    path = lab_file(tmp_path, VECTOR_ADD.id)
    text = path.read_text()
    assert "load_one_operand_alone" in text
    assert "load_both_operands" not in text
    # What a student may change is no difference; what stands outside is, and so is a leak.
    path.write_text(text.replace("    return N", "    return N + 1"))
    assert any("differs from its solution outside the gaps" in message for message in check(tmp_path))
    path.write_text(text.replace("load_one_operand_alone", "load_both_operands"))
    assert any("shows what solutions/" in message for message in check(tmp_path))


def test_stubs_of_both_kinds_in_one_cell(tmp_path):
    more = '    ### BEGIN SOLUTION lines=1 hint="Again."\n    again_and_again(N)\n    ### END SOLUTION\n'
    both = MENDED.replace("    return N\n", f"{more}    return N\n")
    assert make(tmp_path, both, judge=judge, point_table=table).ok
    assert check(tmp_path) == []
