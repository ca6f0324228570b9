"""Reads the JSON of a TileLang kernel into typed nodes, trusting nothing in it.

TVM writes a graph as a list of nodes, ``{"type": ..., "data": ...}``, that refer to others by index. TVM's own
loader must not see such text from a student: an index out of range kills the process, and some node types run
code when they are made. Here, every index, type and field is checked; the nodes must come in an order in which
each refers only to earlier ones (TVM writes them so), which rules out cycles; the tree, with shared nodes
counted each time they are used, is limited before anything walks it.
"""

import json
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from grader.ir import nodes
from grader.ir.late import settle
from grader.ir.nodes import Line
from grader.messages import _

MAX_TEXT = 16 * 2**20  # bytes of JSON
MAX_NODES = 200_000  # nodes in the list
MAX_TREE = 500_000  # nodes in the tree, shared ones counted at each use
MAX_DEPTH = 250
MAX_NAME = 64
MAX_LINE = 10**6
DEFAULT_THREADS = 128  # a block, where T.Kernel is given none: what TileLang's compiler for CUDA takes then

_DTYPES = frozenset(nodes.ITEM_SIZE) | {"handle"}
_SCOPES = frozenset(
    (
        nodes.GLOBAL,
        nodes.SHARED,
        nodes.SHARED_DYNAMIC,
        nodes.FRAGMENT,
        nodes.LOCAL,
        nodes.VARIABLE,
        nodes.REDUCER,
    )
)

#: What T.print calls -> how many arguments follow the name.
_PRINTS = {"debug_print_msg": 1, "debug_print_var": 2, "debug_print_buffer_value": 4}

#: Texts that an option may have.
_OPTION_TEXTS = frozenset({"tma", "cp_async", "sync"})

#: Options that hold a layout. It makes no difference to results, and TVM can't load one: it is left out.
_LAYOUTS = frozenset({"parallel_loop_layout"})

#: How reducers combine.
_REDUCERS = frozenset({"sum", "max", "min", "bitand", "bitor", "bitxor"})
MAX_MESSAGE = 200

T = TypeVar("T")


class Malformed(Exception):
    """The text is no kernel that can be judged: ``message`` says why, ``line`` where, if that is known.

    ``advice`` says what to try where a student can have written this without meaning harm.
    """

    def __init__(self, message: str, line: Line | None = None, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.advice = advice


def read(text: str | bytes) -> nodes.Kernel:
    """The kernel in TVM's JSON ``text``. Raises Malformed, and nothing else, whatever the text is."""
    return _Reader(_Graph(text)).kernel()


class _Graph:
    """The list of raw nodes, with indices, order and size of the tree checked."""

    def __init__(self, text: str | bytes) -> None:
        if len(text) > MAX_TEXT:
            raise Malformed(_("the kernel's IR is larger than {limit} MB").format(limit=MAX_TEXT // 2**20))
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Malformed(_("the kernel's IR is not valid JSON ({error})").format(error=error)) from None
        if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
            raise Malformed(_("the kernel's IR has no list of nodes"))
        self.nodes: list[Any] = document["nodes"]
        if len(self.nodes) > MAX_NODES:
            raise Malformed(_("the kernel's IR has more than {limit} nodes").format(limit=MAX_NODES))
        root = document.get("root_index")
        if type(root) is not int or not 0 <= root < len(self.nodes):
            raise Malformed(_("the kernel's IR names no root node"))
        self.root: int = root
        self._measure()

    def _measure(self) -> None:
        size, depth = [], []
        for index, raw in enumerate(self.nodes):
            if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
                raise Malformed(_("node {index} of the IR has no type").format(index=index))
            below = [ref for ref in _references(raw) if not _is_leaf_reference(self.nodes, ref)]
            for ref in below:
                if not 0 <= ref < index:
                    raise Malformed(
                        _("node {index} of the IR refers to node {ref}, which is not an earlier one").format(
                            index=index, ref=ref
                        )
                    )
            size.append(1 + sum(size[ref] for ref in below))
            depth.append(1 + max((depth[ref] for ref in below), default=0))
            if size[-1] > MAX_TREE:
                raise Malformed(
                    _("the kernel is too large: written out, an expression has over {limit} nodes").format(
                        limit=MAX_TREE
                    )
                )
            if depth[-1] > MAX_DEPTH:
                raise Malformed(_("the kernel is nested deeper than {limit} levels").format(limit=MAX_DEPTH))

    def type_of(self, index: int) -> str:
        return self.nodes[index]["type"]

    def data(self, index: int) -> Any:
        return self.nodes[index].get("data")


#: Fields that hold plain values; every other integer field refers to a node.
_PLAIN = {
    "ir.SourceName": None,
    "ir.Op": None,
    "ffi.String": None,
    "int": None,
    "float": None,
    "bool": None,
    "None": None,
    "ir.Span": {"line", "column", "end_line", "end_column"},
    "ir.IntImm": {"value", "dtype"},
    "ir.FloatImm": {"value", "dtype"},
    "tirx.Buffer": {"dtype", "data_alignment", "offset_factor", "buffer_type"},
    "tirx.For": {"kind"},
    "tirx.IterVar": {"iter_type"},
    "relax.ShapeStructInfo": {"ndim"},
    "relax.TensorStructInfo": {"ndim", "dtype"},
    "relax.FuncStructInfo": {"purity"},
}


def _references(raw: dict[str, Any]) -> list[int]:
    """The indices that a raw node refers to."""
    plain = _PLAIN.get(raw["type"], frozenset())
    data = raw.get("data")
    if plain is None or data is None:
        return []
    if isinstance(data, list):
        values = data
    elif isinstance(data, dict):
        values = [value for name, value in data.items() if name not in plain]
    else:
        raise Malformed(_("a node of type '{type}' of the IR has odd data").format(type=_clip(raw["type"])))
    return [value for value in values if type(value) is int]


def _is_leaf_reference(raw_nodes: list[Any], ref: int) -> bool:
    """True for a reference to a span or to nothing, which every node has and no tree walk follows."""
    if not 0 <= ref < len(raw_nodes):
        return False
    target = raw_nodes[ref]
    return isinstance(target, dict) and target.get("type") in ("ir.Span", "None", "ir.SourceName")


def _clip(text: object, limit: int = MAX_NAME) -> str:
    return "".join(c if c.isprintable() else "?" for c in str(text)[:limit])


class _Reader:
    """Walks the raw nodes from the root. ``self.line`` is the line of the statement at hand, for messages."""

    def __init__(self, graph: _Graph) -> None:
        self.graph = graph
        self.line: Line | None = None
        self.threads: tuple[int, int, int] = (1, 1, 1)
        self.thread_vars: tuple[nodes.Var, ...] = ()
        self._made: dict[tuple[str, int], Any] = {}

    # Raw access: each of these refuses what isn't of the expected kind.

    def refuse(self, message: str) -> NoReturn:
        raise Malformed(message, self.line)

    def fields(self, index: int, *types: str) -> dict[str, Any]:
        if self.graph.type_of(index) not in types:
            self.unexpected(index)
        data = self.graph.data(index)
        if not isinstance(data, dict):
            self.refuse(_("a node of type '{type}' has no fields").format(type=types[0]))
        return data

    def unexpected(self, index: int) -> NoReturn:
        kind = _clip(self.graph.type_of(index))
        if kind == "tirx.Ramp":  # tile[0:32] = ..., or = tile[0:32]
            raise Malformed(
                _("a slice stands where a single element is expected"),
                self.line,
                _("Move a part of a tensor by T.copy, or go over its elements with T.Parallel."),
            )
        self.refuse(_("the kernel has a node '{type}' where none is expected").format(type=kind))

    def ref(self, data: dict[str, Any], name: str) -> int:
        value = data.get(name)
        if type(value) is not int or not 0 <= value < len(self.graph.nodes):
            self.refuse(_("a node of the IR lacks its field '{name}'").format(name=name))
        return value

    def optional(self, data: dict[str, Any], name: str) -> int | None:
        index = self.ref(data, name)
        return None if self.graph.type_of(index) == "None" else index

    def absent(self, data: dict[str, Any], name: str) -> None:
        if name in data and self.optional(data, name) is not None:
            self.refuse(_("the kernel uses '{name}', which can't be judged").format(name=name))

    def array(self, index: int) -> list[int]:
        data = self.graph.data(index)
        if self.graph.type_of(index) != "ffi.Array" or not isinstance(data, list):
            self.unexpected(index)
        if not all(type(item) is int and 0 <= item < len(self.graph.nodes) for item in data):
            self.refuse(_("an array of the IR refers to nodes that don't exist"))
        return data

    def pairs(self, index: int) -> list[tuple[int, int]]:
        data = self.graph.data(index)
        if self.graph.type_of(index) != "ffi.Map" or not isinstance(data, list) or len(data) % 2:
            self.unexpected(index)
        if not all(type(item) is int and 0 <= item < len(self.graph.nodes) for item in data):
            self.refuse(_("a map of the IR refers to nodes that don't exist"))
        return list(zip(data[::2], data[1::2], strict=True))

    def string(self, index: int) -> str:
        data = self.graph.data(index)
        if self.graph.type_of(index) != "ffi.String" or not isinstance(data, str):
            self.unexpected(index)
        return data

    def name(self, index: int) -> str:
        return _clip(self.string(index))

    def dtype(self, data: dict[str, Any]) -> str:
        dtype = data.get("dtype")
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            self.refuse(_("the kernel uses the dtype '{dtype}', which can't be judged").format(dtype=_clip(dtype)))
        return dtype

    def once(self, role: str, index: int, make: Callable[[], T]) -> T:
        """Shared raw nodes become one object: variables and buffers are compared by identity.

        ``role`` keeps apart what one raw node may be read as: a hostile text can use it as several.
        """
        if (role, index) not in self._made:
            self._made[role, index] = make()
        return self._made[role, index]

    def span(self, data: dict[str, Any]) -> Line | None:
        index = self.optional(data, "span")
        if index is None:
            return None
        fields = self.fields(index, "ir.Span")
        source = self.ref(fields, "source_name")
        file, number = self.graph.data(source), fields.get("line")
        if self.graph.type_of(source) != "ir.SourceName" or not isinstance(file, str) or type(number) is not int:
            self.refuse(_("a source line of the IR can't be read"))
        if not 0 < number < MAX_LINE:
            return None
        return self.once("line", index, lambda: Line(file[:1024], number))

    # Expressions

    def expr(self, index: int) -> nodes.Expr:
        return self.once("expression", index, lambda: self._expr(index))

    def exprs(self, index: int) -> tuple[nodes.Expr, ...]:
        return tuple(self.expr(item) for item in self.array(index))

    def _expr(self, index: int) -> nodes.Expr:
        kind = self.graph.type_of(index)
        if kind.startswith("tirx.") and kind[5:] in nodes.BINARY:
            data = self.fields(index, kind)
            a, b = self.expr(self.ref(data, "a")), self.expr(self.ref(data, "b"))
            return nodes.Binary(self.dtype(data), kind[5:], a, b)
        match kind:
            case "ir.IntImm" | "ir.FloatImm":
                return self._number(kind, self.fields(index, kind))
            case "tirx.Var":
                return self.var(index)
            case "tirx.Cast":
                data = self.fields(index, kind)
                self._no_annotations(data)
                return nodes.Cast(self.dtype(data), self.expr(self.ref(data, "value")))
            case "tirx.Not":
                data = self.fields(index, kind)
                return nodes.Not(self.dtype(data), self.expr(self.ref(data, "a")))
            case "tirx.Select":
                data = self.fields(index, kind)
                parts = (self.expr(self.ref(data, n)) for n in ("condition", "true_value", "false_value"))
                return nodes.Select(self.dtype(data), *parts)
            case "tirx.BufferLoad":
                data = self.fields(index, kind)
                self.absent(data, "predicate")
                buffer = self.buffer(self.ref(data, "buffer"))
                return nodes.Load(buffer.dtype, buffer, self._indices(buffer, self.ref(data, "indices")))
            case "tirx.StringImm":
                return nodes.Text("handle", self.string(self.ref(self.fields(index, kind), "value")))
            case "tirx.Call":
                return self._call(self.fields(index, kind))
            case _:
                self.unexpected(index)

    def _number(self, kind: str, data: dict[str, Any]) -> nodes.Const:
        dtype, value = self.dtype(data), data.get("value")
        if kind == "ir.FloatImm":
            if type(value) not in (int, float) or not dtype.startswith(("float", "bfloat", "custom")):
                self.refuse(_("a number of the IR can't be read"))
            if type(value) is int and abs(value) > 2**63:
                self.refuse(_("a number of the IR is too large"))
            return nodes.Const(dtype, float(value))
        if dtype == "bool" and value in (0, 1):
            return nodes.Const(dtype, bool(value))
        if type(value) is not int or "int" not in dtype:
            self.refuse(_("a number of the IR can't be read"))
        # The simulator and the compiler would each make something else of a number that its dtype can't hold.
        low, high = nodes.integer_range(dtype)
        if not low <= value <= high:
            self.refuse(_("the number {value} does not fit {dtype}").format(value=_clip(value), dtype=dtype))
        return nodes.Const(dtype, value)

    def _no_annotations(self, data: dict[str, Any]) -> None:
        if self.pairs(self.ref(data, "annotations")):
            self.refuse(_("the kernel annotates a cast, which can't be judged"))

    def var(self, index: int) -> nodes.Var:
        data = self.fields(index, "tirx.Var")
        return self.once("variable", index, lambda: nodes.Var(self.dtype(data), self.name(self.ref(data, "name"))))

    def _indices(self, buffer: nodes.Buffer, index: int) -> tuple[nodes.Expr, ...]:
        indices = self.exprs(index)
        if len(indices) != len(buffer.shape):
            self.refuse(
                _("'{buffer}' has {rank} dimensions but is given {count} indices").format(
                    buffer=buffer.name, rank=len(buffer.shape), count=len(indices)
                )
            )
        return indices

    def _call(self, data: dict[str, Any]) -> nodes.Expr:
        op = self.ref(data, "op")
        name = self.graph.data(op)
        if self.graph.type_of(op) != "ir.Op" or not isinstance(name, str):
            self.refuse(_("the kernel calls something that is no operator of TileLang"))
        annotations = self.annotations(self.ref(data, "annotations"))
        args = self.array(self.ref(data, "args"))
        if name == "tl.region":
            return self._region(args, annotations)
        arguments = tuple(self.expr(arg) for arg in args)
        if name == nodes.LARGE_NUMBER and data.get("dtype") == "uint64":
            match arguments:
                case (nodes.Const(dtype="uint32", value=low), nodes.Const(dtype="uint32", value=high)):
                    return nodes.Const("uint64", high << 32 | low)
        # A call for its effect alone has no dtype; which calls may have none is admission's to say.
        dtype = "void" if data.get("dtype") in ("", "void") else self.dtype(data)
        return nodes.Call(dtype, _clip(name), arguments, annotations)

    def _print(self, function: str, args: list[nodes.Expr]) -> nodes.Print | None:
        """The call of one of the functions that T.print calls, or None."""
        if len(args) != _PRINTS.get(function) or not isinstance(args[0], nodes.Text):
            return None
        message, values = _clip(args[0].value, MAX_MESSAGE), args[1:]
        match values:
            case (nodes.Text(value=name), index, value):
                name = _clip(name)
            case _:
                name, index, value = "", None, values[0] if values else None
        if any(isinstance(part, nodes.Text | nodes.Region) for part in (index, value)):
            return None
        return nodes.Print("handle", message, name, index, value)

    def _region(self, args: list[int], annotations: dict[str, object]) -> nodes.Region:
        if annotations or len(args) < 2:
            self.refuse(_("a tile region of the IR can't be read"))
        start, access, *extents = (self.expr(arg) for arg in args)
        if (
            not isinstance(start, nodes.Load)
            or not isinstance(access, nodes.Const)
            or access.value not in (1, 2, 3)
        ):
            self.refuse(_("a tile region of the IR can't be read"))
        if len(extents) != len(start.indices):
            self.refuse(_("a tile region of '{buffer}' has the wrong rank").format(buffer=start.buffer.name))
        return nodes.Region("handle", start.buffer, start.indices, tuple(extents), int(access.value))

    def annotations(self, index: int) -> dict[str, object]:
        """Options of a call or loop: names to numbers, to lists of them, or to a few known texts."""
        named = ((self.name(key), value) for key, value in self.pairs(index))
        return {name: self._option(value) for name, value in named if name not in _LAYOUTS}

    def _option(self, index: int) -> object:
        data = self.graph.data(index)
        match self.graph.type_of(index):
            case "int" | "bool" | "float" if type(data) in (int, bool, float):
                return data
            case "ir.IntImm" | "ir.FloatImm" as kind:
                return self._number(kind, self.fields(index, kind)).value
            case "ffi.Array":
                return tuple(self._option(item) for item in self.array(index))
            case "tirx.StringImm":
                text = self.string(self.ref(self.fields(index, "tirx.StringImm"), "value"))
                if text not in _OPTION_TEXTS:
                    self.refuse(
                        _("the kernel has an option '{text}', which can't be judged").format(text=_clip(text))
                    )
                return text
            case _:
                self.unexpected(index)

    # Buffers

    def buffer(self, index: int) -> nodes.Buffer:
        return self.once("buffer", index, lambda: self._buffer(index))

    def _buffer(self, index: int) -> nodes.Buffer:
        data = self.fields(index, "tirx.Buffer")
        offset = self.expr(self.ref(data, "elem_offset"))
        if (
            not isinstance(offset, nodes.Const)
            or offset.value != 0
            or self.array(self.ref(data, "axis_separators"))
        ):
            self.refuse(_("the kernel uses a buffer that starts inside another, which can't be judged"))
        if data.get("buffer_type") != 1:
            self.refuse(_("the kernel uses a broadcasting buffer, which can't be judged"))
        dtype = self.dtype(data)
        if dtype == "handle":
            self.refuse(_("the kernel uses a buffer of pointers, which can't be judged"))
        shape, strides = self.exprs(self.ref(data, "shape")), self.exprs(self.ref(data, "strides"))
        if strides and len(strides) != len(shape):
            self.refuse(_("a buffer of the IR has another number of strides than of dimensions"))
        name = self.name(self.ref(data, "name"))
        return nodes.Buffer(name, dtype, shape, strides, self.storage(self.ref(data, "data")))

    def storage(self, index: int) -> nodes.Storage:
        data = self.fields(index, "tirx.Var")
        pointer = self.fields(self.ref(data, "type_annotation"), "ir.PointerType")
        scope = self.string(self.ref(pointer, "storage_scope")) or nodes.GLOBAL
        if scope not in _SCOPES:
            self.refuse(
                _("the kernel uses memory of the scope '{scope}', which can't be judged").format(
                    scope=_clip(scope)
                )
            )
        return self.once("memory", index, lambda: nodes.Storage(self.name(self.ref(data, "name")), scope))

    # Statements

    def stmt(self, index: int) -> nodes.Stmt:
        outer = self.line
        data = self.graph.data(index)
        if isinstance(data, dict) and "span" in data:
            self.line = self.span(data) or outer
        made = self._stmt(index)
        self.line = outer
        return made

    def _stmt(self, index: int) -> nodes.Stmt:
        kind, line = self.graph.type_of(index), self.line
        data = self.fields(index, kind)
        match kind:
            case "tirx.SeqStmt":
                items = tuple(self.stmt(item) for item in self.array(self.ref(data, "seq")))
                return nodes.Seq(line, settle(items))
            case "tirx.Bind" if self._names_a_region(data):
                return nodes.Evaluate(line, nodes.Const("int32", 0))
            case "tirx.Bind":
                return nodes.Bind(line, self.var(self.ref(data, "var")), self.expr(self.ref(data, "value")))
            case "tirx.Evaluate":
                value = self.expr(self.ref(data, "value"))
                match value:
                    case nodes.Call(op="tirx.call_extern", args=(nodes.Text(value=function), *args)):
                        value = self._print(function, args) or value
                return nodes.Evaluate(line, value)
            case "tirx.BufferStore":
                self.absent(data, "predicate")
                buffer = self.buffer(self.ref(data, "buffer"))
                indices = self._indices(buffer, self.ref(data, "indices"))
                return nodes.Store(line, buffer, indices, self.expr(self.ref(data, "value")))
            case "tirx.IfThenElse":
                condition, otherwise = (
                    self.expr(self.ref(data, "condition")),
                    self.optional(data, "else_case"),
                )
                then = self.stmt(self.ref(data, "then_case"))
                return nodes.If(line, condition, then, None if otherwise is None else self.stmt(otherwise))
            case "tirx.For":
                return self._for(data)
            case "tirx.While":
                condition = self.expr(self.ref(data, "condition"))
                return nodes.While(line, condition, self.stmt(self.ref(data, "body")))
            case "tirx.AttrStmt":
                return self._attribute(data)
            case _:
                self.unexpected(index)

    def _names_a_region(self, data: dict[str, Any]) -> bool:
        """``here = X[0:16]``: a let of a slice, which nothing refers to; whoever uses it has the slice itself."""
        var, value = self.ref(data, "var"), self.ref(data, "value")
        if self.graph.type_of(var) != "tirx.Var" or self.graph.type_of(value) != "tirx.BufferLoad":
            return False
        name, _x, lanes = str(self.fields(var, "tirx.Var").get("dtype")).rpartition("x")
        return name in nodes.ITEM_SIZE and lanes.isdecimal()

    def _for(self, data: dict[str, Any]) -> nodes.Stmt:
        kind = data.get("kind")
        if kind == nodes.THREAD:
            return self._by_thread(data)
        if type(kind) is not int or kind not in (nodes.SERIAL, nodes.PARALLEL, nodes.VECTORIZED, nodes.UNROLLED):
            self.refuse(_("the kernel binds a loop to threads inside its body, which can't be judged"))
        self.absent(data, "thread_binding")
        self.absent(data, "step")
        return nodes.For(
            self.line,
            self.var(self.ref(data, "loop_var")),
            self.expr(self.ref(data, "min")),
            self.expr(self.ref(data, "extent")),
            kind,
            self.stmt(self.ref(data, "body")),
            self.annotations(self.ref(data, "annotations")),
        )

    def _by_thread(self, data: dict[str, Any]) -> nodes.Seq:
        """``for tx in T.thread_binding(0, 128, thread="threadIdx.x")``: another name of the thread index."""
        binding = self.fields(self.ref(data, "thread_binding"), "tirx.IterVar")
        tag = self.string(self.ref(binding, "thread_tag"))
        axis = {"threadIdx.x": 0, "threadIdx.y": 1, "threadIdx.z": 2}.get(tag, -1)
        low, extent = self.expr(self.ref(data, "min")), self.expr(self.ref(data, "extent"))
        plain = isinstance(low, nodes.Const) and low.value == 0 and isinstance(extent, nodes.Const)
        if axis < 0 or not plain or extent.value != self.threads[axis]:
            self.refuse(_("the kernel binds a loop to threads that the block doesn't have, which can't be judged"))
        self.absent(data, "step")
        bind = nodes.Bind(self.line, self.var(self.ref(data, "loop_var")), self.thread_vars[axis])
        return nodes.Seq(self.line, (bind, self.stmt(self.ref(data, "body"))))

    def _attribute(self, data: dict[str, Any]) -> nodes.Stmt:
        key = self.name(self.ref(data, "attr_key"))
        if key not in ("threadblock_swizzle_pattern", "tl.min_blocks_per_sm"):
            self.refuse(_("the kernel uses the attribute '{key}', which can't be judged").format(key=key))
        value = self.expr(self.ref(data, "value"))
        match value:
            case nodes.Const(value=int(number)) if key == "tl.min_blocks_per_sm" and 0 < number < 2**16:
                return nodes.Hint(self.line, key, int(number), self.stmt(self.ref(data, "body")))
            case nodes.Call(op="tirx.tvm_tuple", args=(nodes.Text(value=pattern), nodes.Const(value=int(size)))):
                if key == "threadblock_swizzle_pattern":
                    return nodes.Swizzle(self.line, pattern, size, self.stmt(self.ref(data, "body")))
        self.refuse(_("the attribute '{key}' of the kernel can't be read").format(key=key))

    # The host part around T.Kernel, whose form is always the same

    def kernel(self) -> nodes.Kernel:
        function = self.fields(self.graph.root, "tirx.PrimFunc")
        self.line = start = self.span(function)
        handles = self.array(self.ref(function, "params"))
        bound = dict(self.pairs(self.ref(function, "buffer_map")))
        params, sizes = [], []
        for handle in handles:
            if handle in bound:
                params.append(self.buffer(bound[handle]))
            else:
                sizes.append(self.var(handle))
        for param in params:
            for extent in param.shape:
                if isinstance(extent, nodes.Var) and extent not in sizes:
                    sizes.append(extent)
        block = self._block(self.ref(function, "body"))
        if self.array(self.ref(block, "alloc_buffers")):
            self.refuse(_("the kernel allocates memory outside T.Kernel"))
        grid, inner = self._grid(self.ref(block, "body"))
        self.thread_vars, body = self._threads(inner)
        root = self._block(body)
        allocations = tuple(self.buffer(item) for item in self.array(self.ref(root, "alloc_buffers")))
        self.threads, layouts, marks = self._block_options(self.ref(root, "annotations"))
        around = dict(self._named(self.ref(block, "annotations")))
        if "tl.non_restrict_params" in around:
            marks["overlapping"] = self._storages(around["tl.non_restrict_params"])
        owned = {buffer.storage for buffer in (*params, *allocations)}
        if not owned.issuperset(storage for found in marks.values() for storage in found):
            self.refuse(_("the kernel annotates a buffer that it doesn't have"))
        return nodes.Kernel(
            params=tuple(params),
            sizes=tuple(sizes),
            grid=grid,
            threads=self.threads,
            thread_vars=self.thread_vars,
            allocations=allocations,
            layouts=layouts,
            body=self.stmt(self.ref(root, "body")),
            line=start,
            **marks,
        )

    def _block(self, index: int) -> dict[str, Any]:
        realize = self._expect(index, "tirx.SBlockRealize")
        predicate = self.expr(self.ref(realize, "predicate"))
        block = self._expect(self.ref(realize, "block"), "tirx.SBlock")
        plain = isinstance(predicate, nodes.Const) and predicate.value is True
        empty = not self.array(self.ref(block, "iter_vars")) and not self.array(self.ref(block, "match_buffers"))
        if not plain or not empty or self.array(self.ref(realize, "iter_values")):
            self.refuse(_("the kernel is written with T.block, which can't be judged"))
        self.absent(block, "init")
        return block

    def _expect(self, index: int, kind: str) -> dict[str, Any]:
        if self.graph.type_of(index) != kind:
            self.refuse(_("the kernel does something outside its (one) T.Kernel block, which can't be judged"))
        return self.fields(index, kind)

    def _grid(self, index: int) -> tuple[tuple[nodes.Grid, ...], int]:
        grid = []
        while self.graph.type_of(index) == "tirx.For":
            data = self.fields(index, "tirx.For")
            if data.get("kind") != nodes.THREAD:
                break
            self.line = self.span(data) or self.line
            binding = self.fields(self.ref(data, "thread_binding"), "tirx.IterVar")
            tag = self.string(self.ref(binding, "thread_tag"))
            start = self.expr(self.ref(data, "min"))
            if not (isinstance(start, nodes.Const) and start.value == 0) or self.annotations(
                self.ref(data, "annotations")
            ):
                self.refuse(_("the kernel's grid can't be read"))
            axis = tag.removeprefix("blockIdx.")
            if len(grid) == 3 or axis != "xyz"[len(grid)]:
                self.refuse(_("the kernel's grid uses '{tag}', which can't be judged").format(tag=_clip(tag)))
            var = self.var(self.ref(data, "loop_var"))
            grid.append(nodes.Grid(var, axis, self.expr(self.ref(data, "extent"))))
            index = self.ref(data, "body")
        if not grid and self.graph.type_of(index) == "tirx.SeqStmt":
            self.refuse(
                _("the function has several T.Kernel blocks, or code around one: it must have one, and no more")
            )
        if not grid:
            self.refuse(_("the kernel has no T.Kernel block"))
        return tuple(grid), index

    def _threads(self, index: int) -> tuple[tuple[nodes.Var, nodes.Var, nodes.Var], int]:
        *binds, body = self.array(self.ref(self._expect(index, "tirx.SeqStmt"), "seq")) or [index]
        thread_vars = []
        for axis, item in enumerate(binds):
            bind = self._stmt(item) if self.graph.type_of(item) == "tirx.Bind" else None
            match bind:
                case nodes.Bind(
                    var=var, value=nodes.Call(op="tl.launch_thread_idx", args=(nodes.Const(value=n),))
                ) if n == axis:
                    thread_vars.append(var)
                case _:
                    self.refuse(
                        _("the kernel does something outside its (one) T.Kernel block, which can't be judged")
                    )
        if len(thread_vars) != 3:
            self.refuse(_("the kernel's thread indices can't be read"))
        return (thread_vars[0], thread_vars[1], thread_vars[2]), body

    def _named(self, index: int) -> list[tuple[str, int]]:
        return [(self.name(key), value) for key, value in self.pairs(index)]

    def _block_options(self, index: int) -> tuple[tuple[int, int, int], tuple[nodes.Layout, ...], dict[str, Any]]:
        """Threads a block, layouts, and what else T.Kernel's block says of buffers: fields of nodes.Kernel."""
        threads: tuple[int, ...] = (DEFAULT_THREADS, 1, 1)
        layouts: tuple[nodes.Layout, ...] = ()
        marks: dict[str, Any] = {}
        for key, value in self._named(index):
            match key:
                case "tl.launch_threads":
                    counts = self._option(value)
                    if (
                        not isinstance(counts, tuple)
                        or len(counts) != 3
                        or not all(type(n) is int and n > 0 for n in counts)
                    ):
                        self.refuse(_("the kernel's number of threads can't be read"))
                    threads = counts
                case "layout_map":
                    layouts = tuple(self._layout(k, v) for k, v in self.pairs(value))
                case "safe_value_map":
                    marks["safe_values"] = {self.storage(k): self._safe_value(v) for k, v in self.pairs(value)}
                case "l2_hit_ratio_map":
                    marks["l2_hit_ratios"] = {self.storage(k): self._ratio(v) for k, v in self.pairs(value)}
                case "reducer_info" | "reducer_info_v2":
                    found = {self.storage(k): self._combination(v) for k, v in self.pairs(value)}
                    marks["reducers"] = marks.get("reducers", {}) | found
                case "tl.non_restrict_params":
                    marks["overlapping"] = self._storages(value)
                case other:
                    self.refuse(
                        _("the kernel uses the annotation '{name}', which can't be judged").format(name=other)
                    )
        return (threads[0], threads[1], threads[2]), layouts, marks

    def _storages(self, index: int) -> tuple[nodes.Storage, ...]:
        return tuple(self.storage(item) for item in self.array(index))

    def _safe_value(self, index: int) -> nodes.Expr:
        data = self.graph.data(index)
        match self.graph.type_of(index):
            case "bool" if type(data) is bool:
                return nodes.Const("bool", data)
            case "int" if type(data) is int and -(2**31) <= data < 2**31:
                return nodes.Const("int32", data)
            case "float" if type(data) in (int, float) and abs(data) < 2**63:
                return nodes.Const("float32", float(data))
        return self.expr(index)

    def _ratio(self, index: int) -> float:
        value = self._option(index)
        if not isinstance(value, float) or not 0 <= value <= 1:
            self.refuse(_("the kernel's annotation of the L2 cache can't be read"))
        return value

    def _combination(self, index: int) -> str:
        options = dict(self._named(index))
        name = self.string(options["op"]) if "op" in options else ""
        if name not in _REDUCERS:
            self.refuse(_("the kernel has a reducer whose operation can't be read"))
        return name

    def _layout(self, storage: int, layout: int) -> nodes.Layout:
        data = self.fields(layout, "tl.Layout")
        return nodes.Layout(
            self.storage(storage),
            self.exprs(self.ref(data, "input_size")),
            self.exprs(self.ref(data, "forward_index")),
        )
