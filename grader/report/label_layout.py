"""Where labels go on a chart, so that none lies on another, on a mark or on a line. Geometry only, in inches.

Each label is tried at all places of a fine grid; the nearest to its mark wins among those that hide nothing. Labels
are placed one by one, then moved once more each, as all others stand: deterministic, and good for some tens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

STEP = 0.06  # between places that are tried
PAD = 0.07  # kept free around a label
MARK = 0.09  # a mark's radius, with some air
PASSES = 3

# What a place costs, in inches of distance from the mark that it is as bad as.
LABEL, MARK_HIDDEN, LINE_HIDDEN, LEADER_UNDER_LABEL, LEADER_ON_MARK, LEADERS_CROSS = 100.0, 20.0, 3.0, 5.0, 1.0, 2.0


@dataclass(frozen=True)
class Box:
    """Axis-aligned, from (x0, y0) to (x1, y1)."""

    x0: float
    y0: float
    x1: float
    y1: float

    def padded(self, by: float) -> "Box":
        return Box(self.x0 - by, self.y0 - by, self.x1 + by, self.y1 + by)

    def overlaps(self, other: "Box") -> bool:
        return self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1

    def holds(self, x: float, y: float) -> bool:
        return self.x0 < x < self.x1 and self.y0 < y < self.y1

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """The box's point that is nearest to (x, y)."""
        return min(max(x, self.x0), self.x1), min(max(y, self.y0), self.y1)


@dataclass(frozen=True)
class Segment:
    """A straight line from (x0, y0) to (x1, y1)."""

    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True)
class Label:
    """What is to be placed: its size, and the mark that it belongs to."""

    width: float
    height: float
    mark: tuple[float, float]


def place(
    labels: Sequence[Label],
    region: Box,
    *,
    taken: Sequence[Box] = (),
    marks: Sequence[tuple[float, float]] = (),
    lines: Sequence[Segment] = (),
) -> list[Box]:
    """A box for each label inside ``region``; ``taken`` are places of other texts, ``marks`` what must be seen."""
    chosen: list[Box | None] = [None] * len(labels)
    for _pass in range(PASSES):
        for number, label in enumerate(labels):
            others = [
                (box, labels[i].mark) for i, box in enumerate(chosen) if box is not None and i != number
            ]
            chosen[number] = _best(label, region, taken, marks, lines, others)
    return [box for box in chosen if box is not None]


def _best(label, region, taken, marks, lines, others) -> Box:
    last_x, last_y = region.x1 - label.width, region.y1 - label.height
    xs, ys = np.meshgrid(
        np.arange(region.x0, max(last_x, region.x0 + STEP / 2), STEP),
        np.arange(region.y0, max(last_y, region.y0 + STEP / 2), STEP),
    )
    x0, y0 = xs.ravel(), ys.ravel()
    x1, y1 = x0 + label.width, y0 + label.height
    mark_x, mark_y = label.mark
    end_x, end_y = np.clip(mark_x, x0, x1), np.clip(mark_y, y0, y1)
    cost = np.hypot(end_x - mark_x, end_y - mark_y)
    # Of places that are as near, the one whose middle is: labels stand beside their mark, not shifted along it.
    cost += 0.05 * np.hypot((x0 + x1) / 2 - mark_x, (y0 + y1) / 2 - mark_y)
    for box in (*taken, *(box for box, _mark in others)):
        wide = box.padded(PAD)
        cost += LABEL * ((x0 < wide.x1) & (wide.x0 < x1) & (y0 < wide.y1) & (wide.y0 < y1))
    for x, y in marks:
        hidden = (x0 - MARK < x) & (x < x1 + MARK) & (y0 - MARK < y) & (y < y1 + MARK)
        cost += MARK_HIDDEN * hidden
    for line in lines:
        cost += LINE_HIDDEN * _crosses(line, x0 - PAD / 2, y0 - PAD / 2, x1 + PAD / 2, y1 + PAD / 2)
    cost += _leader(mark_x, mark_y, end_x, end_y, taken, marks, others)
    best = int(np.argmin(cost))
    return Box(float(x0[best]), float(y0[best]), float(x1[best]), float(y1[best]))


def _crosses(line: Segment, x0, y0, x1, y1):
    """Does a line cross each of the boxes? By the ends of the part of it that lies between their sides."""
    if line.x1 == line.x0:
        low, high = sorted((line.y0, line.y1))
        return (x0 < line.x0) & (line.x0 < x1) & (low < y1) & (y0 < high)
    slope = (line.y1 - line.y0) / (line.x1 - line.x0)
    left, right = np.maximum(x0, min(line.x0, line.x1)), np.minimum(x1, max(line.x0, line.x1))
    a, b = line.y0 + slope * (left - line.x0), line.y0 + slope * (right - line.x0)
    return (left < right) & (np.minimum(a, b) < y1) & (y0 < np.maximum(a, b))


def _leader(mark_x, mark_y, end_x, end_y, taken, marks, others):
    """What it costs that the line from a label to its mark runs under labels, over marks, or across other lines."""
    cost = np.zeros_like(end_x)
    along = np.linspace(0.0, 1.0, 25)[None, :]
    xs, ys = mark_x + (end_x[:, None] - mark_x) * along, mark_y + (end_y[:, None] - mark_y) * along
    for box in (*taken, *(box for box, _mark in others)):
        under = (xs > box.x0) & (xs < box.x1) & (ys > box.y0) & (ys < box.y1)
        cost += LEADER_UNDER_LABEL * under.any(axis=1)
    for x, y in marks:
        if (x, y) != (mark_x, mark_y):
            cost += LEADER_ON_MARK * (np.hypot(xs - x, ys - y) < MARK / 2).any(axis=1)
    for box, (other_x, other_y) in others:
        to_x, to_y = box.nearest(other_x, other_y)
        cost += LEADERS_CROSS * _intersect(mark_x, mark_y, end_x, end_y, other_x, other_y, to_x, to_y)
    return cost


def _intersect(ax, ay, bx, by, cx, cy, dx, dy):
    """Do the segments from a to b cross that from c to d?"""

    def side(px, py, qx, qy, rx, ry):
        return (qx - px) * (ry - py) - (qy - py) * (rx - px)

    first = side(ax, ay, bx, by, cx, cy) * side(ax, ay, bx, by, dx, dy)
    second = side(cx, cy, dx, dy, ax, ay) * side(cx, cy, dx, dy, bx, by)
    return (first < 0) & (second < 0)
