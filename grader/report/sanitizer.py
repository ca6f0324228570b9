"""What compute-sanitizer found, in the terminal: a table of its tools for each kernel."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from grader.messages import _
from grader.report.text import describe, printable
from grader.verdict.sanitized import Sanitized, ToolRun


def render(kernels: tuple[Sanitized, ...]) -> RenderableType:
    return Group(*map(_kernel, kernels))


def _kernel(kernel: Sanitized) -> RenderableType:
    title = _("{kernel} under compute-sanitizer, at {shapes}").format(
        kernel=kernel.kernel, shapes="; ".join(kernel.shapes)
    )
    table = Table(title=Text(printable(title)), title_justify="left", show_lines=True)
    table.add_column(_("tool"), no_wrap=True)
    table.add_column(_("found"), ratio=1)
    for tool in kernel.tools:
        table.add_row(tool.tool, _found(tool))
    return table


def _found(tool: ToolRun) -> Text:
    text = Text(_("looks for: {about}").format(about=tool.about), style="bold")
    if not tool.findings:
        return text.append("\n" + _("nothing found"), style="not bold green")
    for finding in tool.findings:
        text.append("\n" + describe(finding), style="not bold red")
    return text
