"""Code by thread index: the threads of a block are one more T.Parallel.

A statement that depends on the thread index (``if tx < 64:``, ``B[tx] = v``) runs once a thread, as does one
with an atomic operation. ``unfold`` writes such a kernel anew: each of these statements becomes the body of a
T.Parallel over the block's threads, and memory of one thread (T.alloc_var, T.alloc_local) whose value may differ
between threads becomes an array with the threads as leading dimensions. Loops and branches that are the same for
all threads stay around the statements in them, so that tile operations and barriers may stand between these.

One statement is done by all threads before the next one begins. For shared memory the compiler makes that so, by
barriers of its own, but for three gaps, where races are not seen here: between the turns of a ``while`` (admission
refuses what may meet there), between atomic operations and what reads their sum, and in global memory, which
threads hand over from statement to statement without any barrier, T.Parallel and tile operations included.
"""

from dataclasses import replace

from grader.ir import nodes
from grader.ir.rewrite import rewrite
from grader.messages import _
from grader.simulator.element_atomics import is_element_atomic
from grader.simulator.faults import Unsupported

BARRIERS = frozenset({"tirx.tvm_storage_sync", "tl.sync_warp"})
JUMPS = frozenset({"tirx.break_loop", "tirx.continue_loop", "tl.loop_break"})
_OWN = (nodes.LOCAL, nodes.VARIABLE)


def unfold(kernel: nodes.Kernel) -> nodes.Kernel:
    """The kernel without thread indices, equal in what it does. Raises Unsupported."""
    used = set(kernel.thread_vars)
    outside = list(_outside_parallel(kernel.body))
    if not any(part in used or is_element_atomic(part) for part in outside):
        return kernel
    return _Unfold(kernel, outside).kernel()


def _outside_parallel(node: nodes.Expr | nodes.Stmt):
    """A node and all below it, but for T.Parallel nests that don't use a thread index (their loops included)."""
    pending = [node]
    while pending:
        here = pending.pop()
        if isinstance(here, nodes.For) and here.kind == nodes.PARALLEL:
            # The nest's own variables and memory are not the threads'; that it uses no thread index is seen later.
            yield here
            continue
        yield here
        pending.extend(nodes.children(here))


class _Unfold:
    def __init__(self, kernel: nodes.Kernel, outside: list[nodes.Expr | nodes.Stmt]) -> None:
        self.source = kernel
        self.line = kernel.line
        self.axes = [
            (var, extent)
            for var, extent in reversed(list(zip(kernel.thread_vars, kernel.threads, strict=True)))
            if extent > 1
        ] or [(kernel.thread_vars[0], 1)]
        #: Variables and memory whose value may differ between threads.
        self.own_vars: set[nodes.Var] = {var for var, _extent in self.axes}
        self.own_memory: set[nodes.Storage] = set()
        self.apart: set[nodes.Stmt] = set()  # loops that threads leave at different times
        self._spread(outside)
        self.names: dict[nodes.Var, nodes.Expr] = {}  # lets that differ between threads -> what stands for them
        self.arrays: dict[nodes.Buffer, nodes.Buffer] = {}
        self.storages: dict[nodes.Storage, nodes.Storage] = {}
        self.new: list[nodes.Buffer] = []

    def kernel(self) -> nodes.Kernel:
        body = nodes.Seq(self.source.body.line, tuple(self.statement(self.source.body)))
        zero = [
            nodes.Bind(self.source.line, var, nodes.Const(var.dtype, 0))
            for var in self.source.thread_vars
            if var not in dict(self.axes)
        ]
        allocations = [self._array(buffer) for buffer in self.source.allocations] + self.new
        return replace(
            self.source, body=nodes.Seq(self.source.line, (*zero, body)), allocations=tuple(allocations)
        )

    def unsupported(self, what: str) -> Unsupported:
        return Unsupported(what, self.line)

    # What differs between threads

    def _spread(self, outside: list[nodes.Expr | nodes.Stmt]) -> None:
        """Finds all variables and memory of a thread that depend on its index: until nothing more is found."""
        before = None
        while before != (before := (len(self.own_vars), len(self.own_memory), len(self.apart))):
            self._follow(self.source.body, within=False, loops=())

    def differs(self, node: nodes.Expr) -> bool:
        return any(self._is_own(part) for part in nodes.walk(node))

    def _is_own(self, part: nodes.Expr | nodes.Stmt) -> bool:
        match part:
            case nodes.Var():
                return part in self.own_vars
            case nodes.Load(buffer=buffer) | nodes.Store(buffer=buffer) | nodes.Region(buffer=buffer):
                return buffer.storage in self.own_memory
        return is_element_atomic(part)

    def _follow(self, stmt: nodes.Stmt, within: bool, loops: tuple[nodes.Stmt, ...]) -> None:
        """``within``: only some threads may come here; ``loops``: those around, up to such a place."""
        match stmt:
            case nodes.For(kind=nodes.PARALLEL):
                return
            case nodes.Bind(var=var, value=value):
                if self.differs(value):
                    self.own_vars.add(var)
            case nodes.Store(buffer=buffer) if buffer.scope in _OWN:
                if within or any(map(self.differs, (*stmt.indices, stmt.value))):
                    self.own_memory.add(buffer.storage)
            case nodes.Evaluate(value=nodes.Call(op=op)) if op in JUMPS and within and loops:
                self.apart.add(loops[-1])
            case nodes.For(var=var):
                apart = stmt in self.apart or self.differs(stmt.min) or self.differs(stmt.extent)
                if apart:
                    self.own_vars.add(var)
                self._follow(stmt.body, within or apart, (*loops, stmt))
                return
            case nodes.While():
                apart = stmt in self.apart or self.differs(stmt.condition)
                self._follow(stmt.body, within or apart, (*loops, stmt))
                return
            case nodes.If():
                within = within or self.differs(stmt.condition)
        for part in nodes.children(stmt):
            if isinstance(part, nodes.Stmt):
                self._follow(part, within, loops)

    # Statements

    def statement(self, stmt: nodes.Stmt) -> list[nodes.Stmt]:
        self.line = stmt.line or self.line
        match stmt:
            case nodes.Seq(body=body):
                return [made for item in body for made in self.statement(item)]
            case nodes.Swizzle(body=body) | nodes.Hint(body=body):
                return [replace(stmt, body=self._sequence(body))]
            case nodes.For(kind=nodes.PARALLEL):
                return [self._nest(stmt)]
            case nodes.Bind() if self.differs(stmt.value):
                return self._let(stmt)
            case nodes.For() if not (stmt in self.apart or self.differs(stmt.min) or self.differs(stmt.extent)):
                return [replace(stmt, body=self._sequence(stmt.body))]
            case nodes.While() if not (stmt in self.apart or self.differs(stmt.condition)):
                return [replace(stmt, body=self._sequence(stmt.body))]
            case nodes.If(otherwise=otherwise) if not self.differs(stmt.condition):
                otherwise = None if otherwise is None else self._sequence(otherwise)
                return [replace(stmt, then=self._sequence(stmt.then), otherwise=otherwise)]
            case nodes.Evaluate(value=nodes.Call(op="tl.tileop.fill", args=(nodes.Region() as tile, _value))) if (
                tile.buffer.storage in self.own_memory
            ):
                return [self._fill(stmt, tile)]
        if not any(self._is_own(part) for part in nodes.walk(stmt)):
            return [stmt]
        return [self._for_all_threads(stmt)]

    def _sequence(self, stmt: nodes.Stmt) -> nodes.Stmt:
        made = self.statement(stmt)
        return made[0] if len(made) == 1 else nodes.Seq(stmt.line, tuple(made))

    def _nest(self, stmt: nodes.For) -> nodes.For:
        for part in nodes.walk(stmt):
            if isinstance(part, nodes.Var) and part in self.own_vars:
                raise self.unsupported(_("the thread index inside T.Parallel"))
            if isinstance(part, nodes.Load) and part.buffer.storage in self.own_memory:
                raise self.unsupported(
                    _("T.Parallel with '{name}', which each thread has for itself").format(name=part.buffer.name)
                )
        return stmt

    def _let(self, stmt: nodes.Bind) -> list[nodes.Stmt]:
        """A let that differs: the expression itself if it is pure, else memory of the thread."""
        value = self._renamed(stmt.value)
        if not any(isinstance(part, nodes.Load) or is_element_atomic(part) for part in nodes.walk(value)):
            self.names[stmt.var] = value
            return []
        storage = nodes.Storage(stmt.var.name, nodes.VARIABLE)
        self.own_memory.add(storage)
        one = nodes.Const("int32", 1)
        buffer = nodes.Buffer(stmt.var.name, stmt.var.dtype, (one,), (), storage)
        self.new.append(self._array(buffer))
        zero = (nodes.Const("int32", 0),)
        self.names[stmt.var] = self._renamed(nodes.Load(buffer.dtype, buffer, zero))
        return [self._for_all_threads(nodes.Store(stmt.line, buffer, zero, stmt.value))]

    def _fill(self, stmt: nodes.Evaluate, tile: nodes.Region) -> nodes.Stmt:
        """T.clear of each thread's memory is T.clear of all."""
        if any(map(self.differs, (*tile.mins, *tile.extents, stmt.value.args[1]))):
            raise self.unsupported(_("a tile operation that depends on the thread index"))
        first = tuple(nodes.Const("int32", 0) for _axis in self.axes)
        all_of_them = tuple(nodes.Const("int32", extent) for _var, extent in self.axes)
        wide = replace(
            tile, buffer=self._array(tile.buffer), mins=first + tile.mins, extents=all_of_them + tile.extents
        )
        return replace(stmt, value=replace(stmt.value, args=(wide, stmt.value.args[1])))

    def _for_all_threads(self, stmt: nodes.Stmt) -> nodes.Stmt:
        for part in nodes.walk(stmt):
            self.line = (part.line if isinstance(part, nodes.Stmt) else None) or self.line
            if isinstance(part, nodes.Call) and part.op.startswith("tl.tileop."):
                raise self.unsupported(_("a tile operation that not all threads reach, or each for itself"))
            if isinstance(part, nodes.Call) and part.op in BARRIERS:
                raise self.unsupported(_("a barrier that not all threads reach"))
            if isinstance(part, nodes.For) and part.kind == nodes.PARALLEL:
                raise self.unsupported(_("a T.Parallel that not all threads reach"))
        body = self._renamed(stmt)
        for var, extent in reversed(self.axes):
            zero, count = nodes.Const(var.dtype, 0), nodes.Const(var.dtype, extent)
            body = nodes.For(stmt.line, var, zero, count, nodes.PARALLEL, body)
        return body

    # Memory of the threads

    def _renamed(self, node: nodes.Expr | nodes.Stmt) -> nodes.Expr | nodes.Stmt:
        """``node`` with lets written out and the threads' memory reached through the arrays of all threads."""
        index = tuple(var for var, _extent in self.axes)

        def change(part: nodes.Expr | nodes.Stmt) -> nodes.Expr | nodes.Stmt:
            match part:
                case nodes.Var():
                    return self.names.get(part, part)
                case nodes.Load(buffer=buffer) | nodes.Store(buffer=buffer) if buffer.storage in self.own_memory:
                    return replace(part, buffer=self._array(buffer), indices=index + part.indices)
            return part

        return rewrite(node, change)

    def _array(self, buffer: nodes.Buffer) -> nodes.Buffer:
        """The buffer with the threads as leading dimensions, if threads have it each for itself."""
        if buffer.storage not in self.own_memory:
            return buffer
        if buffer not in self.arrays:
            if buffer.strides or not all(isinstance(extent, nodes.Const) for extent in buffer.shape):
                raise self.unsupported(_("the memory '{name}' of one thread").format(name=buffer.name))
            old = buffer.storage
            # It is memory of the block now, all of it reached by index.
            storage = self.storages.setdefault(old, nodes.Storage(old.name, nodes.FRAGMENT))
            threads = tuple(nodes.Const("int32", extent) for _var, extent in self.axes)
            self.arrays[buffer] = replace(buffer, shape=threads + buffer.shape, storage=storage)
        return self.arrays[buffer]
