"""The record of a block as text, for the terminal and for where no HTML is shown."""

from math import prod

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.messages import _
from grader.report import trace_words as words
from grader.report.text import describe, printable
from grader.verdict.trace import BlockTrace, Step, Touch

MOST_ROWS, MOST_COLUMNS = 16, 6  # of a tile whose values are printed: a line fits 80 columns


def show(trace: BlockTrace, console: Console) -> None:
    """Every step on a line: where, what, with which variables, what it reads and writes."""
    table = Table(title=Text(printable(words.title(trace))), title_justify="left")
    table.add_column(_("step"), justify="right", no_wrap=True)
    table.add_column(_("line"), ratio=3)
    table.add_column(_("variables"), ratio=2)
    table.add_column(_("reads"), ratio=3)
    table.add_column(_("writes"), ratio=3)
    for number, step in enumerate(trace.steps, start=1):
        table.add_row(
            str(number),
            Text(printable(f"{words.line(step)}\n{words.place(step)}".strip())),
            Text(printable(words.variables(step))),
            *(
                Text(printable("\n".join(words.region(trace.buffers[touch.buffer], touch) for touch in touches)))
                for touches in (step.reads, step.writes)
            ),
        )
    console.print(table)
    _remarks(trace, console)


def show_step(trace: BlockTrace, number: int, console: Console) -> None:
    """One step, with the values that it read and wrote: of large tiles the first rows and columns."""
    step = trace.steps[number - 1]
    console.print(Text(printable(words.title(trace)), style="bold"))
    heading = _("Step {number}: {line}").format(number=number, line=words.line(step))
    console.print(Text(printable(heading), style="bold"))
    for text in (words.place(step), words.variables(step)):
        if text:
            console.print(Text(printable(text)))
    for label, touches in ((_("read"), step.reads), (_("written"), step.writes)):
        for touch in touches:
            place = words.region(trace.buffers[touch.buffer], touch)
            console.print(
                Text(printable(f"\n{label}: {place}"), style="cyan" if touches is step.reads else "yellow")
            )
            console.print(Text(_values(touch)))
    _remarks(trace, console)


def _remarks(trace: BlockTrace, console: Console) -> None:
    for fault in trace.faults:
        console.print(Text(describe(fault), style="red"))
    for note in trace.notes:
        console.print(Text(note))


def _values(touch: Touch) -> str:
    if touch.values is None:
        return _("(values left out)")
    extents = [high - low for low, high in touch.box]
    columns, rows = extents[-1], prod(extents[:-1])
    known = dict(zip(touch.elements or range(touch.count), touch.values, strict=True))
    lines = []
    for row in range(min(rows, MOST_ROWS)):
        cells = [known.get(row * columns + column) for column in range(min(columns, MOST_COLUMNS))]
        line = " ".join(f"{'·' if value is None else words.number(value):>10}" for value in cells)
        lines.append(line + (" …" if columns > MOST_COLUMNS else ""))
    if rows > MOST_ROWS:
        lines.append("…".rjust(10))
    return "\n".join(lines)


def plain(trace: BlockTrace) -> str:
    """The steps, a line each."""
    lines = [words.title(trace)]
    lines += [f"{number:4}  {_plain(trace, step)}" for number, step in enumerate(trace.steps, start=1)]
    lines += [describe(fault) for fault in trace.faults]
    return printable("\n".join([*lines, *trace.notes]))


def _plain(trace: BlockTrace, step: Step) -> str:
    parts = [words.line(step), words.variables(step)]
    for label, touches in ((_("reads"), step.reads), (_("writes"), step.writes)):
        if touches:
            regions = ", ".join(words.region(trace.buffers[touch.buffer], touch) for touch in touches)
            parts.append(f"{label} {regions}")
    return "  |  ".join(part for part in parts if part)
