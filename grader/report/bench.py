"""What ``tilelab bench`` measured, as a table: in the terminal, as plain lines, and in a notebook."""

import io
from collections.abc import Iterator, Sequence
from html import escape

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from grader.messages import _
from grader.report.text import describe, printable
from grader.verdict.bench import Bench, Measurement, Row, Speed, Trouble
from grader.verdict.chart import Chart, Point, Role, Work

Cells = tuple[str, ...]


def show(bench: Bench, console: Console) -> None:
    """A table with lines on a terminal, aligned plain lines elsewhere."""
    if console.is_terminal:
        console.print(render(bench))
    else:
        console.file.write(plain(bench))


def render(bench: Bench) -> RenderableType:
    table = Table(title=Text(title(bench)), title_justify="left")
    head = _head()
    for number, column in enumerate(head):
        table.add_column(column, justify="left" if number < 2 else "right", overflow="fold")
    for row in bench.rows:
        for number, cells in enumerate(_rows(row)):
            style = "red" if row.trouble is not None else "bold" if number == 0 else ""
            table.add_row(*(Text(printable(cell), style=style) for cell in cells))
        table.add_section()
    return Group(table, *(Text(printable(line)) for line in words(bench)))


def plain(bench: Bench) -> str:
    """Aligned lines: they can be read, searched and compared."""
    rows = [_head(), *(cells for row in bench.rows for cells in _rows(row))]
    rows = [tuple(printable(cell).replace("\n", " ") for cell in cells) for cells in rows]
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(rows[0]))]
    out = io.StringIO()
    print(title(bench), file=out)
    for cells in rows:
        aligned = (
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        print("  ".join(aligned).rstrip(), file=out)
    for line in words(bench):
        print(printable(line), file=out)
    return out.getvalue()


_STYLE = """
<style>
.tilelab-bench { font-family: var(--jp-ui-font-family, sans-serif); font-size: 14px; line-height: 1.5; }
.tilelab-bench table { border-collapse: collapse; margin: .6em 0; }
.tilelab-bench th, .tilelab-bench td { text-align: right !important; padding: .25em .8em;
  border-bottom: 1px solid var(--jp-border-color2, #bbb); font-variant-numeric: tabular-nums;
  white-space: nowrap; }
.tilelab-bench .said { white-space: pre-wrap; }
.tilelab-bench td:nth-child(-n+2), .tilelab-bench th:nth-child(-n+2) { text-align: left !important; }
.tilelab-bench tr.kernel { font-weight: 600; }
</style>
"""


def page(bench: Bench) -> str:
    """A piece of HTML for a notebook."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in _head())
    body = ""
    for row in bench.rows:
        for number, cells in enumerate(_rows(row)):
            kind = "" if number else ' class="kernel"'
            body += f"<tr{kind}>" + "".join(f"<td>{escape(printable(cell))}</td>" for cell in cells) + "</tr>"
    said = "".join(f'<div class="said">{escape(printable(line))}</div>' for line in words(bench))
    return (
        f'{_STYLE}<div class="tilelab-bench"><strong>{escape(title(bench))}</strong>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{said}</div>"
    )


# What they say


def title(bench: Bench) -> str:
    return _("Kernels beside libraries on {card}").format(card=bench.card)


def _head() -> Cells:
    return (
        _("work"),
        _("launch"),
        _("time, ms"),
        _("rate"),
        _("of ceiling"),
        _("of peak"),
        _("time / kernel's time"),
    )


def _rows(row: Row) -> Iterator[Cells]:
    """The kernel's line, then one for each peer."""
    work = f"{row.kernel}, {row.shape} ({row.sizes})"
    if row.measurement is None:
        yield work, _("kernel"), _trouble(row.trouble), "", "", "", ""
        return
    yield work, _("kernel"), *_speed(row, row.measurement.kernel), ""
    for peer in row.measurement.peers:
        if peer.speed is None or peer.ratio is None:
            yield "", peer.name, _("not here"), "", "", "", ""
        else:
            ratio = f"{peer.ratio.value:.3f} [{peer.ratio.low:.3f}, {peer.ratio.high:.3f}]"
            yield "", peer.name, *_speed(row, peer.speed), ratio


def _trouble(trouble: Trouble | None) -> str:
    return {
        Trouble.WRONG: _("wrong"),
        Trouble.FAILED: _("failed"),
        Trouble.NOT_MEASURED: _("not measured"),
        Trouble.OURS: _("judge failed"),
        None: "",
    }[trouble]


def _speed(row: Row, speed: Speed) -> Cells:
    ms = _("{ms:.4g} ± {share:.1%}").format(ms=speed.ms.value, share=speed.ms.half_width)
    return ms, rate(row, speed.rate), _share(speed.of_ceiling), _share(speed.of_peak)


def rate(row: Row, value: float) -> str:
    return f"{value:.0f} {row.unit}" if value >= 100 else f"{value:.3g} {row.unit}"


def _share(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def words(bench: Bench) -> list[str]:
    """What else is to know: troubles, how it was measured, the card's state, versions."""
    said = []
    for row in bench.rows:
        name = f"{row.lab}, {row.kernel}, {row.shape}"
        if row.measurement is not None:
            said.append(f"{name}: {_how(row, row.measurement)}")
            said += [f"  {warning}" for warning in warnings(row.measurement)]
        else:
            found = "" if row.finding is None else describe(row.finding)
            said.append(f"{name}: {_trouble(row.trouble)}: {found}")
    said.append(
        _(
            "Intervals hold with 95 %. The ceiling is what this kind of card was measured to reach, the peak its "
            "datasheet's."
        )
    )
    versions = ", ".join(f"{name} {version}" for name, version in sorted(bench.versions.items()))
    said.append(_("{source}; {date}; {versions}").format(source=bench.source, date=bench.date, versions=versions))
    return said


def _how(row: Row, measured: Measurement) -> str:
    state = measured.state
    text = _(
        "{rounds} rounds by {clock} (less {overhead:.1f} µs), {intensity:.4g} operations a byte, {low}–{high} "
        "MHz, {celsius} °C, {watts:.0f} W"
    )
    return text.format(
        rounds=measured.rounds,
        clock=measured.clock,
        overhead=measured.overhead_ms * 1e3,
        intensity=row.intensity,
        low=state.sm_mhz[0],
        high=state.sm_mhz[1],
        celsius=state.celsius[1],
        watts=state.watts,
    )


WIDE = 0.011  # of a ratio's interval, on each side: more than it was to be


def warnings(measured: Measurement) -> list[str]:
    """Why a measurement may say less than it should."""
    said = list(measured.warnings)
    said += [_("not known of the card: {what}").format(what=what) for what in measured.state.unknown]
    for peer in measured.peers:
        if peer.note:
            said.append(f"{peer.name}: {peer.note}")
        if peer.ratio is not None and peer.ratio.half_width > WIDE:
            said.append(
                _("the ratio to {peer} is known to ±{share:.1%} only: time was up").format(
                    peer=peer.name, share=peer.ratio.half_width
                )
            )
    return [*said, *measured.notes]


def chart(bench: Bench) -> Chart:
    """The measurements below the card's roofs."""
    works, left_out = [], []
    for row in bench.rows:
        name = f"{row.kernel}, {row.shape}"
        if row.measurement is None:
            left_out.append(f"{name}: {_trouble(row.trouble)}.")
        elif row.operations == 0:
            left_out.append(_("{work} has no operations, and so no place here.").format(work=name))
        else:
            works.append(Work(name, tuple(_points(row, row.measurement))))
    return Chart(title(bench), bench.roofs, tuple(works), tuple(left_out))


def _points(row: Row, measured: Measurement) -> Iterator[Point]:
    launches: Sequence[tuple[str, Speed | None, Role]] = [
        (_("kernel"), measured.kernel, Role.KERNEL),
        *((peer.name, peer.speed, Role.PEER) for peer in measured.peers),
    ]
    for name, speed, role in launches:
        if speed is not None:
            tflops = row.operations / speed.ms.value / 1e9
            yield Point(name, rate(row, speed.rate), row.intensity, tflops, role)
