"""The CUDA source of a kernel in a notebook and in the terminal: its landmarks in a table, and marked in the text.

A landmark's name stands beside each line that has one; colour only repeats it.
"""

import io
from collections.abc import Iterator
from html import escape
from itertools import groupby

from pygments.lexers import CudaLexer
from pygments.token import Token
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from grader.messages import _
from grader.report.text import describe, printable
from grader.verdict.compilation import GlobalAccess
from grader.verdict.cuda import CudaSource

MOST_LINES = 2_000  # of the definition; more would make a notebook slow to open
MOST_PLACES = 8  # lines that the table names for a landmark


def words() -> dict[str, str]:
    """landmark -> what it does, in a sentence."""
    return {
        "mma": _("A warp multiplies two small tiles on the tensor cores, from registers."),
        "wgmma": _("Four warps multiply large tiles on the tensor cores, straight from shared memory (Hopper)."),
        "tcgen05": _("The tensor cores multiply tiles into a memory of their own (data-centre Blackwell)."),
        "ldmatrix": _("A warp loads small matrices from shared memory to registers, as mma wants them."),
        "stmatrix": _("A warp stores small matrices from registers to shared memory."),
        "cp.async": _("An asynchronous copy from global to shared memory: the thread asks for it and goes on."),
        "TMA load": _("One thread asks the copy engine (TMA) for a whole tile, which arrives in shared memory."),
        "TMA store": _("One thread asks the copy engine (TMA) to write a whole tile to global memory."),
        "mbarrier": _("A barrier in shared memory: threads wait until bytes, or other threads, have arrived."),
        "setmaxnreg": _("Warps that copy give registers to warps that compute."),
        "__syncthreads": _("All threads of the block wait for each other here."),
        "named barrier": _("Some of the block's warps wait for each other here."),
        "warp reduction": _("Threads exchange values without memory, to sum or to compare them."),
        "atomic": _("Read, change and write in one go, so that no other thread comes between."),
    }


def plain(found: CudaSource) -> str:
    """As in the terminal, for where no HTML is shown."""
    out = io.StringIO()
    show(found, Console(file=out, width=120, force_jupyter=False, color_system=None))
    return out.getvalue()


def show(found: CudaSource, console: Console) -> None:
    console.print(render(found))
    width = max((len(mark.name) for mark in found.marks), default=0)
    for number, text in _lines(found):
        names = ", ".join(_names(found, number))
        line = Text.assemble((f"{number:5d} ", "dim"), (f"{names:{width}s} | ", "bold"), printable(text))
        console.print(line, soft_wrap=True)


def render(found: CudaSource) -> RenderableType:
    """What stands above the source."""
    table = Table(title=Text(printable(_title(found))), title_justify="left")
    for column in (_("landmark"), _("places"), _("lines"), _("what it is")):
        table.add_column(column, overflow="fold")
    for name, lines in found.places.items():
        table.add_row(name, str(len(lines)), _listed(lines), words()[name])
    parts: list[RenderableType] = [table] if found.marks else [Text(printable(_title(found)), style="bold")]
    return Group(*parts, *(Text(printable(sentence)) for sentence in _sentences(found)))


_STYLE = """
<style>
.tilelab-cuda { font-family: var(--jp-ui-font-family, sans-serif); font-size: 14px; line-height: 1.5;
  --mark: #fff3b0; --gutter: #f6f6f6; --rule: #8a6d00; --keyword: #8000a0; --comment: #5a6b6b; --string: #a02020;
  --quiet: #646464; }
[data-jp-theme-light="false"] .tilelab-cuda { --mark: #4a4010; --gutter: #1c1c1c; --rule: #e0c050;
  --keyword: #d7a0ff; --comment: #9ab0b0; --string: #ff9d8a; --quiet: #a8a8a8; }
.tilelab-cuda table { border-collapse: collapse; margin: .4em 0; table-layout: auto; }
.tilelab-cuda caption { text-align: left; font-weight: 600; padding: .2em 0; color: inherit; }
.tilelab-cuda th, .tilelab-cuda td { text-align: left !important; vertical-align: top; padding: .25em .8em;
  white-space: normal; border-bottom: 1px solid var(--jp-border-color2, #bbb); }
.tilelab-cuda td:first-child { white-space: nowrap; font-family: var(--jp-code-font-family, monospace); }
.tilelab-cuda p { margin: .3em 0; }
.tilelab-cuda pre { max-height: 32rem; overflow: auto; margin: .4em 0; padding: 0 !important; line-height: 1.4;
  border: 1px solid var(--jp-border-color2, #bbb); font-family: var(--jp-code-font-family, monospace);
  font-size: 13px; color: inherit; background: transparent; }
.tilelab-cuda .line { display: block; width: max-content; min-width: 100%; white-space: pre; }
.tilelab-cuda .gutter { display: inline-block; position: sticky; left: 0; padding: 0 .6em 0 .6em; min-width: 24ch;
  margin-right: .6em; background: var(--gutter); color: var(--quiet); user-select: none; }
.tilelab-cuda .has .gutter { color: inherit; font-weight: 600; box-shadow: inset 4px 0 var(--rule); }
.tilelab-cuda mark { background: var(--mark); color: inherit; font-weight: 600; text-decoration: underline; }
.tilelab-cuda .k { color: var(--keyword); } .tilelab-cuda .c { color: var(--comment); }
.tilelab-cuda .s { color: var(--string); }
</style>
"""


def page(found: CudaSource) -> str:
    """A piece of HTML for a notebook."""
    return "".join(
        (
            _STYLE,
            f'<div class="tilelab-cuda">{_table(found)}',
            *(f"<p>{escape(printable(sentence))}</p>" for sentence in _sentences(found)),
            f'<pre tabindex="0" aria-label="{escape(_("CUDA source"))}">',
            *_code(found),
            "</pre></div>",
        )
    )


def _table(found: CudaSource) -> str:
    title = escape(printable(_title(found)))
    if not found.marks:
        return f"<strong>{title}</strong>"
    columns = (_("landmark"), _("places"), _("lines"), _("what it is"))
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{len(lines)}</td><td>{_listed(lines)}</td>"
        f"<td>{escape(words()[name])}</td></tr>"
        for name, lines in found.places.items()
    )
    return f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _code(found: CudaSource) -> Iterator[str]:
    """The lines, each with its number and the landmarks' names before it."""
    kinds = _kinds("\n".join(text for _number, text in _lines(found)))
    for (number, text), colours in zip(_lines(found), kinds, strict=True):
        names = _names(found, number)
        marked = [False] * len(text)
        for mark in found.marks:
            if mark.line == number:
                marked[mark.start : mark.end] = [True] * (mark.end - mark.start)
        gutter = escape(f"{number:4d} {', '.join(names)}")
        yield (
            f'<span class="line{" has" if names else ""}"><span class="gutter">{gutter}</span>'
            f"{''.join(_runs(text, colours, marked))}\n</span>"
        )


def _runs(text: str, colours: list[str], marked: list[bool]) -> Iterator[str]:
    """A line in pieces of one colour each; what is marked, in ``<mark>``."""
    for is_mark, part in groupby(zip(text, colours, marked, strict=True), key=lambda item: item[2]):
        inner = ""
        for colour, run in groupby(part, key=lambda item: item[1]):
            piece = escape(printable("".join(item[0] for item in run)))
            inner += f'<span class="{colour}">{piece}</span>' if colour else piece
        yield f"<mark>{inner}</mark>" if is_mark else inner


def _kinds(code: str) -> list[list[str]]:
    """The class of each character, line by line: "k"eyword, "c"omment, "s"tring, or none."""
    rows: list[list[str]] = [[]]
    for kind, text in CudaLexer(stripnl=False, ensurenl=False).get_tokens(code):
        for character in text:
            if character == "\n":
                rows.append([])
            else:
                rows[-1].append(_class(kind))
    return rows


def _class(kind) -> str:
    if kind in Token.Comment:
        return "c"
    if kind in Token.Keyword:
        return "k"
    return "s" if kind in Token.Literal.String else ""


def _lines(found: CudaSource) -> list[tuple[int, str]]:
    """The definition's lines, with their numbers."""
    # Split as the places are counted: at "\n" alone.
    lines = [line.replace("\r", "") for line in found.source.rstrip("\n").split("\n")]
    start = found.definition - 1
    return [(number + 1, lines[number]) for number in range(start, min(len(lines), start + MOST_LINES))]


def _names(found: CudaSource, line: int) -> list[str]:
    return list(dict.fromkeys(mark.name for mark in found.marks if mark.line == line))


def _title(found: CudaSource) -> str:
    return _("{kernel} at {shape}, for {arch}: {family}").format(**vars(found))


def _listed(lines: list[int]) -> str:
    """Line numbers, the first of them; a line that has two of a landmark is named once."""
    numbers = list(dict.fromkeys(lines))
    text = ", ".join(map(str, numbers[:MOST_PLACES]))
    return text if len(numbers) <= MOST_PLACES else _("{lines}, …").format(lines=text)


def _sentences(found: CudaSource) -> Iterator[str]:
    if found.marks:
        yield _("A place counts once, however often it runs: it may stand in a loop.")
    else:
        yield _("It has none of the landmarks: no tensor cores, no asynchronous copies, no barriers.")
    yield _("A block has {threads} threads and {shared:,} bytes of shared memory.").format(
        threads=found.threads, shared=found.shared
    )
    accesses = "; ".join(_access(access) for access in found.accesses)
    if accesses:
        yield _("Threads access global memory themselves: {accesses}.").format(accesses=accesses)
    elif any(name.startswith("TMA") for name in found.places):
        yield _("No thread accesses global memory itself: the copy engine does.")
    yield from (describe(finding) for finding in found.findings)
    last = _lines(found)[-1][0]
    all_lines = found.source.rstrip("\n").count("\n") + 1
    if found.definition > 1:
        text = _("Lines 1 to {last} are includes and the kernel's declaration, and are not shown.")
        yield text.format(last=found.definition - 1)
    if last < all_lines:
        yield _("Of {all} lines, those after {last} are not shown.").format(all=all_lines, last=last)


def _access(access: GlobalAccess) -> str:
    text = _("{tensor} is read {bits} bits at a time")
    if access.writes:
        text = _("{tensor} is written {bits} bits at a time")
    return text.format(tensor=access.tensor, bits=access.bits)
