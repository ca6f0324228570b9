"""``compile``: is a kernel fit for an architecture, and which instructions does it become? With no GPU."""

from typing import Annotated

import typer
from rich.console import Console

from grader.catalog import Group, Kernel, Lab, Shape, at_schedules
from grader.cli.judging import JsonOption, LabOption, NotebookArgument, lab_of, working
from grader.gpu.architectures import ARCHITECTURES
from grader.messages import _
from grader.verdict import Unusable

ALL = "all"
DEFAULT = ("sm_80", "sm_90a")


def compile(
    notebook: NotebookArgument,
    kernel: Annotated[str | None, typer.Option(help="The kernel, if the lab has several.")] = None,
    shape: Annotated[
        str | None,
        typer.Option(help="A shape of the lab by name, or 'all'.", show_default="the one that is timed"),
    ] = None,
    arch: Annotated[
        list[str] | None,
        typer.Option(
            help=f"An architecture, may be repeated: {', '.join(ARCHITECTURES)}, or 'all'.",
            show_default=" and ".join(DEFAULT),
        ),
    ] = None,
    lab: LabOption = None,
    source: Annotated[bool, typer.Option("--source", help="Print the CUDA source too.")] = False,
    json: JsonOption = False,
) -> None:
    """Compile a notebook's kernel for an architecture, with no GPU: instructions, shared memory, registers."""
    from grader.capture import capture_notebook
    from grader.judge.compiled import compile_capture
    from grader.report.compilation import render
    from grader.verdict.compilation import to_json

    which = lab_of(notebook, lab)
    wanted = _kernel(which, kernel)
    architectures = _architectures(arch)
    if wanted.schedules is None:
        _shapes(wanted, shape)  # a name that isn't one is said before anything is run
    with working(_("Compiling {notebook} ...").format(notebook=notebook.name), quiet=json):
        capture = capture_notebook(notebook, which)
        wanted = at_schedules(which, capture.plain_values).kernel(wanted.name)
        if not wanted.shapes:
            names = _("'{tried}' and '{timed}'").format(**vars(wanted.schedules))
            raise Unusable(_("{names} name no schedules yet; 'tilelab check' says why.").format(names=names))
        compilations = compile_capture(capture, wanted, _shapes(wanted, shape), architectures)
    if json:
        typer.echo(to_json(compilations))
    else:
        console = Console()
        console.print(render(compilations))
        for compilation in compilations if source else ():
            console.rule(f"{compilation.shape}, {compilation.arch}")
            console.print(compilation.source, markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(0 if all(compilation.compiles for compilation in compilations) else 1)


def _kernel(lab: Lab, name: str | None) -> Kernel:
    names = [kernel.name for kernel in lab.kernels]
    if name is None and len(names) == 1:
        return lab.kernels[0]
    if name not in names:
        raise Unusable(
            _("Which kernel? {lab} has {names}; name it with --kernel.").format(lab=lab.id, names=", ".join(names))
        )
    return lab.kernel(name)


def _shapes(kernel: Kernel, name: str | None) -> tuple[Shape, ...]:
    if name == ALL:
        return kernel.shapes
    if name is None:
        return kernel.group(Group.TIMED)[:1] or kernel.shapes[:1]
    try:
        return (kernel.shape(name),)
    except KeyError:
        names = ", ".join(f"'{shape.name}'" for shape in kernel.shapes)
        raise Unusable(
            _("There is no shape '{name}'. The shapes are: {names}.").format(name=name, names=names)
        ) from None


def _architectures(names: list[str] | None) -> tuple[str, ...]:
    if names is None or not names:
        return DEFAULT
    if ALL in names:
        return tuple(ARCHITECTURES)
    for name in names:
        if name not in ARCHITECTURES:
            raise Unusable(
                _("There is no architecture '{name}' here. Known are: {names}.").format(
                    name=name, names=", ".join(ARCHITECTURES)
                )
            )
    return tuple(dict.fromkeys(names))
