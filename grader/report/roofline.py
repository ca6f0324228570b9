"""What a kernel moves and computes, and its rooflines, as tables in the terminal and in a notebook."""

import io
from dataclasses import dataclass
from html import escape

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from grader.messages import _
from grader.report.text import printable
from grader.verdict.chart import Chart, Point, Role, Work
from grader.verdict.traffic import Bound, BufferTraffic, CardBounds, Counted, Kind, Traffic


@dataclass(frozen=True)
class _Rows:
    """A table: texts only. The first column is left-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def show(counted: Counted, console: Console) -> None:
    console.print(render(counted))


def render(counted: Counted) -> RenderableType:
    parts: list[RenderableType] = [Text(printable(_title(counted)), style="bold")]
    for rows in _tables(counted):
        table = Table(title=Text(rows.title), title_justify="left")
        for number, column in enumerate(rows.columns):
            table.add_column(column, justify="right" if number else "left", overflow="fold")
        for row in rows.rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        parts.append(table)
    parts += [Text(printable(sentence)) for sentence in _sentences(counted)]
    return Group(*parts)


def plain(counted: Counted) -> str:
    """As in the terminal, for where no HTML is shown."""
    out = io.StringIO()
    show(counted, Console(file=out, width=120, force_jupyter=False, color_system=None))
    return out.getvalue()


_STYLE = """
<style>
.tilelab-roofline { font-family: var(--jp-ui-font-family, sans-serif); font-size: 14px; line-height: 1.5; }
.tilelab-roofline table { border-collapse: collapse; margin: .6em 0; }
.tilelab-roofline caption { text-align: left; font-weight: 600; padding: .2em 0; color: inherit; }
.tilelab-roofline th, .tilelab-roofline td { text-align: right !important; padding: .25em .8em;
  border-bottom: 1px solid var(--jp-border-color2, #bbb); font-variant-numeric: tabular-nums; }
.tilelab-roofline th:first-child, .tilelab-roofline td:first-child { text-align: left !important; }
</style>
"""


def page(counted: Counted) -> str:
    """A piece of HTML for a notebook."""
    parts = [_STYLE, f'<div class="tilelab-roofline"><strong>{escape(_title(counted))}</strong>']
    for rows in _tables(counted):
        head = "".join(f'<th scope="col">{escape(column)}</th>' for column in rows.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(printable(cell))}</td>" for cell in row) + "</tr>" for row in rows.rows
        )
        parts.append(
            f"<table><caption>{escape(rows.title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )
    parts += [f"<p>{escape(printable(sentence))}</p>" for sentence in _sentences(counted)]
    return "".join(parts) + "</div>"


def chart(counted: Counted) -> Chart | None:
    """The kernel's bounds below the roofs of the first card that is fit for it; None without any operation."""
    for card in counted.cards:
        if card.asked is not None and card.distinct is not None and card.distinct.tflops > 0:
            bounds = ((_("if each byte comes once"), card.distinct), (_("if no cache helps"), card.asked))
            points = tuple(
                Point(name, _bound(bound), bound.tflops * 1e3 / bound.gbs, bound.tflops, Role.BOUND)
                for name, bound in bounds
            )
            title = _("{kernel} at {shape}, on {card}").format(
                kernel=counted.kernel, shape=counted.shape, card=card.card
            )
            return Chart(title, card.roofs, (Work(counted.kernel, points),))
    return None


# What they say


def _title(counted: Counted) -> str:
    return _("{kernel} at {shape}").format(kernel=counted.kernel, shape=counted.shape)


def _tables(counted: Counted) -> list[_Rows]:
    traffic = counted.traffic
    tables = [
        _Rows(
            _("Bytes, over all blocks"),
            (_("buffer"), _("memory"), _("size"), _("read"), _("written"), _("times each byte is read")),
            tuple(_buffer(buffer) for buffer in traffic.buffers),
        )
    ]
    if traffic.copies:
        copies = tuple((f"{item.source} → {item.target}", size(item.bytes)) for item in traffic.copies)
        tables.append(_Rows(_("Of these by T.copy"), (_("direction"), _("bytes")), copies))
    if traffic.operations:
        operations = tuple((_kind(item.kind), item.dtype, f"{item.count:,}") for item in traffic.operations)
        tables.append(_Rows(_("Operations"), (_("kind"), _("of"), _("count")), operations))
    if counted.cards:
        columns = (
            _("card"),
            _("if each byte comes once"),
            _("limited by"),
            _("if no cache helps"),
            _("limited by"),
        )
        cards = tuple(_card(card, traffic) for card in counted.cards)
        tables.append(_Rows(_("How fast a card could be, by its datasheet"), columns, cards))
    return tables


def _buffer(buffer: BufferTraffic) -> tuple[str, ...]:
    reread = "" if buffer.reread is None else f"{buffer.reread:.4g}"
    written = size(buffer.written) if buffer.written else ""
    return buffer.name, buffer.scope, size(buffer.size), size(buffer.read) if buffer.read else "", written, reread


def _kind(kind: Kind) -> str:
    words = {
        Kind.GEMM: _("matrix products"),
        Kind.ADD: _("additions, subtractions"),
        Kind.MULTIPLY: _("multiplications"),
        Kind.DIVIDE: _("divisions"),
        Kind.EXTREME: _("minima, maxima"),
        Kind.FUNCTION: _("functions (exp, log, …)"),
        Kind.REDUCE: _("steps of reductions"),
        Kind.ATOMIC: _("atomic updates"),
        Kind.COMPARE: _("comparisons"),
        Kind.INTEGER: _("arithmetic on integers from memory"),
    }
    return words[kind]


def _card(card: CardBounds, traffic: Traffic) -> tuple[str, ...]:
    if card.asked is None or card.distinct is None:
        return card.card, card.lacking, "", "", ""
    cells = [card.card]
    for bound in (card.distinct, card.asked):
        cells += [_bound(bound), _limit(bound)]
    return tuple(cells)


def _bound(bound: Bound) -> str:
    rate = f"{bound.gbs:.0f} GB/s" if bound.limit == "memory" else f"{bound.tflops:.4g} TFLOP/s"
    return f"{duration(bound.seconds)} ({rate})"


def _limit(bound: Bound) -> str:
    return {"memory": _("memory"), "tensor cores": _("tensor cores"), "arithmetic": _("arithmetic")}[bound.limit]


def _sentences(counted: Counted) -> list[str]:
    traffic = counted.traffic
    said = [
        _("{blocks} blocks of {threads} threads; shared memory of a block: {shared}{staged}.").format(
            blocks=f"{traffic.blocks:,}",
            threads=traffic.threads,
            shared=size(traffic.shared),
            staged=""
            if traffic.staged == traffic.shared
            else _(", up to {size} with the pipeline's stages").format(size=size(traffic.staged)),
        )
    ]
    if traffic.intensity is not None and traffic.distinct_intensity is not None:
        said.append(
            _(
                "Arithmetic intensity: {asked:.4g} FLOP a byte that the blocks ask for, {distinct:.4g} FLOP a "
                "distinct byte ({flops} FLOP, {bytes}, {least} distinct)."
            ).format(
                asked=traffic.intensity,
                distinct=traffic.distinct_intensity,
                flops=f"{traffic.flops:,}",
                bytes=size(traffic.bytes),
                least=size(traffic.distinct),
            )
        )
    if counted.cards:
        said.append(
            _(
                "The first time is the roof: no kernel that starts with cold caches is faster. In the second, "
                "every byte that a block asks for comes from memory, as if there were no cache; a real kernel is "
                "between the two, or slower. Launching and waiting are in neither: small shapes say little."
            )
        )
    return said


def size(count: int) -> str:
    """Bytes in the largest unit of which there is one."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):.4g} {unit}"
    return f"{count} B"


def duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
