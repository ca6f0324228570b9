"""The node types of a tile-level kernel.

Nodes are immutable and compared by identity: two variables of one name are two variables. Expressions carry
their dtype as TVM spells it ("float16", "int32", "bool", "handle"), statements the source line that they came
from. Names are the student's and serve messages only: the writer never writes them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

GLOBAL, SHARED, SHARED_DYNAMIC, FRAGMENT, LOCAL, VARIABLE, REDUCER = (
    "global",
    "shared",
    "shared.dyn",
    "local.fragment",
    "local",
    "local.var",
    "local.reducer",
)

#: Kinds of loop, by the number that TVM gives them.
SERIAL, PARALLEL, VECTORIZED, UNROLLED, THREAD = 0, 1, 2, 3, 4

#: dtype -> bytes an element.
ITEM_SIZE = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "float8_e4m3": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "custom[tfloat32]": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}

TFLOAT32 = "custom[tfloat32]"  # a float32 whose lowest 13 bits count for nothing
FLOAT8 = ("float8_e4m3", "float8_e4m3fn", "float8_e5m2")

#: dtype of C -> dtypes of A and B for which there is an instruction that TileLang uses. 8-bit floats may mix.
MULTIPLIED: dict[str, tuple[tuple[str, ...], ...]] = {
    "float16": (("float16",), FLOAT8),
    "float32": (("float16",), ("bfloat16",), ("float32",), (TFLOAT32,), FLOAT8),
    "float64": (("float64",),),
    "int32": (("int8",), ("uint8",)),
}

#: Binary operators, by the name of their TVM node, as they are printed.
BINARY = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "Div": "/",
    "Mod": "%",
    "FloorDiv": "//",
    "FloorMod": "%",
    "Min": "min",
    "Max": "max",
    "EQ": "==",
    "NE": "!=",
    "LT": "<",
    "LE": "<=",
    "GT": ">",
    "GE": ">=",
    "And": "and",
    "Or": "or",
}

#: What TVM makes of a number from 2**63 on, of its lower and its upper 32 bits. Here it is a Const like others.
LARGE_NUMBER = "tirx.large_uint_imm"


def integer_range(dtype: str) -> tuple[int, int]:
    """The smallest and the largest value of an integer dtype."""
    bits = 8 * ITEM_SIZE[dtype]
    return (0, 2**bits - 1) if dtype.startswith("uint") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@dataclass(frozen=True)
class Line:
    """A source line: the file as Python named it when the kernel was traced, and the number from 1."""

    file: str
    number: int


@dataclass(frozen=True, eq=False)
class Expr:
    dtype: str


@dataclass(frozen=True, eq=False)
class Const(Expr):
    """A number (or a truth value, if dtype is "bool")."""

    value: int | float | bool


@dataclass(frozen=True, eq=False)
class Text(Expr):
    """A string argument of a call, e.g. the kind of a reduction."""

    value: str


@dataclass(frozen=True, eq=False)
class Var(Expr):
    """A scalar variable: a loop's, a block's or thread's index, a let, a dynamic size."""

    name: str


@dataclass(frozen=True, eq=False)
class Binary(Expr):
    """``op`` is a key of BINARY; Div is true division for floats and truncation for integers."""

    op: str
    a: Expr
    b: Expr


@dataclass(frozen=True, eq=False)
class Not(Expr):
    a: Expr


@dataclass(frozen=True, eq=False)
class Cast(Expr):
    value: Expr


@dataclass(frozen=True, eq=False)
class Select(Expr):
    """Both sides may be evaluated, unlike ``if_then_else`` (a Call), which guards its sides."""

    condition: Expr
    true: Expr
    false: Expr


@dataclass(frozen=True, eq=False)
class Storage:
    """A piece of memory. Buffers that share a Storage alias."""

    name: str
    scope: str


@dataclass(frozen=True, eq=False)
class Buffer:
    """A view of a storage: ``shape`` and ``strides`` in elements; no strides means row-major."""

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    storage: Storage

    @property
    def scope(self) -> str:
        return self.storage.scope


@dataclass(frozen=True, eq=False)
class Load(Expr):
    buffer: Buffer
    indices: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Region(Expr):
    """``buffer[mins[0] : mins[0] + extents[0], …]``, an argument of a tile operation.

    ``access`` has bit 1 for read and bit 2 for write, as TileLang says; it is not always right.
    """

    buffer: Buffer
    mins: tuple[Expr, ...]
    extents: tuple[Expr, ...]
    access: int


@dataclass(frozen=True, eq=False)
class Call(Expr):
    """A call of the operator ``op`` ("tl.tileop.copy", "tirx.exp", …)."""

    op: str
    args: tuple[Expr, ...]
    annotations: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Print(Expr):
    """``T.print``: of a message alone, of a ``value``, or of the element ``index`` of the buffer ``name``.

    The texts are the student's and serve messages only: the writer leaves the whole call out.
    """

    message: str
    name: str = ""
    index: Expr | None = None
    value: Expr | None = None


@dataclass(frozen=True, eq=False)
class Stmt:
    line: Line | None


@dataclass(frozen=True, eq=False)
class Seq(Stmt):
    body: tuple[Stmt, ...]


@dataclass(frozen=True, eq=False)
class Bind(Stmt):
    """``var = value`` for the rest of the enclosing sequence."""

    var: Var
    value: Expr


@dataclass(frozen=True, eq=False)
class Store(Stmt):
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, eq=False)
class Evaluate(Stmt):
    """An expression for its effect: a tile operation, mostly. ``Evaluate(Const)`` does nothing."""

    value: Expr


@dataclass(frozen=True, eq=False)
class If(Stmt):
    condition: Expr
    then: Stmt
    otherwise: Stmt | None


@dataclass(frozen=True, eq=False)
class For(Stmt):
    """``for var in range(min, min + extent)``; ``kind`` is SERIAL, PARALLEL, VECTORIZED or UNROLLED.

    A pipelined loop is serial with ``annotations["num_stages"]``.
    """

    var: Var
    min: Expr
    extent: Expr
    kind: int
    body: Stmt
    annotations: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class While(Stmt):
    condition: Expr
    body: Stmt


@dataclass(frozen=True, eq=False)
class Swizzle(Stmt):
    """``T.use_swizzle``: the order of blocks on the card. No effect on results."""

    kind: str
    size: int
    body: Stmt


@dataclass(frozen=True, eq=False)
class Hint(Stmt):
    """A number for the compiler, by the name ``key``: "tl.min_blocks_per_sm". No effect on results."""

    key: str
    value: int
    body: Stmt


@dataclass(frozen=True, eq=False)
class Layout:
    """``T.annotate_layout``: how a shared buffer lies in memory. ``index`` is over ``placeholders``."""

    storage: Storage
    sizes: tuple[Expr, ...]
    index: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Grid:
    """One dimension of the launch grid: ``axis`` is "x", "y" or "z"."""

    var: Var
    axis: str
    extent: Expr


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel: its tensor parameters by position, launch grid (outermost first), threads a block, and body.

    ``sizes`` are the variables that stand for dynamic sizes in the parameters' shapes. By storage:
    ``safe_values``, what copies take for elements out of bounds; ``reducers``, how each of T.alloc_reducer
    combines; ``l2_hit_ratios``, the part of a parameter to be kept in the L2 cache. ``overlapping`` are parameters
    that may share memory.
    """

    params: tuple[Buffer, ...]
    sizes: tuple[Var, ...]
    grid: tuple[Grid, ...]
    threads: tuple[int, int, int]
    thread_vars: tuple[Var, Var, Var]
    allocations: tuple[Buffer, ...]
    layouts: tuple[Layout, ...]
    body: Stmt
    line: Line | None = None
    safe_values: dict[Storage, Expr] = field(default_factory=dict)
    reducers: dict[Storage, str] = field(default_factory=dict)
    l2_hit_ratios: dict[Storage, float] = field(default_factory=dict)
    overlapping: tuple[Storage, ...] = ()


def children(node: Expr | Stmt) -> Iterator[Expr | Stmt]:
    """The expressions and statements directly below a node, in the order in which they are evaluated."""
    match node:
        case Binary(a=a, b=b):
            yield from (a, b)
        case Not(a=a):
            yield a
        case Cast(value=value) | Bind(value=value) | Evaluate(value=value):
            yield value
        case Select(condition=condition, true=true, false=false):
            yield from (condition, true, false)
        case Load(indices=indices):
            yield from indices
        case Region(mins=mins, extents=extents):
            yield from mins
            yield from extents
        case Call(args=args):
            yield from args
        case Print(index=index, value=value):
            yield from (part for part in (index, value) if part is not None)
        case Seq(body=body):
            yield from body
        case Store(indices=indices, value=value):
            yield from indices
            yield value
        case If(condition=condition, then=then, otherwise=otherwise):
            yield condition
            yield then
            if otherwise is not None:
                yield otherwise
        case For(min=low, extent=extent, body=body):
            yield from (low, extent, body)
        case While(condition=condition, body=body):
            yield from (condition, body)
        case Swizzle(body=body) | Hint(body=body):
            yield body


def walk(node: Expr | Stmt) -> Iterator[Expr | Stmt]:
    """A node and all below it, parents first."""
    yield node
    for child in children(node):
        yield from walk(child)
