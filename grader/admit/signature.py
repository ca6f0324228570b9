"""Does the kernel have the parameters that the lab asks for?"""

from grader.admit.refusal import Refused
from grader.catalog import Kernel, Parameter, Shape
from grader.ir import nodes
from grader.messages import _


def check_signature(kernel: nodes.Kernel, wanted: Kernel, shape: Shape) -> None:
    """Parameters are compared by position: count, dtype, extents, row-major strides. Names don't matter."""
    if len(kernel.params) != len(wanted.parameters):
        raise Refused(
            _("'{kernel}' takes {got} tensors, the lab asks for {want}: {list}").format(
                kernel=wanted.name,
                got=len(kernel.params),
                want=len(wanted.parameters),
                list=", ".join(f"{p.name} ({p.role})" for p in wanted.parameters),
            ),
            kernel.line,
            _("Keep the parameters as the notebook gave them."),
        )
    if kernel.sizes:
        raise Refused(
            _("'{kernel}' takes the extra parameter '{name}', which is no tensor").format(
                kernel=wanted.name, name=kernel.sizes[0].name
            ),
            kernel.line,
            _("Sizes are known when the kernel is built: use the function's arguments."),
        )
    for position, (param, parameter) in enumerate(zip(kernel.params, wanted.parameters, strict=True), start=1):
        _check_parameter(param, parameter, position, shape, kernel.line)


def _check_parameter(
    param: nodes.Buffer, wanted: Parameter, position: int, shape: Shape, line: nodes.Line | None
) -> None:
    sizes = wanted.sizes(shape)
    if param.dtype != wanted.dtype:
        raise Refused(
            _("parameter {position} ('{name}') has dtype {got}, the lab asks for {want}").format(
                position=position, name=param.name, got=param.dtype, want=wanted.dtype
            ),
            line,
        )
    got = constants(param.shape)
    if got != sizes:
        shown = "dynamic" if got is None else str(got)
        raise Refused(
            _("parameter {position} ('{name}') has shape {got}, the lab asks for {want} where {sizes}").format(
                position=position, name=param.name, got=shown, want=str(sizes), sizes=str(shape)
            ),
            line,
        )
    if param.strides and constants(param.strides) != row_major(sizes):
        raise Refused(
            _("parameter {position} ('{name}') is not contiguous").format(position=position, name=param.name),
            line,
        )


def constants(exprs: tuple[nodes.Expr, ...]) -> tuple[int, ...] | None:
    """The values of integer constants, or None if one of them isn't."""
    values = []
    for expr in exprs:
        if not isinstance(expr, nodes.Const) or isinstance(expr.value, float):
            return None
        values.append(int(expr.value))
    return tuple(values)


def row_major(sizes: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))
