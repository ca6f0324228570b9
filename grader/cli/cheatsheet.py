"""``cheatsheet``: TileLang on one page."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from grader.messages import _


def cheatsheet(
    html: Annotated[Path | None, typer.Option(help="Write a page of HTML here.", show_default=False)] = None,
) -> None:
    """Show the parts of TileLang that the labs use, on one page."""
    from grader.report import cheatsheet as sheet

    if html is None:
        Console().print(sheet.render())
    else:
        html.write_text(sheet.page())
        typer.echo(_("Wrote {path}.").format(path=html))
