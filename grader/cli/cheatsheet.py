"""``cheatsheet``: TileLang on one page."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from grader.cli.outputs import must_be_writable, write
from grader.messages import _


def cheatsheet(
    html: Annotated[Path | None, typer.Option(help="Write a page of HTML here.", show_default=False)] = None,
) -> None:
    """Show the parts of TileLang that the labs use, on one page."""
    from grader.report import cheatsheet as sheet

    must_be_writable(html)
    if html is None:
        Console().print(sheet.render())
    else:
        write(html, sheet.page())
        typer.echo(_("Wrote {path}.").format(path=html))
