"""``trace``: what one block of a live kernel does, step by step, as a page in the notebook."""

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from grader import catalog
from grader.capture.format import Capture
from grader.capture.tracing import trace as trace_kernel
from grader.catalog import Group, Kernel, Lab, Shape, at_defaults
from grader.judge.submission import Submission
from grader.messages import _
from grader.report import trace_page, trace_text
from grader.student.checking import cells, display_page, in_notebook, name_of, show_finding
from grader.verdict import Finding, Unusable
from grader.verdict.trace import BlockTrace

#: Whatever is traced is traced with the same inputs each time.
SEED = "trace"


def show_trace(
    kernel: Any, block: tuple[int, ...], shape: str | Mapping[str, int] | None, schedule: Mapping[str, Any]
) -> None:
    name = name_of(kernel)
    try:
        lab, wanted = catalog.find_kernel(name)
    except KeyError as error:
        show_finding(Finding(error.args[0], _("Pass the kernel's function itself, for instance trace(matmul).")))
        return
    try:
        at = shape_of(wanted, shape)
        sources = cells()
        given = _with(kernel, schedule, name)
        found = trace_kernel(given, wanted, at, {source.file for source in sources}.__contains__)
        capture = Capture(lab.id, lab.version, (found,), tuple(sources), sandbox="notebook")
        trace = block_trace(capture, lab, name, at, block)
    except Unusable as error:
        show_finding(error.finding)
        return
    if in_notebook():
        display_page(trace_page.render(trace), trace_text.plain(trace))
    else:
        from rich.console import Console

        trace_text.show(trace, Console())


def _with(kernel: Any, schedule: Mapping[str, Any], name: str) -> Any:
    """The kernel with arguments of its own. Raises Unusable if it doesn't take them."""
    if not schedule:
        return kernel
    takes = list(kernel.signature.parameters) if hasattr(kernel, "signature") else None
    unknown = [argument for argument in schedule if takes is not None and argument not in takes]
    if unknown:
        raise Unusable(
            Finding(
                _("'{kernel}' takes no '{argument}'.").format(kernel=name, argument=unknown[0]),
                _("It takes: {known}.").format(known=", ".join(takes)),
            )
        )
    return functools.partial(kernel, **schedule)


def block_trace(capture: Capture, lab: Lab, name: str, shape: Shape, block: tuple[int, ...]) -> BlockTrace:
    """What a block of a captured kernel does at ``shape``. Raises Unusable."""
    return Submission(capture, only(lab, name, shape), None, SEED).trace(name, shape, indices(block))


def indices(block: object) -> tuple[int, ...]:
    """A block's indices, x first. Raises Unusable if ``block`` is something else."""
    if isinstance(block, tuple) and 1 <= len(block) <= 3 and all(type(index) is int for index in block):
        return block
    raise Unusable(
        Finding(
            _("'{block}' is no block.").format(block=block),
            _("Name its indices, x first: block=(0, 1), or block=(3,) where the grid has one dimension."),
        )
    )


def only(lab: Lab, name: str, shape: Shape) -> Lab:
    """The lab with this kernel at this shape and nothing else."""
    return replace(lab, kernels=(replace(at_defaults(lab.kernel(name)), shapes=(shape,)),))


def shape_of(kernel: Kernel, asked: str | Mapping[str, int] | None) -> Shape:
    """A shape by its name, of sizes of one's own, or the first that the lab has. Raises Unusable."""
    if asked is None:
        return kernel.shapes[0]
    if isinstance(asked, str):
        try:
            return kernel.shape(asked)
        except KeyError:
            known = ", ".join(f"'{shape.name}' ({shape})" for shape in kernel.shapes)
            raise Unusable(
                Finding(
                    _("'{kernel}' has no shape '{shape}'.").format(kernel=kernel.name, shape=asked),
                    _("Its shapes are: {known}. Sizes of your own go as {example}.").format(
                        known=known, example=_example(kernel)
                    ),
                )
            ) from None
    names = set(kernel.shapes[0].sizes)
    sizes = dict(asked) if isinstance(asked, Mapping) else asked
    if (
        not isinstance(sizes, dict)
        or set(sizes) != names
        or not all(type(size) is int and 1 <= size <= 2**20 for size in sizes.values())
    ):
        raise Unusable(
            Finding(
                _("These are no sizes for '{kernel}': {sizes}.").format(kernel=kernel.name, sizes=sizes),
                _("It needs {names}, each a whole number above 0: {example}.").format(
                    names=", ".join(kernel.shapes[0].sizes), example=_example(kernel)
                ),
            )
        )
    return Shape("own", sizes, Group.TILES)


def _example(kernel: Kernel) -> str:
    return "shape={" + ", ".join(f'"{name}": {size}' for name, size in kernel.shapes[0].sizes.items()) + "}"
