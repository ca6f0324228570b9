"""Points, as they stand on a lab's tests."""

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class PointRow:
    """One test: its name, what it is about, the grade_id of its nbgrader cell, and its points.

    ``free`` points may be earned by a skeleton that nobody has touched; ``manual`` ones are a teacher's to give.
    """

    name: str
    title: str
    cell: str
    max_points: float
    free: bool = False
    manual: bool = False

    @property
    def part(self) -> str:
        """The last word of the cell's grade_id: "right", "fast"."""
        return self.cell.rpartition("-")[2]


def points(
    maximum: float, *, cell: str, title: str, free: bool = False, manual: bool = False
) -> pytest.MarkDecorator:
    """Marks a test of a lab: ``maximum`` points, which go to the nbgrader cell ``cell``.

    The ``manual`` points of an answer in words wait for a teacher: its test says ``assess(submission.written())``.
    """
    return pytest.mark.points(maximum, cell=cell, title=title, free=free, manual=manual)


def row_of(item: pytest.Item) -> PointRow:
    """The row of a collected test. A test without points is an error of ours."""
    marker = item.get_closest_marker("points")
    if marker is None:
        raise pytest.UsageError(f"{item.nodeid} has no points: decorate it with @points(...)")
    (maximum,), given = marker.args, marker.kwargs
    return PointRow(item.name, given["title"], given["cell"], float(maximum), given["free"], given["manual"])
