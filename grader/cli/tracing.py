"""``trace``: what one block of a notebook's kernel does, step by step."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from grader.catalog import Lab
from grader.cli.judging import LabOption, NotebookArgument, lab_of, working
from grader.messages import _
from grader.verdict import Finding, Unusable


def trace(
    notebook: NotebookArgument,
    kernel: Annotated[str | None, typer.Option(help="The kernel's name.", show_default="the lab's first")] = None,
    shape: Annotated[
        str | None,
        typer.Option(help="A shape of the lab, or sizes: M=64,N=64,K=32.", show_default="the lab's first"),
    ] = None,
    block: Annotated[str, typer.Option(help="The block's indices, x first.")] = "0,0",
    step: Annotated[int | None, typer.Option(min=1, help="Show this step alone, with its values.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page to this file instead.", show_default=False)
    ] = None,
    lab: LabOption = None,
) -> None:
    """Show what one block of a kernel does, step by step, on the simulator."""
    from grader.capture import capture_notebook
    from grader.report import trace_page, trace_text
    from grader.student.tracing import block_trace, only, shape_of

    which = lab_of(notebook, lab)
    wanted = which.kernel(kernel_of(which, kernel))
    at = shape_of(wanted, sizes_of(shape))
    with working(_("Tracing {notebook} ...").format(notebook=notebook.name)):
        capture = capture_notebook(notebook, only(which, wanted.name, at))
        traced = block_trace(capture, which, wanted.name, at, _indices(block))
    if html is not None:
        html.write_text(_page(trace_page.render(traced), wanted.name), encoding="utf-8")
        typer.echo(_("Wrote {path}.").format(path=html))
        return
    if step is None:
        trace_text.show(traced, Console())
        return
    if step > len(traced.steps):
        raise Unusable(
            _("There is no step {step}: the block has {count}.").format(step=step, count=len(traced.steps))
        )
    trace_text.show_step(traced, step, Console())


def kernel_of(lab: Lab, name: str | None) -> str:
    names = [kernel.name for kernel in lab.kernels]
    if name is None:
        return names[0]
    if name not in names:
        raise Unusable(
            _("{lab} has no kernel '{name}'. Its kernels are: {known}.").format(
                lab=lab.id, name=name, known=", ".join(names)
            )
        )
    return name


def sizes_of(text: str | None) -> str | dict[str, int] | None:
    """``M=64,N=64`` as sizes; anything without '=' is a shape's name."""
    if text is None or "=" not in text:
        return text
    try:
        return {name.strip(): int(size) for name, size in (item.split("=") for item in text.split(","))}
    except ValueError:
        raise Unusable(
            Finding(_("'{text}' are no sizes.").format(text=text), _("Write them as --shape M=64,N=64,K=32."))
        ) from None


def _indices(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(index) for index in text.split(","))
    except ValueError:
        raise Unusable(
            Finding(_("'{text}' is no block.").format(text=text), _("Write its indices as --block 0,1."))
        ) from None


def _page(fragment: str, title: str) -> str:
    """A document of its own, light or dark as the reader's system is."""
    return (
        '<!doctype html><html><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f"<title>{title}</title></head>"
        '<body style="margin: 1.5em; background: Canvas; color: CanvasText">'
        '<script>document.body.dataset.jpThemeLight = String(!matchMedia("(prefers-color-scheme: dark)").matches);'
        "</script>"
        "<style>.tilelab-trace { --jp-content-font-color1: CanvasText; }"
        "@media (prefers-color-scheme: dark) { .tilelab-trace { --jp-layout-color2: #2c2c30;"
        " --jp-border-color1: #5a5a5e; } }</style>"
        f"{fragment}</body></html>"
    )
