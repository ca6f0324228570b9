"""Are all variables bound before they are used, and all buffers views of memory that the kernel has?

TVM takes a free variable for a further parameter of the kernel and a buffer over unknown memory for a pointer
from outside; a view that is larger than its storage reads its neighbours. None of these is admitted.
"""

from math import prod

from grader.admit.refusal import Refused
from grader.admit.signature import constants
from grader.ir import nodes
from grader.messages import _


def check_scopes(kernel: nodes.Kernel) -> None:
    _Scopes(kernel).check()


class _Scopes:
    def __init__(self, kernel: nodes.Kernel) -> None:
        self.kernel = kernel
        self.line = kernel.line
        self.memory: dict[nodes.Storage, int] = {}  # bytes
        for buffer in (*kernel.params, *kernel.allocations):
            self._own(buffer)

    def _own(self, buffer: nodes.Buffer) -> None:
        """A parameter or an allocation: it brings its storage with it."""
        if buffer.storage in self.memory:
            raise Refused(_("two buffers claim the same memory: '{name}'").format(name=buffer.name), self.line)
        is_param = buffer in self.kernel.params
        if is_param != (buffer.scope == nodes.GLOBAL):
            raise Refused(
                _("'{name}' is allocated in global memory, which a lab's kernel may not do").format(
                    name=buffer.name
                ),
                self.line,
                _("Use T.alloc_shared or T.alloc_fragment."),
            )
        if not is_param and buffer.strides:
            raise Refused(_("'{name}' is allocated with strides").format(name=buffer.name), self.line)
        self.memory[buffer.storage] = self._bytes(buffer)

    def _bytes(self, buffer: nodes.Buffer) -> int:
        shape = constants(buffer.shape)
        if shape is None or not all(0 < extent < 2**40 for extent in shape):
            raise Refused(
                _("the shape of '{name}' is not known when the kernel is compiled").format(name=buffer.name),
                self.line,
            )
        return prod(shape) * nodes.ITEM_SIZE[buffer.dtype]

    def check(self) -> None:
        bound: set[nodes.Var] = set(self.kernel.sizes) | set(self.kernel.thread_vars)
        for dimension in self.kernel.grid:
            self.expr(dimension.extent, bound)
            bound.add(dimension.var)
        for value in self.kernel.safe_values.values():
            self.expr(value, set())
        self.stmt(self.kernel.body, bound)

    def stmt(self, stmt: nodes.Stmt, bound: set[nodes.Var]) -> set[nodes.Var]:
        """Checks a statement and gives the variables that are bound after it, in the same sequence."""
        self.line = stmt.line or self.line
        match stmt:
            case nodes.Seq(body=body):
                inner = bound
                for item in body:
                    inner = self.stmt(item, inner)
            case nodes.Bind(var=var, value=value):
                self.expr(value, bound)
                return self._bind(var, bound)
            case nodes.Store(buffer=buffer, indices=indices, value=value):
                self.buffer(buffer)
                for expr in (*indices, value):
                    self.expr(expr, bound)
            case nodes.Evaluate(value=value):
                self.expr(value, bound)
            case nodes.If(condition=condition, then=then, otherwise=otherwise):
                self.expr(condition, bound)
                self.stmt(then, bound)
                if otherwise is not None:
                    self.stmt(otherwise, bound)
            case nodes.For(var=var, min=low, extent=extent, body=body):
                self.expr(low, bound)
                self.expr(extent, bound)
                self.stmt(body, self._bind(var, bound))
            case nodes.While(condition=condition, body=body):
                self.expr(condition, bound)
                self.stmt(body, bound)
            case nodes.Swizzle(body=body) | nodes.Hint(body=body):
                self.stmt(body, bound)
            case _:
                raise TypeError(f"not a statement: {stmt!r}")
        return bound

    def _bind(self, var: nodes.Var, bound: set[nodes.Var]) -> set[nodes.Var]:
        if var in bound:
            raise Refused(_("the variable '{name}' is bound twice").format(name=var.name), self.line)
        return bound | {var}

    def expr(self, expr: nodes.Expr, bound: set[nodes.Var]) -> None:
        for node in nodes.walk(expr):
            match node:
                case nodes.Var() if node not in bound:
                    raise Refused(
                        _("the variable '{name}' is used where it has no value").format(name=node.name),
                        self.line,
                    )
                case nodes.Load(buffer=buffer) | nodes.Region(buffer=buffer):
                    self.buffer(buffer)

    def buffer(self, buffer: nodes.Buffer) -> None:
        if buffer.storage not in self.memory:
            raise Refused(
                _("'{name}' is neither a parameter nor allocated in the kernel").format(name=buffer.name),
                self.line,
            )
        if constants(buffer.strides) is None:
            raise Refused(_("the strides of '{name}' are not constant").format(name=buffer.name), self.line)
        if self._bytes(buffer) > self.memory[buffer.storage] or self._span(buffer) > self.memory[buffer.storage]:
            raise Refused(
                _("the view '{name}' is larger than the memory it views").format(name=buffer.name), self.line
            )

    def _span(self, buffer: nodes.Buffer) -> int:
        """Bytes from a strided view's first element to the end of its last."""
        shape, strides = constants(buffer.shape), constants(buffer.strides)
        if not strides or shape is None:
            return 0
        if any(stride < 0 for stride in strides):
            raise Refused(_("the view '{name}' has a negative stride").format(name=buffer.name), self.line)
        last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        return (last + 1) * nodes.ITEM_SIZE[buffer.dtype]
