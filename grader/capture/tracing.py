"""Traces a kernel at a shape: from a Python object of the student's to TVM's JSON.

Runs in the student's process (the sandbox, or their notebook), so it may believe nothing and be believed in
nothing: what it returns is text that ``grader.admit`` reads.
"""

import contextlib
import functools
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from grader.capture import plain
from grader.capture.format import Handed, Trace, TraceError
from grader.capture.lines import students_lines
from grader.catalog import Kernel, Role, Shape
from grader.messages import _

MAX_MESSAGE = 600


def trace_kernels(
    namespace: Mapping[str, Any], kernels: tuple[Kernel, ...], is_theirs: Callable[[str], bool]
) -> list[Trace]:
    """Every kernel of the lab at every shape. ``is_theirs`` tells which file names are the student's."""
    return [
        trace(namespace.get(kernel.name), kernel, shape, is_theirs)
        for kernel in kernels
        for shape in kernel.shapes
    ]


def hand_in(namespace: Mapping[str, Any], names: Iterable[str]) -> list[Handed]:
    """The lab's values among the student's variables; those that are missing are left out."""
    return [_handed(name, namespace[name]) for name in names if name in namespace]


def _handed(name: str, value: object) -> Handed:
    try:
        return Handed(name, plain.plain(value))
    except plain.NotPlain as error:
        return Handed(name, error=str(error))
    except Exception as error:  # an object of the student's may raise whatever it likes when it is looked at
        return Handed(name, error=_("a {kind}").format(kind=type(error).__name__[:60]))


def trace(target: Any, kernel: Kernel, shape: Shape, is_theirs: Callable[[str], bool]) -> Trace:
    """One kernel at one shape; an error of the student's becomes part of the trace."""
    # TileLang logs its own translation of a kernel that it can't build: hundreds of lines, which bury the verdict.
    logging.disable(logging.CRITICAL)
    try:
        if target is None:
            message = _("The notebook defines no '{name}'. Keep the name that the lab gives.").format(
                name=kernel.name
            )
            return Trace(kernel.name, shape.name, error=TraceError("Missing", message))
        with lines_of_callers():
            function, options = _prim_func(target, kernel, shape)
        from tilelang import tvm

        return Trace(kernel.name, shape.name, ir=tvm.ir.save_json(function), options=options)
    except _NotAKernel as error:
        return Trace(kernel.name, shape.name, error=TraceError("Not a kernel", str(error)))
    except Exception as error:
        return Trace(kernel.name, shape.name, error=describe(error, is_theirs))
    finally:
        logging.disable(logging.NOTSET)


@contextlib.contextmanager
def lines_of_callers() -> Iterator[None]:
    """While this holds, what TileLang's own macros write (T.reduce_max, …) carries the line that calls them.

    Left alone, TileLang gives such statements the line of its own source, which says nothing to a student.
    """
    import tilelang
    from tilelang.language.eager.builder import Builder

    folder = str(Path(tilelang.__file__).parent)
    original = Builder.set_fileline

    def set_fileline(builder: Builder, file: str, line: int, name: str) -> None:
        if not file.startswith(folder):
            original(builder, file, line, name)

    Builder.set_fileline = set_fileline
    try:
        yield
    finally:
        Builder.set_fileline = original


class _NotAKernel(Exception):
    """The student's object can't be asked for a kernel."""


def _prim_func(target: Any, kernel: Kernel, shape: Shape) -> tuple[Any, dict[str, bool | int | str]]:
    import tilelang
    from tilelang.autotuner.tuner import AutoTuneImpl
    from tilelang.jit import JITImpl
    from tilelang.language.eager import PrimFunc

    given: dict[str, object] = {}
    while isinstance(target, AutoTuneImpl) or (isinstance(target, functools.partial) and not target.args):
        if isinstance(target, AutoTuneImpl):
            target = target.jit_impl  # to call it would compile and time every schedule, here
        else:
            given = target.keywords | given
            target = target.func
    if isinstance(target, JITImpl):
        arguments, keywords = _arguments(target, kernel, shape)
        lacking = [name for name in shape.schedule if name not in target.signature.parameters]
        if lacking:
            text = _("'{name}' takes no '{argument}', which the lab's schedules have.")
            raise _NotAKernel(text.format(name=kernel.name, argument=lacking[0]))
        try:
            with students_lines(target):
                made = target.get_tir(*arguments, **(given | keywords | shape.schedule))
        except AssertionError as error:
            # TileLang's own check of what the function returned.
            if "must be a PrimFunc" not in str(error):
                raise
            message = _("'{name}' does not return a kernel. Does it end with 'return main'?")
            raise _NotAKernel(message.format(name=kernel.name)) from None
        options = _options(target)
    elif callable(target) and not isinstance(target, PrimFunc | type):
        with students_lines(target):
            made, options = target(**(given | shape.sizes | shape.schedule)), {}
    else:
        raise _NotAKernel(
            _("'{name}' is a {kind}, not a function decorated with @tilelang.jit.").format(
                name=kernel.name, kind=type(target).__name__
            )
        )
    if not isinstance(made, tilelang.tvm.tirx.PrimFunc):
        raise _NotAKernel(
            _("'{name}' gives a {kind} instead of a kernel. Is it decorated with @tilelang.jit?").format(
                name=kernel.name, kind=type(made).__name__
            )
        )
    return made, options


def _arguments(target: Any, kernel: Kernel, shape: Shape) -> tuple[list[Any], dict[str, Any]]:
    """How to ask for the kernel: by sizes (lazy style), or by tensors (eager style: it declares tensors)."""
    import torch

    parameters = target.signature.parameters
    inputs = [p for p in kernel.parameters if p.role is Role.IN]
    if not getattr(target.func, "tensor_args", None):
        if all(name in parameters for name in kernel.arguments):
            return [], {name: shape.sizes[name] for name in kernel.arguments}
    else:
        required = [p for p in parameters.values() if p.default is p.empty]
        for given in (inputs, list(kernel.parameters)):
            if len(required) == len(given):
                # "meta" tensors have a shape and a dtype, and no memory.
                tensors = [
                    torch.empty(p.sizes(shape), dtype=getattr(torch, p.dtype), device="meta") for p in given
                ]
                return tensors, {}
    raise _NotAKernel(
        _(
            "'{name}' takes ({got}). The lab calls it with the sizes ({want}), or with the tensors ({tensors})."
        ).format(
            name=kernel.name,
            got=", ".join(parameters),
            want=", ".join(kernel.arguments),
            tensors=", ".join(p.name for p in inputs),
        )
    )


def _options(target: Any) -> dict[str, bool | int | str]:
    """What @tilelang.jit was asked for, as names and plain values; whoever judges decides what of it holds."""
    options: dict[str, bool | int | str] = {
        str(getattr(name, "value", name)): value if isinstance(value, bool | int) else str(value)
        for name, value in (target.pass_configs or {}).items()
    }
    if target.compile_flags:
        options["compile_flags"] = str(target.compile_flags)
    return options


def describe(error: BaseException, is_theirs: Callable[[str], bool]) -> TraceError:
    """An exception as data, with the innermost line that is the student's."""
    file = line = None
    if isinstance(error, SyntaxError) and error.filename and is_theirs(error.filename):
        file, line = error.filename, error.lineno
    else:
        for frame in traceback.extract_tb(error.__traceback__):
            if is_theirs(frame.filename):
                file, line = frame.filename, frame.lineno
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return TraceError(type(error).__name__, _readable(message), file, line)


def _readable(message: str) -> str:
    """The first lines of a message, without the C++ frames that TVM and torch append."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if line.startswith(("frame #", "Exception raised from", "Stack trace", 'File "')):
            lines = lines[:number]
            break
    return " ".join(lines[:4])[:MAX_MESSAGE]
