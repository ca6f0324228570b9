"""The record of a block as a page for a notebook: a slider over the steps, and the tiles as pictures.

One piece of HTML with its own style and script: nothing is fetched. The script puts every text in as text, and
where scripts don't run there is a plain list of the steps. Large tiles are sampled; hovering gives the exact value
of a sampled element.
"""

import base64
import json
import math
import secrets
import struct
from bisect import bisect_left
from collections.abc import Iterator
from html import escape
from importlib import resources
from math import prod

from grader.messages import _
from grader.report import trace_words as words
from grader.verdict.trace import BlockTrace, Number, Step, Touch, TracedBuffer

MOST_CELLS = 48  # rows and columns of a picture
MOST_STEPS = 400
MOST_BYTES = 4_000_000  # of pictures

_NOTHING = 0xFFFFFFFF  # the bits of a cell that has no value: a NaN that no computation gives


def render(trace: BlockTrace) -> str:
    """The page, as a fragment of HTML."""
    name = f"tilelab-trace-{secrets.token_hex(6)}"
    data = _for_script(json.dumps(page_data(trace), allow_nan=False))
    folder = resources.files("grader.report")
    style, script = (folder.joinpath(f"trace.{kind}").read_text("utf-8") for kind in ("css", "js"))
    steps = "".join(
        f"<li><code>{escape(words.line(step))}</code> {escape(words.place(step))}</li>"
        for step in trace.steps[:MOST_STEPS]
    )
    return (
        f'<style>{style}</style><div class="tilelab-trace" id="{name}">'
        f"<p><strong>{escape(words.title(trace))}</strong></p><ol>{steps}</ol></div>"
        f'<script>{script}\ntilelabTrace(document.getElementById("{name}"), {data});</script>'
    )


def _for_script(text: str) -> str:
    """JSON that may stand in a script: no text in it can end the script, or begin a comment."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def page_data(trace: BlockTrace) -> dict[str, object]:
    """What the script draws."""
    pictures = _Pictures(trace)
    axes = [_axes(trace, number) for number in range(len(trace.buffers))]
    steps = [_step(trace, step, axes, pictures) for step in trace.steps[:MOST_STEPS]]
    notes = list(trace.notes)
    if len(trace.steps) > MOST_STEPS:
        notes.append(
            _("The picture shows the first {count} of {all} steps.").format(count=MOST_STEPS, all=len(trace.steps))
        )
    if pictures.left_out:
        notes.append(_("The tiles of later steps are not drawn: they would make this notebook too large."))
    return {
        "title": words.title(trace),
        "words": {
            "read": _("read"),
            "written": _("written"),
            "step": _("step {number} of {all}"),
            "global": _("Global memory"),
            "tiles": _("Tiles of this block"),
            "previous": _("previous step"),
            "next": _("next step"),
            "slider": _("step"),
            "unwritten": _("nothing written yet"),
            "range": _("{low} … {high} over all steps"),
            "every": _("one of every {rows} × {columns} elements is shown"),
            "has": _("with {values}"),
            "earlier": _("grey: touched in an earlier step"),
            "nothing": _("This block touches nothing."),
            "faults": _("What is wrong in this run"),
        },
        "buffers": [
            _buffer(buffer, axes[number], pictures.range(number)) for number, buffer in enumerate(trace.buffers)
        ],
        "steps": steps,
        "source": [{"number": line.line, "text": line.text} for line in trace.source],
        "notes": notes,
        "faults": [f"{fault.message} {fault.where}" if fault.where else fault.message for fault in trace.faults],
    }


Axes = tuple[int | None, int]


def _buffer(buffer: TracedBuffer, axes: Axes, values: list[float]) -> dict[str, object]:
    return {
        "name": buffer.name,
        "about": f"{buffer.scope} · {buffer.dtype} [{', '.join(map(str, buffer.shape))}]",
        "global": buffer.scope == "global",
        "shape": list(buffer.shape),
        "size": _plane(buffer, *axes) if buffer.scope == "global" else _folded(buffer.shape),
        "range": values,
    }


def _axes(trace: BlockTrace, number: int) -> Axes:
    """The two dimensions of a global buffer in which the block's tiles lie: rows (or None) and columns."""
    shape = trace.buffers[number].shape
    touches = [t for step in trace.steps for t in (*step.reads, *step.writes) if t.buffer == number]
    wide = [axis for axis in range(len(shape)) if any(t.box[axis][1] - t.box[axis][0] > 1 for t in touches)]
    chosen = wide[-2:]
    for axis in reversed(range(len(shape))):
        if len(chosen) < min(2, len(shape)) and axis not in chosen:
            chosen.append(axis)
    chosen.sort()
    return (chosen[0], chosen[1]) if len(chosen) == 2 else (None, chosen[0])


def _plane(buffer: TracedBuffer, rows: int | None, columns: int) -> list[int]:
    return [1 if rows is None else buffer.shape[rows], buffer.shape[columns]]


def _folded(shape: tuple[int, ...]) -> list[int]:
    """Rows and columns of a tile's picture: all but the last dimension are rows."""
    return [prod(shape[:-1]), shape[-1]]


def _step(trace: BlockTrace, step: Step, axes: list[Axes], pictures: "_Pictures") -> dict[str, object]:
    lines = [line.line for line in trace.source]
    # A tile that is copied is drawn as a tile; of global memory itself, what is computed with is drawn.
    copied = step.copies and any(trace.buffers[t.buffer].scope != "global" for t in (*step.reads, *step.writes))
    return {
        "line": lines.index(step.where.line) if step.where and step.where.line in lines else -1,
        "place": words.place(step),
        "text": words.line(step),
        "variables": words.variables(step),
        "touches": [
            _touch(trace.buffers[touch.buffer], axes[touch.buffer], touch, kind, pictures, region=not copied)
            for kind, touches in (("read", step.reads), ("written", step.writes))
            for touch in touches
        ],
    }


def _touch(
    buffer: TracedBuffer, axes: Axes, touch: Touch, kind: str, pictures: "_Pictures", *, region: bool
) -> dict[str, object]:
    data: dict[str, object] = {
        "buffer": touch.buffer,
        "kind": kind,
        "place": words.region(buffer, touch),
    }
    if buffer.scope == "global":
        rows, columns = axes
        data["box"] = [[0, 1] if rows is None else list(touch.box[rows]), list(touch.box[columns])]
        data["picture"] = pictures.of_region(touch) if region else None
        return data
    data["box"] = _folded_box(buffer.shape, touch.box)
    if kind == "written":
        data["picture"] = pictures.of_tile(touch)
    return data


def _folded_box(shape: tuple[int, ...], box: tuple[tuple[int, int], ...]) -> list[list[int]]:
    first = last = 0
    for extent, (low, high) in zip(shape[:-1], box[:-1], strict=True):
        first, last = first * extent + low, last * extent + high - 1
    return [[first, last + 1], list(box[-1])]


class _Pictures:
    """The values of sampled elements, step by step."""

    def __init__(self, trace: BlockTrace) -> None:
        self._buffers = trace.buffers
        self._tiles: dict[int, list[Number | None]] = {}
        self._ranges: dict[int, list[float]] = {}
        self._bytes = 0
        self.left_out = False

    def range(self, number: int) -> list[float]:
        """The lowest and highest finite value in the pictures of a buffer."""
        return self._ranges.get(number, [0.0, 0.0])

    def of_tile(self, touch: Touch) -> dict[str, object] | None:
        """A tile after a write to it."""
        shape = self._buffers[touch.buffer].shape
        rows, columns = (_samples(size) for size in _folded(shape))
        cells = self._tiles.setdefault(touch.buffer, [None] * (len(rows) * len(columns)))
        for cell, index in enumerate(_cells(shape, rows, columns)):
            found, value = _value_at(touch, index)
            if found:
                cells[cell] = value
        return self._picture(touch.buffer, cells, rows, columns, shape, (0,) * len(shape))

    def of_region(self, touch: Touch) -> dict[str, object] | None:
        """The elements of a global buffer that a step touches."""
        start = tuple(low for low, _high in touch.box)
        shape = tuple(high - low for low, high in touch.box)
        rows, columns = (_samples(size) for size in _folded(shape))
        cells = []
        for index in _cells(shape, rows, columns):
            found, value = _value_at(touch, tuple(map(int.__add__, index, start)))
            cells.append(value if found else None)
        return self._picture(touch.buffer, cells, rows, columns, shape, start)

    def _picture(
        self,
        number: int,
        cells: list[Number | None],
        rows: range,
        columns: range,
        shape: tuple[int, ...],
        start: tuple[int, ...],
    ) -> dict[str, object] | None:
        size = len(cells) * 4
        if self._bytes + size > MOST_BYTES:
            self.left_out = True
            return None
        self._bytes += size
        finite = [float(value) for value in cells if value is not None and math.isfinite(value)]
        if finite:
            low, high = self._ranges.setdefault(number, [finite[0], finite[0]])
            self._ranges[number] = [min(low, *finite), max(high, *finite)]
        return {
            "cells": base64.b64encode(b"".join(map(_bits, cells))).decode(),
            "size": [len(rows), len(columns)],
            "every": [rows.step, columns.step],
            "shape": list(shape),
            "start": list(start),
        }


def _samples(size: int) -> range:
    return range(0, size, -(-size // MOST_CELLS))


def _cells(shape: tuple[int, ...], rows: range, columns: range) -> Iterator[tuple[int, ...]]:
    """The indices of the sampled elements, row by row."""
    for row in rows:
        front, rest = [], row
        for extent in reversed(shape[:-1]):
            rest, index = divmod(rest, extent)
            front.append(index)
        for column in columns:
            yield (*reversed(front), column)


def _value_at(touch: Touch, index: tuple[int, ...]) -> tuple[bool, Number | None]:
    """Whether an element is among those touched, and its value, if that is known."""
    position = 0
    for (low, high), at in zip(touch.box, index, strict=True):
        if not low <= at < high:
            return False, None
        position = position * (high - low) + at - low
    if touch.elements is not None:
        at = bisect_left(touch.elements, position)
        if at == len(touch.elements) or touch.elements[at] != position:
            return False, None
        position = at
    return True, None if touch.values is None else touch.values[position]


def _bits(value: Number | None) -> bytes:
    if value is None:
        return struct.pack("<I", _NOTHING)
    if isinstance(value, float) and math.isnan(value):
        return struct.pack("<f", math.nan)  # whatever its bits: memory that nothing wrote may hold _NOTHING
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))
