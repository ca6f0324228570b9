"""Reducers (T.alloc_reducer): from T.reducer_init over T.reducer_update to T.finalize_reducer, an epoch.

The older form (``T.clear(acc)``, ``acc[i] += v`` in T.Parallel, ``T.finalize_reducer(acc)``, then reads of
``acc``) is written anew in the newer one, as TileLang does before it compiles. What TileLang refuses is refused:
a reducer has no value that could be read or written on the way.
"""

from dataclasses import dataclass, replace

from grader.ir import nodes
from grader.ir.rewrite import rewrite
from grader.messages import _
from grader.simulator.faults import Unsupported

INIT, UPDATE = "tl.tileop.reducer_init", "tl.reducer_update"
FINALIZE, FINALIZE_IN_PLACE = "tl.tileop.finalize_reducer_v2", "tl.tileop.finalize_reducer"
FILL = "tl.tileop.fill"
_JOINED_BY = {"sum": "Add", "max": "Max", "min": "Min"}

NEW, OPEN, CLOSED = "new", "open", "closed"


def with_epochs(kernel: nodes.Kernel) -> nodes.Kernel:
    """The kernel with its reducers in the newer form. Raises Unsupported where one is used in another way."""
    kernel = _Older(kernel).kernel()
    _Check(kernel).kernel()
    return kernel


@dataclass
class _Reducer:
    """A reducer in the older form: what it becomes, and how far its epoch is."""

    before: nodes.Buffer
    handle: nodes.Buffer
    result: nodes.Buffer
    kind: str
    phase: str = NEW


class _Older:
    def __init__(self, kernel: nodes.Kernel) -> None:
        self.source, self.line = kernel, kernel.line
        newer = {storage for part in nodes.walk(kernel.body) for storage in _newer(part)}
        self.reducers: dict[nodes.Storage, _Reducer] = {}
        for buffer in kernel.allocations:
            storage = buffer.storage
            kind = kernel.reducers.get(storage)
            if kind is None or storage in newer:
                continue
            own = nodes.Storage(storage.name, nodes.REDUCER)
            result = nodes.Storage(storage.name, nodes.FRAGMENT)
            self.reducers[storage] = _Reducer(
                buffer, replace(buffer, storage=own), replace(buffer, storage=result), kind
            )

    def kernel(self) -> nodes.Kernel:
        if not self.reducers:
            return self.source
        body = self.statement(self.source.body)
        allocations: list[nodes.Buffer] = []
        kinds = dict(self.source.reducers)
        for buffer in self.source.allocations:
            found = self.reducers.get(buffer.storage)
            allocations += [buffer] if found is None else [found.handle, found.result]
            if found is not None:
                del kinds[buffer.storage]
                kinds[found.handle.storage] = found.kind
        return replace(self.source, body=body, allocations=tuple(allocations), reducers=kinds)

    def refuse(self, found: _Reducer, what: str) -> Unsupported:
        return Unsupported(what.format(name=found.before.name), self.line)

    def statement(self, stmt: nodes.Stmt) -> nodes.Stmt:
        self.line = stmt.line or self.line
        match stmt:
            case nodes.Seq(body=body):
                return replace(stmt, body=tuple(map(self.statement, body)))
            case nodes.If(otherwise=otherwise):
                condition = self.expression(stmt.condition)
                otherwise = None if otherwise is None else self.statement(otherwise)
                return replace(stmt, condition=condition, then=self.statement(stmt.then), otherwise=otherwise)
            case nodes.For():
                low, extent = self.expression(stmt.min), self.expression(stmt.extent)
                return replace(stmt, min=low, extent=extent, body=self.statement(stmt.body))
            case nodes.While():
                return replace(stmt, condition=self.expression(stmt.condition), body=self.statement(stmt.body))
            case nodes.Swizzle() | nodes.Hint():
                return replace(stmt, body=self.statement(stmt.body))
            case nodes.Bind() | nodes.Evaluate() if not self._special(stmt):
                return replace(stmt, value=self.expression(stmt.value))
            case nodes.Evaluate(value=nodes.Call() as call):
                return replace(stmt, value=self._call(call))
            case nodes.Store(buffer=buffer) if buffer.storage in self.reducers:
                return self._update(stmt, self.reducers[buffer.storage])
            case nodes.Store():
                indices = tuple(map(self.expression, stmt.indices))
                return replace(stmt, indices=indices, value=self.expression(stmt.value))
        return stmt

    def _special(self, stmt: nodes.Stmt) -> bool:
        match stmt:
            case nodes.Evaluate(value=nodes.Call(op=op, args=(nodes.Region(buffer=buffer), *_rest))):
                return op in (FILL, FINALIZE_IN_PLACE) and buffer.storage in self.reducers
        return False

    def _call(self, call: nodes.Call) -> nodes.Call:
        found = self.reducers[call.args[0].buffer.storage]
        if call.op == FINALIZE_IN_PLACE:
            if found.phase != OPEN:
                raise self.refuse(found, _("T.finalize_reducer of '{name}', which no T.clear or T.fill opened"))
            found.phase = CLOSED
            tiles = (_whole(found.handle, 3), _whole(found.result, 2))
            return nodes.Call(call.dtype, FINALIZE, tiles, call.annotations)
        if found.phase != NEW:
            raise self.refuse(found, _("a second T.clear or T.fill of the reducer '{name}'"))
        found.phase = OPEN
        value = call.args[1]
        neutral = isinstance(value, nodes.Const) and value.value == 0
        if found.kind == "sum":
            if not neutral:
                raise self.refuse(
                    found, _("the reducer '{name}', a sum, that is filled with something other than 0")
                )
            return nodes.Call(call.dtype, INIT, (_whole(found.handle, 2),))
        value = self.expression(value)
        if value.dtype != found.handle.dtype:
            value = nodes.Cast(found.handle.dtype, value)
        return nodes.Call(call.dtype, INIT, (_whole(found.handle, 2), value))

    def _update(self, store: nodes.Store, found: _Reducer) -> nodes.Stmt:
        if found.phase != OPEN:
            raise self.refuse(
                found, _("a store to the reducer '{name}' before T.clear or after T.finalize_reducer")
            )
        value = self._contribution(store, found)
        if value is None:
            raise self.refuse(
                found, _("a store to the reducer '{name}' that is not the update that T.alloc_reducer's op says")
            )
        target = nodes.Load(found.handle.dtype, found.handle, tuple(map(self.expression, store.indices)))
        return nodes.Evaluate(store.line, nodes.Call("handle", UPDATE, (target, self.expression(value))))

    @staticmethod
    def _contribution(store: nodes.Store, found: _Reducer) -> nodes.Expr | None:
        """``v`` of ``acc[i] = combine(acc[i], v)``."""

        def is_itself(node: nodes.Expr) -> bool:
            return (
                isinstance(node, nodes.Load)
                and node.buffer.storage is store.buffer.storage
                and len(node.indices) == len(store.indices)
                and all(map(_alike, node.indices, store.indices))
            )

        match store.value:
            case nodes.Binary(op=op, a=a, b=b) if op == _JOINED_BY.get(found.kind):
                return b if is_itself(a) else a if is_itself(b) else None
        return None

    def expression(self, node: nodes.Expr) -> nodes.Expr:
        """The expression with reads of finished reducers turned to their results."""

        def change(part: nodes.Expr | nodes.Stmt) -> nodes.Expr | nodes.Stmt:
            if not isinstance(part, nodes.Load | nodes.Region) or part.buffer.storage not in self.reducers:
                return part
            found = self.reducers[part.buffer.storage]
            if found.phase != CLOSED or part.buffer is not found.before:
                raise self.refuse(
                    found, _("a use of the reducer '{name}' before T.finalize_reducer, or through a view")
                )
            return replace(part, buffer=found.result)

        return rewrite(node, change)


def _newer(part: nodes.Expr | nodes.Stmt) -> list[nodes.Storage]:
    match part:
        case nodes.Call(op=op, args=(nodes.Load(buffer=buffer) | nodes.Region(buffer=buffer), *_rest)):
            return [buffer.storage] if op in (INIT, UPDATE, FINALIZE) else []
    return []


def _whole(buffer: nodes.Buffer, access: int) -> nodes.Region:
    zeros = tuple(nodes.Const("int32", 0) for _extent in buffer.shape)
    return nodes.Region("handle", buffer, zeros, buffer.shape, access)


def _alike(a: nodes.Expr, b: nodes.Expr) -> bool:
    """Expressions of the same form over the same variables."""
    match a, b:
        case nodes.Const(), nodes.Const():
            return a.dtype == b.dtype and a.value == b.value
        case nodes.Binary(), nodes.Binary():
            return a.op == b.op and _alike(a.a, b.a) and _alike(a.b, b.b)
        case nodes.Cast(), nodes.Cast():
            return a.dtype == b.dtype and _alike(a.value, b.value)
    return a is b


class _Check:
    """Each reducer is opened once, outside T.Parallel, updated in T.Parallel, and closed where it was opened."""

    def __init__(self, kernel: nodes.Kernel) -> None:
        self.source, self.line = kernel, kernel.line
        self.names = {b.storage: b.name for b in kernel.allocations if b.storage.scope == nodes.REDUCER}
        self.phase = dict.fromkeys(self.names, NEW)
        self.opened: dict[nodes.Storage, tuple[tuple[nodes.Stmt, int], ...]] = {}

    def kernel(self) -> None:
        for storage in self.names:
            if storage not in self.source.reducers:
                raise self.refuse(storage, _("the reducer '{name}' without an operation"))
        self.statement(self.source.body, (), parallel=False)
        for storage, phase in self.phase.items():
            if phase != CLOSED:
                raise self.refuse(storage, _("the reducer '{name}' without T.reducer_init and T.finalize_reducer"))

    def refuse(self, storage: nodes.Storage, what: str) -> Unsupported:
        return Unsupported(what.format(name=self.names[storage]), self.line)

    def statement(self, stmt: nodes.Stmt, around: tuple[tuple[nodes.Stmt, int], ...], *, parallel: bool) -> None:
        self.line = stmt.line or self.line
        match stmt:
            case nodes.Evaluate(value=nodes.Call(op=op, args=(first, *rest)) as call) if op in (
                INIT,
                UPDATE,
                FINALIZE,
            ):
                self._step(call, first, around, parallel=parallel)
                for part in rest:
                    self._expression(part)
                return
            case nodes.Store(buffer=buffer) if buffer.storage in self.names:
                raise self.refuse(buffer.storage, _("a store to the reducer '{name}': use T.reducer_update"))
        for position, part in enumerate(nodes.children(stmt)):
            if isinstance(part, nodes.Stmt):
                inner = around if isinstance(stmt, nodes.Seq) else (*around, (stmt, position))
                inside = parallel or (isinstance(stmt, nodes.For) and stmt.kind == nodes.PARALLEL)
                self.statement(part, inner, parallel=inside)
            else:
                self._expression(part)

    def _expression(self, node: nodes.Expr) -> None:
        for part in nodes.walk(node):
            if isinstance(part, nodes.Load | nodes.Region) and part.buffer.storage in self.names:
                raise self.refuse(
                    part.buffer.storage,
                    _("a read of the reducer '{name}': only what T.finalize_reducer gives has a value"),
                )

    def _step(
        self, call: nodes.Call, first: nodes.Expr, around: tuple[tuple[nodes.Stmt, int], ...], *, parallel: bool
    ) -> None:
        storage = first.buffer.storage if isinstance(first, nodes.Load | nodes.Region) else None
        if storage not in self.names:
            raise Unsupported(_("T.reducer_* of something that is no reducer"), self.line)
        for index in first.indices if isinstance(first, nodes.Load) else ():
            self._expression(index)
        phase = self.phase[storage]
        if call.op == INIT:
            if phase != NEW or parallel:
                raise self.refuse(storage, _("T.reducer_init of '{name}' a second time, or in T.Parallel"))
            self.phase[storage], self.opened[storage] = OPEN, around
        elif phase != OPEN or (call.op == UPDATE) != parallel:
            raise self.refuse(
                storage,
                _("'{name}' is updated outside T.Parallel, or not between T.reducer_init and T.finalize_reducer"),
            )
        elif call.op == FINALIZE:
            start = self.opened[storage]
            if around[: len(start)] != start or not all(isinstance(s, nodes.If) for s, _n in around[len(start) :]):
                raise self.refuse(storage, _("T.finalize_reducer of '{name}' elsewhere than its T.reducer_init"))
            self.phase[storage] = CLOSED
