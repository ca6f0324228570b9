"""The parts of TileLang that the labs use, on one page, as text and as HTML. They stand in ``cheatsheet.toml``."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from grader.messages import _


@dataclass(frozen=True)
class Call:
    """A form of TileLang's, what it does, and the number of the lab that first uses it."""

    form: str
    does: str
    lab: int


@dataclass(frozen=True)
class Section:
    title: str
    calls: tuple[Call, ...]


@cache
def sections() -> tuple[Section, ...]:
    data = tomllib.loads(Path(__file__).with_name("cheatsheet.toml").read_text())
    return tuple(Section(one["title"], tuple(Call(*row) for row in one["rows"])) for one in data["section"])


def render() -> RenderableType:
    """For a terminal."""
    tables = []
    for section in sections():
        table = Table(
            title=_(section.title), title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0)
        )
        table.add_column(ratio=4)
        table.add_column(ratio=5)
        table.add_column(justify="right", no_wrap=True)
        for call in section.calls:
            table.add_row(Text(call.form, "bold"), Text(_(call.does)), Text(_lab(call), "dim"))
        tables += [table, Text()]
    return Group(*tables)


def page() -> str:
    """A page of HTML by itself: no script, nothing fetched, readable in print and in both themes."""
    title = _("TileLang on one page")
    return f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>{html()}</html>"


def html() -> str:
    """A piece of HTML for a notebook."""
    return _STYLE + '<div class="tilelab-sheet">' + "".join(_section(one) for one in sections()) + "</div>"


def _section(section: Section) -> str:
    return f"<table><caption>{escape(_(section.title))}</caption>{''.join(_rows(section))}</table>"


def _rows(section: Section) -> Iterator[str]:
    for call in section.calls:
        form, does = escape(call.form), escape(_(call.does))
        yield f'<tr><th scope="row"><code>{form}</code></th><td>{does}</td><td class="lab">{_lab(call)}</td></tr>'


def _lab(call: Call) -> str:
    return _("lab {number:02d}").format(number=call.lab)


_STYLE = """
<style>
.tilelab-sheet { font-family: var(--jp-ui-font-family, system-ui, sans-serif); font-size: 14px; line-height: 1.45;
  max-width: 62rem; color-scheme: light dark; }
.tilelab-sheet table { border-collapse: collapse; width: 100%; margin: 0 0 1.2em; break-inside: avoid; }
.tilelab-sheet caption { text-align: left; font-weight: 600; padding: .2em 0; }
.tilelab-sheet th, .tilelab-sheet td { text-align: left !important; vertical-align: top;
  padding: .25em .8em .25em 0; font-weight: normal; border-bottom: 1px solid var(--jp-border-color2, #9996); }
.tilelab-sheet th { width: 42%; } .tilelab-sheet code { font-size: 13px; white-space: pre-wrap; }
.tilelab-sheet .lab { white-space: nowrap; opacity: .75; text-align: right !important; width: 1%; }
</style>
"""
