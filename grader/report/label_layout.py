"""Where labels go on a chart, so that none lies on another, on a mark or on a line. Geometry only, in inches.

Each label is tried at all places of a grid; the nearest to its marks wins among those that hide nothing. Labels
are placed one by one, then moved again, as all others stand: deterministic, and good for some tens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

STEP = 0.08  # between places that are tried
PAD = 0.07  # kept free between labels
LINE_PAD = 0.13  # and between a label and a line
MARK = 0.09  # a mark's radius, with some air
PASSES = 3
LIKELY = 1500  # places for which the line to the mark is looked at

# What a place costs, in inches of distance from the mark that it is as bad as.
LABEL, MARK_HIDDEN, LINE_HIDDEN = 100.0, 20.0, 1.5
LEADER_UNDER_LABEL, LEADERS_CROSS, LEADER_ON_MARK, LEADER_ON_LINE = 5.0, 2.0, 0.8, 0.6


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
    """What is to be placed: its size, and the marks that it belongs to, one of which a line leads to."""

    width: float
    height: float
    marks: tuple[tuple[float, float], ...]

    def mark(self, box: Box) -> tuple[float, float]:
        """The mark that is nearest to the label at ``box``."""
        return min(self.marks, key=lambda mark: math.dist(mark, box.nearest(*mark)))


def place(
    labels: Sequence[Label],
    region: Box,
    *,
    taken: Sequence[Box] = (),
    marks: Sequence[tuple[float, float]] = (),
    lines: Sequence[Segment] = (),
) -> list[Box]:
    """A box for each label inside ``region``; ``taken`` are places of other texts, ``marks`` what must be seen.

    Who comes first takes the best place, so several orders are tried, and the cheapest result is taken.
    """
    numbers = range(len(labels))
    orders = [
        list(numbers),
        list(reversed(numbers)),
        sorted(numbers, key=lambda number: labels[number].marks[0]),
        sorted(numbers, key=lambda number: labels[number].marks[0], reverse=True),
    ]
    tried = [_in_order(order, labels, region, taken, marks, lines) for order in orders]
    return min(tried, key=lambda result: result[0])[1]


def _in_order(order, labels, region, taken, marks, lines) -> tuple[float, list[Box]]:
    """The cost and the places, if labels are placed in that order, and then moved in it."""
    chosen: dict[int, tuple[float, Box]] = {}
    for _pass in range(PASSES):
        for number in order:
            others = [(box, labels[i].mark(box)) for i, (_cost, box) in chosen.items() if i != number]
            chosen[number] = _best(labels[number], region, taken, marks, lines, others)
    return sum(cost for cost, _box in chosen.values()), [chosen[number][1] for number in range(len(labels))]


def _best(label, region, taken, marks, lines, others) -> tuple[float, Box]:
    last_x, last_y = region.x1 - label.width, region.y1 - label.height
    xs, ys = np.meshgrid(
        np.arange(region.x0, max(last_x, region.x0 + STEP / 2), STEP),
        np.arange(region.y0, max(last_y, region.y0 + STEP / 2), STEP),
    )
    x0, y0 = xs.ravel(), ys.ravel()
    x1, y1 = x0 + label.width, y0 + label.height
    every = np.array(label.marks)
    away = [np.hypot(np.clip(x, x0, x1) - x, np.clip(y, y0, y1) - y) for x, y in every]
    nearest = np.argmin(away, axis=0)
    mark_x, mark_y = every[nearest, 0], every[nearest, 1]
    end_x, end_y = np.clip(mark_x, x0, x1), np.clip(mark_y, y0, y1)
    cost = np.min(away, axis=0)
    # Of places that are as near, the one whose middle is: labels stand beside their mark, not shifted along it.
    cost += 0.05 * np.hypot((x0 + x1) / 2 - mark_x, (y0 + y1) / 2 - mark_y)
    for box in (*taken, *(box for box, _mark in others)):
        wide = box.padded(PAD)
        cost += LABEL * ((x0 < wide.x1) & (wide.x0 < x1) & (y0 < wide.y1) & (wide.y0 < y1))
    for x, y in marks:
        hidden = (x0 - MARK < x) & (x < x1 + MARK) & (y0 - MARK < y) & (y < y1 + MARK)
        cost += MARK_HIDDEN * hidden
    for line in lines:
        cost += LINE_HIDDEN * _crosses(line, x0 - LINE_PAD, y0 - LINE_PAD, x1 + LINE_PAD, y1 + LINE_PAD)
    likely = np.argsort(cost, kind="stable")[:LIKELY]
    leaders = _leader(mark_x[likely], mark_y[likely], end_x[likely], end_y[likely], taken, marks, lines, others)
    total = cost[likely] + leaders
    best = int(likely[np.argmin(total)])
    return float(total.min()), Box(float(x0[best]), float(y0[best]), float(x1[best]), float(y1[best]))


def _crosses(line: Segment, x0, y0, x1, y1):
    """Does a line cross each of the boxes? By the ends of the part of it that lies between their sides."""
    if line.x1 == line.x0:
        low, high = sorted((line.y0, line.y1))
        return (x0 < line.x0) & (line.x0 < x1) & (low < y1) & (y0 < high)
    slope = (line.y1 - line.y0) / (line.x1 - line.x0)
    left, right = np.maximum(x0, min(line.x0, line.x1)), np.minimum(x1, max(line.x0, line.x1))
    a, b = line.y0 + slope * (left - line.x0), line.y0 + slope * (right - line.x0)
    return (left < right) & (np.minimum(a, b) < y1) & (y0 < np.maximum(a, b))


def _leader(mark_x, mark_y, end_x, end_y, taken, marks, lines, others):
    """What it costs that a label's line to its mark runs under labels, over other marks, or across other lines."""
    cost = np.zeros_like(end_x)
    along = np.linspace(0.0, 1.0, 20)[None, :]
    xs = mark_x[:, None] + (end_x - mark_x)[:, None] * along
    ys = mark_y[:, None] + (end_y - mark_y)[:, None] * along
    for box in (*taken, *(box for box, _mark in others)):
        under = (xs > box.x0) & (xs < box.x1) & (ys > box.y0) & (ys < box.y1)
        cost += LEADER_UNDER_LABEL * under.any(axis=1)
    for x, y in marks:
        own = (mark_x == x) & (mark_y == y)
        cost += LEADER_ON_MARK * ((np.hypot(xs - x, ys - y) < MARK / 2).any(axis=1) & ~own)
    for line in lines:
        cost += LEADER_ON_LINE * _intersect(mark_x, mark_y, end_x, end_y, line.x0, line.y0, line.x1, line.y1)
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
