"""T.gemm: C += A B on the card's tensor cores (from compute capability 8.0 on).

Operands are multiplied exactly and summed in C's dtype; sums of floats differ from the card's in their order, and
in that the cores round sums of products their own way. In particular:

- float32 operands are taken as TF32. TileLang hands their bits to the cores as they are, which ignore the lowest
  13 bits of the fraction: operands are cut, not rounded.
- A float16 accumulator is rounded after each instruction, 32 bytes deep.
- 8-bit floats: Hopper keeps fewer bits of a sum than float32 has. That is not imitated.
"""

from collections.abc import Callable

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.dtypes import DType
from grader.simulator.expressions import Scope, State, integer, scalar, truth
from grader.simulator.memory import Memory
from grader.simulator.tileops.arguments import (
    check_count,
    check_options,
    constant_option,
    operation,
    truth_option,
)
from grader.simulator.tileops.tile import Runner, Tile
from grader.verdict.traffic import Kind

#: Operations of a matrix product that cost as much as one element of elementwise work.
GEMM_WORK = 32
POLICIES = (0, 1, 2)  # how warps share the work: square, by rows, by columns
STEP = 32  # bytes of an operand's row that one instruction multiplies, after which a half accumulator is rounded
CUT = -(1 << 13)  # the bits of a float32 that TF32 has

SHARED = (nodes.SHARED, nodes.SHARED_DYNAMIC)


def gemm(call: nodes.Call, scope: Scope) -> Runner:
    """C += A B, of exactly converted operands, in C's dtype. Arguments: see TileLang's gemm_op.py."""
    check_count(call, scope, 13)
    check_options(call, scope)
    a, b, c = (Tile(arg, call, scope) for arg in call.args[:3])
    transpose_a, transpose_b = (truth_option(arg, call, scope) for arg in call.args[3:5])
    stated = [integer(arg, scope, _("a size of a matrix product")).run for arg in call.args[5:8]]
    place = [integer(arg, scope, _("a tile's position")).run for arg in call.args[11:13]]
    policy, barrier = constant_option(call.args[8], call, scope), constant_option(call.args[10], call, scope)
    if policy not in POLICIES or barrier:
        raise scope.unsupported(_("'{op}' with these options").format(op=operation(call)))
    clear = truth(call.args[9], scope) if _is_truth(call.args[9]) else integer(call.args[9], scope, "clear_accum")
    scalar(clear, scope, "clear_accum")
    if clear.constant is not None and clear.constant not in (0, 1):
        raise scope.unsupported(_("'{op}' whose options are neither true nor false").format(op=operation(call)))
    for tile in (a, b, c):
        if len(tile.array.shape) < 2:
            raise scope.unsupported(_("a matrix product of tiles of one dimension"))
    check_places(a.memory, b.memory, c.memory, scope)
    seen, product = product_of(a.array.dtype, b.array.dtype, c.array.dtype, scope)
    meter, line = scope.program.meter, scope.line
    count = scope.program.counters.operations(Kind.GEMM, wider(a.array.dtype, b.array.dtype).name)
    for tile in (a, b):
        scope.program.note_read(tile.array)
    scope.program.note_write(c.array)
    clears = clear.run

    def run(state: State) -> None:
        x_sizes, y_sizes, z_sizes = a.extents(state), b.extents(state), c.extents(state)
        m, n = z_sizes[-2:]
        k = x_sizes[-2] if transpose_a else x_sizes[-1]
        shapes = ([k, m] if transpose_a else [m, k], [n, k] if transpose_b else [k, n])
        plain = all(size == 1 for sizes in (x_sizes, y_sizes, z_sizes) for size in sizes[:-2])
        if [x_sizes[-2:], y_sizes[-2:]] != [*shapes] or not plain or min(m, n, k) < 1:
            raise scope.unsupported(_("a matrix product of tiles whose shapes don't fit"))
        if [size(state) for size in stated] != [m, n, k]:
            raise scope.unsupported(_("a matrix product whose sizes M, N, K are not those of its tiles"))
        if [low(state) for low in place] != c.mins(state)[-2:]:
            raise scope.unsupported(_("a matrix product whose result's position is not that of its tile"))
        meter.spend(line, m * n * k // GEMM_WORK)
        meter.room((m * k + k * n + 2 * m * n) * 8, line)
        count(2 * m * n * k)
        x = seen(a.load(state).reshape(shapes[0]))
        y = seen(b.load(state).reshape(shapes[1]))
        x, y = x.t() if transpose_a else x, y.t() if transpose_b else y
        before = None if clears(state) else c.load(state).reshape(m, n)
        result = product(x, y, before)
        c.store(result.reshape(z_sizes), state)

    return run


def check_places(a: Memory, b: Memory, c: Memory, scope: Scope) -> None:
    """Where the card's instructions find operands and leave results."""
    on_chip = (*SHARED, nodes.FRAGMENT)
    if c.scope != nodes.FRAGMENT or a.scope not in on_chip or b.scope not in on_chip:
        raise scope.unsupported(
            _("a matrix product whose result is not in a fragment, or whose operands are in global memory")
        )


def wider(a: DType, b: DType) -> DType:
    """The operands' dtype, by which a product's operations are counted."""
    return a if a.size >= b.size else b


def _is_truth(node: nodes.Expr) -> bool:
    return node.dtype == "bool"


Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


def product_of(
    a: DType, b: DType, c: DType, scope: Scope
) -> tuple[Callable[[torch.Tensor], torch.Tensor], Product]:
    """What operands are to the tensor cores, and the product with accumulation into c's carrier (None: from zero).

    Both take matrices, or as many as a leading dimension says.
    """
    if not any(a.name in pair and b.name in pair for pair in nodes.MULTIPLIED.get(c.name, ())):
        raise scope.unsupported(_("a matrix product of {a} and {b} into {c}").format(a=a.name, b=b.name, c=c.name))
    if c.name == "int32":

        def exact(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor | None) -> torch.Tensor:
            total = (x @ y).to(torch.int64)  # doubles hold such sums exactly
            return (total if z is None else total + z).to(c.carrier)

        return lambda values: values.to(torch.float64), exact
    if c.name == "float16":
        depth = STEP // a.size

        def half(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor | None) -> torch.Tensor:
            total = torch.zeros(*x.shape[:-1], y.shape[-1], dtype=c.carrier) if z is None else z
            for k in range(0, x.shape[-1], depth):
                part = slice(k, k + depth)
                total = _accumulate(total.to(torch.float32), x[..., part], y[..., part, :]).to(c.carrier)
            return total

        return lambda values: values.to(torch.float32), half

    def wide(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor | None) -> torch.Tensor:
        return x @ y if z is None else _accumulate(z, x, y)

    return tf32 if a.name in ("float32", nodes.TFLOAT32) else lambda values: values.to(c.carrier), wide


def _accumulate(z: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """z + x y, of matrices or batches of them."""
    return torch.addmm(z, x, y) if x.ndim == 2 else torch.baddbmm(z, x, y)


def tf32(x: torch.Tensor) -> torch.Tensor:
    """What tensor cores see of float32 values: 10 bits of the fraction, cut. NaN and infinity stay."""
    cut = (x.contiguous().view(torch.int32) & CUT).view(torch.float32)
    return torch.where(x.isnan(), x, cut)
