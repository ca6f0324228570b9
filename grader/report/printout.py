"""What T.print printed on the simulator, as a table in a notebook and in the terminal."""

import io
from html import escape

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from grader.messages import _
from grader.report.text import printable
from grader.verdict.printout import Number, Printed, Printout

MOST_VALUES = 16  # of a row
MOST_ROWS = 200


def plain(found: Printout) -> str:
    """As in the terminal, for where no HTML is shown."""
    out = io.StringIO()
    show(found, Console(file=out, width=120, force_jupyter=False, color_system=None))
    return out.getvalue()


def show(found: Printout, console: Console) -> None:
    console.print(render(found))


def render(found: Printout) -> RenderableType:
    table = Table(title=Text(printable(_title(found))), title_justify="left")
    for column in _columns():
        table.add_column(column, overflow="fold")
    for row in found.printed[:MOST_ROWS]:
        table.add_row(*(Text(cell) for cell in _cells(row)))
    return Group(*([table] if found.printed else []), *(Text(sentence) for sentence in _sentences(found)))


_STYLE = """
<style>
.tilelab-printout { font-family: var(--jp-ui-font-family, sans-serif); font-size: 14px; line-height: 1.5; }
.tilelab-printout table { border-collapse: collapse; margin: .4em 0; table-layout: auto; }
.tilelab-printout caption { text-align: left; font-weight: 600; padding: .2em 0; color: inherit; }
.tilelab-printout th, .tilelab-printout td { text-align: left !important; vertical-align: top;
  padding: .25em .8em; border-bottom: 1px solid var(--jp-border-color2, #bbb); white-space: normal; }
.tilelab-printout td:last-child { font-family: var(--jp-code-font-family, monospace); }
</style>
"""


def page(found: Printout) -> str:
    """A piece of HTML for a notebook."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in _columns())
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(row)) + "</tr>"
        for row in found.printed[:MOST_ROWS]
    )
    caption = escape(printable(_title(found)))
    table = f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in _sentences(found))
    return f'{_STYLE}<div class="tilelab-printout">{table if found.printed else ""}{sentences}</div>'


def _title(found: Printout) -> str:
    return _("{kernel} at {shape}: what T.print printed on the simulator").format(**vars(found))


def _columns() -> tuple[str, ...]:
    return _("block"), _("where"), _("what"), _("values")


def _cells(row: Printed) -> tuple[str, ...]:
    block = "(" + ", ".join(map(str, row.block)) + ")"
    return block, str(row.where or ""), printable(row.what), _values(row.values)


def _values(values: tuple[Number, ...]) -> str:
    text = ", ".join(_number(value) for value in values[:MOST_VALUES])
    if len(values) <= MOST_VALUES:
        return text
    return _("{first}, … ({count} values, from {low} to {high})").format(
        first=text, count=len(values), low=_number(min(values)), high=_number(max(values))
    )


def _number(value: Number) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _sentences(found: Printout) -> list[str]:
    said = []
    if not found.printed and not found.left_out:
        text = _("'{kernel}' printed nothing: it has no T.print, or no block came to it.")
        said.append(text.format(kernel=found.kernel))
    if len(found.printed) > MOST_ROWS:
        text = _("These are the first {shown} of {all}. Take a smaller shape, or one block: block=(0,).")
        said.append(text.format(shown=MOST_ROWS, all=len(found.printed)))
    if found.left_out:
        text = _("{count} further values were printed, and not kept. Take a smaller shape or smaller tiles.")
        said.append(text.format(count=found.left_out))
    return said
