"""Which operators a kernel may use, on what, and with which options.

A list of what is known to be safe, not of what is known to be dangerous: an operator that is not here is
refused by name. Strings reach the generated source as text, so they may only be exact entries of a list.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from grader.admit.refusal import Refused
from grader.admit.signature import constants
from grader.catalog import Kernel, Role
from grader.ir import nodes, show
from grader.messages import _

READ, WRITE, BOTH = "read", "write", "both"


@dataclass(frozen=True)
class TileOp:
    """A tile operation: the access of each leading region argument, how many arguments may follow, options.

    ``optional``: how many more may follow; ``valued``: a number may stand for the first region.
    """

    regions: tuple[str, ...]
    arguments: int
    texts: frozenset[str] = frozenset()
    options: frozenset[str] = field(default=frozenset())
    optional: int = 0
    valued: bool = False


_REDUCTIONS = frozenset({"sum", "max", "min", "absmax", "abssum", "bitand", "bitor", "bitxor"})
_COPY = frozenset({"coalesced_width", "disable_tma", "eviction_policy", "prefer_instruction"})
_ATOMIC = TileOp((READ, BOTH), 0, options=frozenset({"memory_order", "use_tma", "coalesced_width"}), valued=True)
_IM2COL = TileOp((READ, WRITE), 6, options=frozenset({"eviction_policy"}))

TILE_OPS = {
    "tl.tileop.atomicadd": _ATOMIC,
    "tl.tileop.atomicmax": _ATOMIC,
    "tl.tileop.atomicmin": _ATOMIC,
    "tl.tileop.c2d_im2col": _IM2COL,
    "tl.tileop.copy": TileOp((READ, WRITE), 0, options=_COPY),
    "tl.tileop.cummax": TileOp((READ, WRITE), 2),
    "tl.tileop.cumsum": TileOp((READ, WRITE), 2),
    "tl.tileop.fill": TileOp((WRITE,), 1),
    "tl.tileop.finalize_reducer": TileOp((BOTH,), 0, options=frozenset({"batch"})),
    "tl.tileop.finalize_reducer_v2": TileOp((READ, WRITE), 0, options=frozenset({"batch"})),
    "tl.tileop.gemm": TileOp((READ, READ, BOTH), 10),
    "tl.tileop.im2col": _IM2COL,
    "tl.tileop.reduce": TileOp(
        (READ, BOTH), 3, texts=_REDUCTIONS, options=frozenset({"batch", "nan_propagate", "enable_fadd2"})
    ),
    "tl.tileop.reducer_init": TileOp((WRITE,), 0, optional=1),
    "tl.tileop.transpose": TileOp((READ, WRITE), 0),
}

#: Options that are texts: what they may be. The other options are numbers from 0 to a limit.
OPTION_TEXTS = {"prefer_instruction": frozenset({"tma", "cp_async", "sync"})}
OPTION_LIMITS = {"batch": 4_096, "eviction_policy": 2, "memory_order": 5}
OPTION_LIMIT = 16
EVICT_LAST = 2  # of eviction_policy: what it keeps may outlive a flush of the cache

#: Scalar functions: name -> number of arguments.
FUNCTIONS = {
    "tirx.if_then_else": 3,
    "tirx.exp": 1,
    "tirx.exp2": 1,
    "tirx.exp10": 1,
    "tirx.log": 1,
    "tirx.log2": 1,
    "tirx.log10": 1,
    "tirx.log1p": 1,
    "tirx.sqrt": 1,
    "tirx.rsqrt": 1,
    "tirx.sin": 1,
    "tirx.cos": 1,
    "tirx.tanh": 1,
    "tirx.sigmoid": 1,
    "tirx.erf": 1,
    "tirx.fabs": 1,
    "tirx.floor": 1,
    "tirx.ceil": 1,
    "tirx.round": 1,
    "tl.round_ties_away_from_zero": 1,
    "tirx.trunc": 1,
    "tirx.pow": 2,
    "tirx.bitwise_and": 2,
    "tirx.bitwise_or": 2,
    "tirx.bitwise_xor": 2,
    "tirx.bitwise_not": 1,
    "tirx.shift_left": 2,
    "tirx.shift_right": 2,
    "tirx.tan": 1,
    "tirx.asin": 1,
    "tirx.acos": 1,
    "tirx.atan": 1,
    "tirx.sinh": 1,
    "tirx.cosh": 1,
    "tirx.asinh": 1,
    "tirx.acosh": 1,
    "tirx.atanh": 1,
    "tirx.nearbyint": 1,
    "tirx.isnan": 1,
    "tirx.isfinite": 1,
    "tirx.fmod": 2,
    "tirx.atan2": 2,
    "tirx.hypot": 2,
    "tirx.copysign": 2,
    "tirx.nextafter": 2,
    "tirx.ldexp": 2,
    "tirx.clz": 1,
    "tirx.reinterpret": 1,
    "tl.__exp": 1,
    "tl.__exp10": 1,
    "tl.__log": 1,
    "tl.__log2": 1,
    "tl.__log10": 1,
    "tl.__sin": 1,
    "tl.__cos": 1,
    "tl.__tan": 1,
    "tl.fast_rcp": 1,
    "tl.clamp": 3,
    "tl.fma": 3,
    "tl.fmul": 2,
    "tl.ieee_frsqrt": 1,
    "tl.__ldg": 1,
}

#: Functions whose last argument is a rounding mode, which is part of a function's name in the source.
ROUNDED = {
    "tl.ieee_add": 2,
    "tl.ieee_sub": 2,
    "tl.ieee_mul": 2,
    "tl.ieee_fmaf": 3,
    "tl.ieee_frcp": 1,
    "tl.ieee_fsqrt": 1,
    "tl.ieee_fdiv": 2,
}
ROUNDING_MODES = frozenset({"rn", "rz", "ru", "rd"})

#: Operations on elements through a pointer: name -> the access, the numbers that follow (their count is fixed by
#: TileLang; the last may be a memory order), or None where a second pointer follows.
POINTER = "tl.access_ptr"
POINTED: dict[str, tuple[str, int | None]] = {
    "tl.any_of": (READ, 1),
    "tl.all_of": (READ, 1),
    "tl.atomic_load_elem_op": (READ, 1),
    "tl.atomic_store_elem_op": (WRITE, 2),
    "tl.atomic_add_elem_op": (BOTH, 2),
    "tl.atomic_add_ret_elem_op": (BOTH, 2),
    "tl.atomic_max_elem_op": (BOTH, 2),
    "tl.atomic_max_ret_elem_op": (BOTH, 2),
    "tl.atomic_min_elem_op": (BOTH, 2),
    "tl.atomic_min_ret_elem_op": (BOTH, 2),
    "tl.atomic_or_elem_op": (BOTH, 2),
    "tl.atomic_addx2_elem_op": (BOTH, None),
    "tl.atomic_addx4_elem_op": (BOTH, None),
}

#: Statements that are no tile operations: name -> number of arguments.
STATEMENTS = {
    "tirx.break_loop": 0,
    "tirx.continue_loop": 0,
    "tl.loop_break": 0,
    "tl.sync_warp": 0,
}

INFINITY = "tl.infinity"
BARRIER, BARRIER_SCOPES = "tirx.tvm_storage_sync", frozenset({"shared", "shared.dyn"})
GEMM_POLICIES = frozenset({0, 1, 2})  # square, full row, full column

#: T.device_assert, with how many texts. It is for the simulator alone: the writer leaves it out.
ASSERTIONS = {"tl.device_assert": 0, "tl.device_assert_with_msg": 1}
UPDATE = "tl.reducer_update"

#: Operators whose names say nothing to who wrote T.call_extern: what they are called in a refusal.
KNOWN_AS = {"tirx.call_extern": "T.call_extern"}
HINTS = {"tl.min_blocks_per_sm": 32}  # numbers for the compiler: from 1 to these
SWIZZLES = frozenset({"rasterization2DRow", "rasterization2DColumn"})
LOOP_OPTIONS = frozenset({"num_stages", "coalesced_width"})


def check_operators(kernel: nodes.Kernel, wanted: Kernel) -> None:
    """Every operator, string, option and access of a parameter. Raises Refused."""
    roles = {
        buffer.storage: (buffer.name, parameter.role)
        for buffer, parameter in zip(kernel.params, wanted.parameters, strict=True)
    }
    operators = _Operators(roles, kernel.line)
    operators.marks(kernel)
    operators.stmt(kernel.body)


class _Operators:
    def __init__(self, roles: dict[nodes.Storage, tuple[str, Role]], line: nodes.Line | None) -> None:
        self.roles = roles
        self.line = line
        self.in_parallel = 0  # T.Parallel loops around this place

    def marks(self, kernel: nodes.Kernel) -> None:
        """What the kernel's annotations say of its buffers."""
        if kernel.l2_hit_ratios:
            raise Refused(
                _("T.annotate_l2_hit_ratio is not admitted"),
                self.line,
                _("It sets the card's cache for all that runs there. Leave it out."),
            )
        for value in kernel.safe_values.values():
            self.expr(value)
        params = {buffer.storage for buffer in kernel.params}
        if not params.issuperset(kernel.overlapping):
            raise Refused(_("T.annotate_restrict_buffers of something that is no parameter"), self.line)
        for storage in kernel.reducers:
            if storage.scope not in (nodes.FRAGMENT, nodes.REDUCER):
                raise Refused(_("a reducer that was not made by T.alloc_reducer"), self.line)

    def stmt(self, stmt: nodes.Stmt) -> None:
        self.line = stmt.line or self.line
        match stmt:
            case nodes.Evaluate(value=nodes.Call() as call) if call.op in TILE_OPS:
                self._tile_op(call, TILE_OPS[call.op])
            case nodes.Evaluate(value=nodes.Const()):
                return
            case nodes.Evaluate(value=nodes.Call(op=op, args=(nodes.Text(value=scope),), annotations=options)) if (
                op == BARRIER and scope in BARRIER_SCOPES and not options
            ):
                return
            case nodes.Evaluate(value=nodes.Call(op=op, args=args, annotations=options)) if op in STATEMENTS:
                if len(args) != STATEMENTS[op]:
                    self._refuse_operator(op)
                self._options(options, frozenset())
                for arg in args:
                    self.expr(arg)
            case nodes.Evaluate(value=nodes.Call(op=op) as call) if op in POINTED:
                self.expr(call)
            case nodes.Evaluate(value=nodes.Call(op=op, args=(nodes.Load() as load, value)) as call) if (
                op == UPDATE
            ):
                self._options(call.annotations, frozenset())
                self._access(load.buffer, BOTH)
                for expr in (*load.indices, value):
                    self.expr(expr)
            case nodes.Evaluate(value=nodes.Call(op=op, args=(condition, *texts), annotations=options)) if len(
                texts
            ) == ASSERTIONS.get(op) and all(isinstance(text, nodes.Text) for text in texts):
                self._options(options, frozenset())
                self.expr(condition)
            case nodes.Evaluate(value=nodes.Call(op=op)):
                self._refuse_operator(op)
            case nodes.Evaluate(value=value):
                self.expr(value)
            case nodes.Store(buffer=buffer, indices=indices, value=value):
                self._access(buffer, WRITE)
                for expr in (*indices, value):
                    self.expr(expr)
            case nodes.For(annotations=annotations):
                self._options(annotations, LOOP_OPTIONS)
            case nodes.While() if not self.in_parallel:
                self._while(stmt)
            case nodes.Hint(key=key, value=value) if not 1 <= value <= HINTS.get(key, 0):
                raise Refused(
                    _("the hint '{key}' is not admitted, or its value is odd").format(key=key), self.line
                )
            case nodes.Swizzle(kind=kind, size=size) if kind not in SWIZZLES or not 1 <= size <= 64:
                raise Refused(_("the kernel's swizzle is not one of TileLang's"), self.line)
        parallel = isinstance(stmt, nodes.For) and stmt.kind == nodes.PARALLEL
        self.in_parallel += parallel
        for child in nodes.children(stmt):
            if isinstance(child, nodes.Stmt):
                self.stmt(child)
            elif not isinstance(stmt, nodes.Evaluate | nodes.Store):
                self.expr(child)
        self.in_parallel -= parallel

    def expr(self, expr: nodes.Expr) -> None:
        match expr:
            case nodes.Load(buffer=buffer):
                self._access(buffer, READ)
            case nodes.Call(op=op, args=(nodes.Text(value=dtype),), annotations=annotations) if op == INFINITY:
                self._options(annotations, frozenset())
                if dtype not in nodes.ITEM_SIZE:
                    raise Refused(_("T.infinity is given something that is no dtype"), self.line)
                return
            case nodes.Call(op=op) if op in POINTED:
                self._pointed(expr)
                return
            case nodes.Call(op=op, args=(*args, nodes.Text(value=mode)), annotations=annotations) if (
                len(args) == ROUNDED.get(op) and mode in ROUNDING_MODES
            ):
                self._options(annotations, frozenset())
                for arg in args:
                    self.expr(arg)
                return
            case nodes.Call(op=op, args=args, annotations=annotations):
                if len(args) != FUNCTIONS.get(op):
                    self._refuse_operator(op)
                self._options(annotations, frozenset())
            case nodes.Text() | nodes.Region():
                raise Refused(_("the kernel has a string or a tile where a number is expected"), self.line)
        for child in nodes.children(expr):
            self.expr(child)

    def _while(self, loop: nodes.While) -> None:
        """TileLang puts no barrier between the turns of a ``while``, as it does between those of a ``for``.

        Seen on an H200: with tiles in shared memory threads then overtake one another, and a condition on memory
        that a thread writes may never be read again.
        """
        written = {buffer.storage for buffer in _written(loop.body) if buffer.scope not in _OWN_MEMORY}
        shared = any(storage.scope in (nodes.SHARED, nodes.SHARED_DYNAMIC) for storage in written)
        asked = {part.buffer.storage for part in nodes.walk(loop.condition) if isinstance(part, nodes.Load)}
        if asked & written:
            raise Refused(
                _("a while loop asks for memory that it also writes, which other threads may be doing just then"),
                self.line,
                _("Count with a variable of T.alloc_var, or use 'for ... in T.serial(...)' with a break."),
            )
        body = loop.body.body if isinstance(loop.body, nodes.Seq) else (loop.body,)
        if shared and not (body and _is_barrier(body[-1])):
            raise Refused(
                _("a while loop works on shared memory, and TileLang puts no barrier between its turns"),
                self.line,
                _("Use 'for ... in T.serial(...)' or T.Pipelined, or end the loop with T.sync_threads()."),
            )

    def _pointed(self, call: nodes.Call) -> None:
        access, numbers = POINTED[call.op]
        self._options(call.annotations, frozenset())
        if not call.args:
            self._refuse_operator(call.op)
        self._pointer(call.args[0], access, call)
        rest = call.args[1:]
        if numbers is None:
            if len(rest) != 1:
                self._refuse_operator(call.op)
            self._pointer(rest[0], READ, call)
            return
        if len(rest) > numbers:
            self._refuse_operator(call.op)
        for argument in rest:
            if access is READ and not (isinstance(argument, nodes.Const) and type(argument.value) is int):
                self._refuse_operator(call.op)  # a number of elements, or a memory order
            self.expr(argument)

    def _pointer(self, node: nodes.Expr, access: str, call: nodes.Call) -> None:
        match node:
            case nodes.Call(op=op, args=(nodes.Load() as load, *numbers), annotations=options) if (
                op == POINTER
                and not options
                and len(numbers) <= 2
                and all(isinstance(item, nodes.Const) for item in numbers)
            ):
                self._access(load.buffer, access)
                for index in load.indices:
                    self.expr(index)
                return
        self._refuse_operator(call.op)

    def _tile_op(self, call: nodes.Call, spec: TileOp) -> None:
        regions, rest = call.args[: len(spec.regions)], call.args[len(spec.regions) :]
        few, many = spec.arguments, spec.arguments + spec.optional
        if len(regions) != len(spec.regions) or not few <= len(rest) <= many:
            raise Refused(
                _("'{op}' is given an unknown number of arguments").format(op=_short(call.op)), self.line
            )
        for position, (region, access) in enumerate(zip(regions, spec.regions, strict=True)):
            if spec.valued and position == 0 and not isinstance(region, nodes.Region):
                self.expr(region)
                continue
            if not isinstance(region, nodes.Region):
                raise Refused(_("'{op}' is given something that is no tile").format(op=_short(call.op)), self.line)
            self._access(region.buffer, access)
            for expr in (*region.mins, *region.extents):
                self.expr(expr)
        for argument in rest:
            if not isinstance(argument, nodes.Text):
                self.expr(argument)
            elif argument.value not in spec.texts:
                raise Refused(_("'{op}' is given an unknown kind").format(op=_short(call.op)), self.line)
        self._options(call.annotations, spec.options)
        match call.op:
            case "tl.tileop.gemm":
                self._gemm(call)
            case "tl.tileop.copy":
                self._copy(call)
            case "tl.tileop.reduce":
                self._reduce(call)
        if spec is _IM2COL and not all(isinstance(n, nodes.Const) and 0 <= n.value <= 4_096 for n in rest[2:]):
            raise Refused(_("'{op}' is given odd numbers").format(op=_short(call.op)), self.line)

    def _gemm(self, call: nodes.Call) -> None:
        """Everything that a gemm says beside its tiles must follow from them: the compiler believes it."""
        a, b, c, *rest = call.args
        transposes, sizes, (policy, clear, wait), coordinates = rest[:2], rest[2:5], rest[5:8], rest[8:]
        flags = [flag.value for flag in transposes if isinstance(flag, nodes.Const) and flag.dtype == "bool"]
        tiles = [constants(tile.extents[-2:]) for tile in (a, b, c) if isinstance(tile, nodes.Region)]
        known = [size.value for size in (*sizes, policy, wait) if isinstance(size, nodes.Const)]
        sound = len(flags) == 2 and len(known) == 5 and clear.dtype == "bool" and None not in tiles
        if sound:
            (m, k), (k_too, n), c_tile = tiles[0], tiles[1], tiles[2]
            m, k = (k, m) if flags[0] else (m, k)
            k_too, n = (n, k_too) if flags[1] else (k_too, n)
            sound = k == k_too and c_tile == (m, n) and known == [m, n, k, known[3], 0]
            sound = sound and known[3] in GEMM_POLICIES and all(type(value) is int for value in known)
            sound = sound and all(_same(x, y) for x, y in zip(coordinates, c.mins[-2:], strict=True))
        if not sound:
            raise Refused(
                _("the tiles of T.gemm don't fit together: A {a}, B {b}, C {c}").format(
                    a=_extents(a), b=_extents(b), c=_extents(c)
                ),
                self.line,
                _("A is M×K, B is K×N and C is M×N, unless transpose_A or transpose_B is set."),
            )
        dtypes = [tile.buffer.dtype for tile in (a, b, c)]
        if not any(set(dtypes[:2]) <= set(factors) for factors in nodes.MULTIPLIED.get(dtypes[2], ())):
            raise Refused(
                _("no tensor core multiplies {a} by {b} into {c}").format(a=dtypes[0], b=dtypes[1], c=dtypes[2]),
                self.line,
                _("Give A and B one dtype, and sum in float32 (in int32 if they are int8)."),
            )

    def _copy(self, call: nodes.Call) -> None:
        """Where both shapes are known, the same loops on either side: dimensions of extent 1 count for nothing."""
        source, target = (tile for tile in call.args if isinstance(tile, nodes.Region))
        loops = [
            [extent.value if isinstance(extent, nodes.Const) else None for extent in tile.extents]
            for tile in (source, target)
        ]
        first, second = ([extent for extent in extents if extent != 1] for extents in loops)
        fits = len(first) == len(second) and all(
            x == y or None in (x, y) for x, y in zip(first, second, strict=True)
        )
        if not fits:
            raise Refused(
                _("T.copy is between tiles of different shapes: {a} and {b}").format(
                    a=_extents(source), b=_extents(target)
                ),
                self.line,
                _("Give both tiles the same shape."),
            )

    def _reduce(self, call: nodes.Call) -> None:
        source, target, _kind, dim, _clear = call.args
        sizes, found = constants(source.extents), constants(target.extents)
        axis = dim.value if isinstance(dim, nodes.Const) and type(dim.value) is int else -1
        rest = () if sizes is None else sizes[:axis] + sizes[axis + 1 :]
        if sizes is None or not 0 <= axis < len(sizes) or found != (rest or (1,)):
            raise Refused(
                _("T.reduce of {a} along dimension {dim} does not fit a target of {b}").format(
                    a=_extents(source), dim=axis if axis >= 0 else "?", b=_extents(target)
                ),
                self.line,
                _("The target has the source's shape without the dimension that is reduced."),
            )
        for tile in (source, target):
            if tile.buffer.scope == nodes.FRAGMENT and not _is_whole(tile):
                raise Refused(
                    _("T.reduce of a part of the fragment '{name}': TileLang would reduce all of it").format(
                        name=tile.buffer.name
                    ),
                    self.line,
                    _("Copy that part into a fragment of its own."),
                )

    def _access(self, buffer: nodes.Buffer, access: str) -> None:
        if buffer.storage not in self.roles:
            return
        name, role = self.roles[buffer.storage]
        if role is Role.IN and access != READ:
            raise Refused(_("the kernel writes to its input '{name}'").format(name=name), self.line)
        if role is Role.OUT and access != WRITE:
            raise Refused(
                _("the kernel reads its output '{name}', which it may only write").format(name=name),
                self.line,
                _("Keep intermediate values in a fragment (T.alloc_fragment) and copy them out once."),
            )

    def _options(self, annotations: dict[str, object], allowed: frozenset[str]) -> None:
        for name, value in annotations.items():
            if name not in allowed:
                raise Refused(_("the option '{name}' is not admitted").format(name=name), self.line)
            if name in OPTION_TEXTS:
                sound = isinstance(value, str) and value in OPTION_TEXTS[name]
            else:
                limit = OPTION_LIMITS.get(name, OPTION_LIMIT)
                sound = type(value) in (int, bool) and 0 <= int(value) <= limit
            if name == "eviction_policy" and value == EVICT_LAST:
                raise Refused(
                    _("T.copy with eviction_policy='evict_last' is not admitted"),
                    self.line,
                    _("It keeps data in the card's cache when the kernel has ended. Leave it out."),
                )
            if not sound:
                raise Refused(_("the option '{name}' has an odd value").format(name=name), self.line)

    def _refuse_operator(self, op: str) -> None:
        raise Refused(
            _("the kernel uses '{op}', which is not admitted here").format(op=_short(op)),
            self.line,
            _("Write the kernel with tile operations (T.copy, T.gemm, T.fill, T.reduce_*, T.Parallel)."),
        )


#: Memory that no other thread touches: fragments, too, are each thread's registers.
_OWN_MEMORY = (nodes.FRAGMENT, nodes.LOCAL, nodes.VARIABLE, nodes.REDUCER)


def _written(body: nodes.Stmt) -> Iterator[nodes.Buffer]:
    """The buffers that a statement writes, as far as its tile operations and stores say."""
    for part in nodes.walk(body):
        match part:
            case nodes.Store(buffer=buffer):
                yield buffer
            case nodes.Call(op=op, args=args) if op in TILE_OPS:
                for region, access in zip(args, TILE_OPS[op].regions, strict=False):
                    if access != READ and isinstance(region, nodes.Region):
                        yield region.buffer
            case nodes.Call(op=op, args=(nodes.Call(args=(nodes.Load(buffer=buffer), *_)), *_)) if op in POINTED:
                if POINTED[op][0] != READ:
                    yield buffer


def _is_barrier(stmt: nodes.Stmt) -> bool:
    match stmt:
        case nodes.Evaluate(value=nodes.Call(op=op, args=(nodes.Text(value=scope),))):
            return op == BARRIER and scope in BARRIER_SCOPES
    return False


def _same(x: nodes.Expr, y: nodes.Expr) -> bool:
    both = isinstance(x, nodes.Const) and isinstance(y, nodes.Const)
    return x is y or (both and x.value == y.value)


def _is_whole(tile: nodes.Region) -> bool:
    starts = constants(tile.mins)
    return starts is not None and not any(starts) and all(map(_same, tile.extents, tile.buffer.shape))


def _extents(tile: nodes.Expr) -> str:
    return "×".join(map(show, tile.extents)) if isinstance(tile, nodes.Region) else "?"


def _short(op: str) -> str:
    if op in KNOWN_AS:
        return KNOWN_AS[op]
    return op.removeprefix("tl.tileop.").removeprefix("tirx.").removeprefix("tl.")
