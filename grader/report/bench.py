"""What ``tilelab bench`` measured, as a table: in the terminal, as plain lines, and in a notebook."""

from collections.abc import Iterator, Sequence
from html import escape

from rich.console import Console, Group, RenderableType
from rich.text import Text

from grader.messages import _
from grader.messages.numbers import rate
from grader.report.text import describe, printable
from grader.verdict.bench import Bench, Estimate, Measurement, Row, Speed, Trouble
from grader.verdict.chart import Chart, Point, Role, Work

Cells = tuple[str, ...]


def show(bench: Bench, console: Console) -> None:
    """The same lines everywhere, with colour on a terminal; names are never broken within a word."""
    if console.is_terminal:
        console.print(render(bench))
    else:
        console.file.write(plain(bench))


def render(bench: Bench) -> RenderableType:
    table = (Text(line, style=style) for line, style in _lines(bench))
    return Group(Text(title(bench)), *table, *(Text(printable(line)) for line in words(bench)))


def plain(bench: Bench) -> str:
    """Aligned lines: they can be read, searched and compared."""
    said = [title(bench), *(line for line, _style in _lines(bench)), *map(printable, words(bench))]
    return "\n".join(said) + "\n"


def _lines(bench: Bench) -> Iterator[tuple[str, str]]:
    """The table's lines, each with its style: the head, then each work's name and its launches."""
    head = _head()
    rows = [(row, [tuple(map(_flat, cells)) for cells in _rows(row)]) for row in bench.rows]
    of_all = [head, *(cells for _row, launches in rows for cells in launches)]
    widths = [max(len(cells[column]) for cells in of_all) for column in range(len(head))]

    def aligned(cells: Cells) -> str:
        first, *others = (
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(["  " + first, *others]).rstrip()

    yield aligned(head), ""
    for row, launches in rows:
        style = "red" if row.trouble is not None else ""
        yield _flat(_work(row)), f"bold {style}".rstrip()
        for cells in launches:
            yield aligned(cells), style


def _flat(text: str) -> str:
    return printable(text).replace("\n", " ")


_STYLE = """
<style>
.tilelab-bench { font-family: var(--jp-ui-font-family, sans-serif); font-size: 14px; line-height: 1.5; }
.tilelab-bench table { border-collapse: collapse; margin: .6em 0; }
.tilelab-bench th, .tilelab-bench td { text-align: right !important; padding: .25em .8em;
  border-bottom: 1px solid var(--jp-border-color2, #bbb); font-variant-numeric: tabular-nums;
  white-space: nowrap; }
.tilelab-bench .said { white-space: pre-wrap; }
.tilelab-bench td:first-child, .tilelab-bench th:first-child { text-align: left !important; }
</style>
"""


def page(bench: Bench) -> str:
    """A piece of HTML for a notebook."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in _head())
    body = ""
    for row in bench.rows:
        body += f'<tr><th scope="rowgroup" colspan="{len(_head())}">{escape(printable(_work(row)))}</th></tr>'
        for cells in _rows(row):
            body += "<tr>" + "".join(f"<td>{escape(printable(cell))}</td>" for cell in cells) + "</tr>"
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
        _("launch"),
        _("time, ms"),
        _("rate"),
        _("ceiling"),
        _("peak"),
        _("ratio"),
    )


def _work(row: Row) -> str:
    return _("{kernel}, {shape} ({sizes}), in {unit}").format(
        kernel=row.kernel, shape=row.shape, sizes=row.sizes, unit=row.unit
    )


def _rows(row: Row) -> Iterator[Cells]:
    """The kernel's line, then one for each peer."""
    if row.measurement is None:
        yield _("kernel"), _trouble(row.trouble), "", "", "", ""
        return
    yield _("kernel"), *_speed(row.measurement.kernel), ""
    for peer in row.measurement.peers:
        if peer.speed is None or peer.ratio is None:
            yield peer.name, _("not here"), "", "", "", ""
        else:
            yield peer.name, *_speed(peer.speed), _known_to(peer.ratio, ".3f")


def _trouble(trouble: Trouble | None) -> str:
    return {
        Trouble.WRONG: _("wrong"),
        Trouble.FAILED: _("failed"),
        Trouble.NOT_MEASURED: _("not measured"),
        Trouble.OURS: _("judge failed"),
        None: "",
    }[trouble]


def _speed(speed: Speed) -> Cells:
    return _known_to(speed.ms, ".4g"), rate(speed.rate), _share(speed.of_ceiling), _share(speed.of_peak)


def _known_to(estimate: Estimate, form: str) -> str:
    return f"{estimate.value:{form}} ± {estimate.half_width:.1%}"


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
            "Ceiling: the share of what this kind of card was measured to reach; peak: of its datasheet's. Ratio: "
            "the library's time over the kernel's. Intervals (±) hold with 95 %."
        )
    )
    if any(row.measurement is not None and row.measurement.kernel.of_peak is None for row in bench.rows):
        said.append(_("Peak unknown (–): the course has no datasheet's figure of this card for that work."))
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
            yield Point(name, f"{rate(speed.rate)} {row.unit}", row.intensity, tflops, role)
