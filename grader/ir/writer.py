"""Writes a kernel as JSON that TVM loads, from typed nodes alone.

What TVM, the compiler and the generated CUDA see is what stands here: names are counted ("s0", "f1", "i2"),
the host part around the kernel is always the same, and of the original only structure, numbers, operators
and listed options remain. Equal kernels give equal text, whatever they were called: it serves as a cache key.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from grader.ir import nodes

_HARMLESS = re.compile(r"[A-Za-z0-9_.]{1,64}")

_PREFIX = {
    nodes.GLOBAL: "g",
    nodes.SHARED: "s",
    nodes.SHARED_DYNAMIC: "s",
    nodes.FRAGMENT: "f",
    nodes.LOCAL: "l",
    nodes.VARIABLE: "v",
    nodes.REDUCER: "r",
}

#: Calls that are there to tell something: the simulator does. They are not written, nor are prints.
_SPOKEN = frozenset({"tl.device_assert", "tl.device_assert_with_msg"})


def write(kernel: nodes.Kernel, *, lines: bool = True) -> str:
    """The kernel as TVM's JSON. With ``lines``, statements keep their line numbers (never their file)."""
    return _Writer(lines).function(kernel)


def written_names(kernel: nodes.Kernel) -> dict[str, nodes.Buffer | nodes.Storage | nodes.Var]:
    """What each name in the text of ``write`` stands for: a compiler's message speaks of "buffer2" and "i0"."""
    writer = _Writer(lines=False)
    writer.function(kernel)
    return {
        writer.nodes[writer.nodes[index]["data"]["name"]]["data"]: node
        for node, index in writer._made.items()
        if isinstance(node, nodes.Buffer | nodes.Storage | nodes.Var)
    }


class _Writer:
    def __init__(self, lines: bool) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.lines = lines
        self._made: dict[object, int] = {}
        self._counts: dict[str, int] = {}
        self.none = self.add("None")
        self.empty_map = self.add("ffi.Map", [])

    def add(self, kind: str, data: Any = None) -> int:
        self.nodes.append({"type": kind} if data is None else {"type": kind, "data": data})
        return len(self.nodes) - 1

    def once(self, key: object, make: Callable[[], int]) -> int:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def fresh(self, prefix: str) -> int:
        count = self._counts.get(prefix, 0)
        self._counts[prefix] = count + 1
        return self.string(f"{prefix}{count}")

    # Plain values

    def string(self, text: str) -> int:
        # Every string here is ours or an exact entry of a list. Should one slip through all the same, it holds
        # nothing that could end a name, a comment or a line of source.
        if not _HARMLESS.fullmatch(text):
            raise TypeError(f"{text!r} is no string that a kernel may hold")
        return self.once(("string", text), lambda: self.add("ffi.String", text))

    def array(self, items: list[int]) -> int:
        return self.add("ffi.Array", items)

    def prim_type(self, dtype: str) -> int:
        return self.add("ir.PrimType", {"span": self.none, "dtype": dtype})

    def number(self, dtype: str, value: int | float | bool) -> int:
        if dtype == "uint64" and value >= 2**63:
            halves = [self.number("uint32", int(value) & 0xFFFFFFFF), self.number("uint32", int(value) >> 32)]
            return self._call(nodes.LARGE_NUMBER, dtype, halves, self.empty_map)
        kind = "ir.FloatImm" if dtype.startswith(("float", "bfloat", "custom")) else "ir.IntImm"
        number = float(value) if kind == "ir.FloatImm" else int(value)
        return self.add(kind, {"span": self.none, "dtype": dtype, "value": number})

    def int32(self, value: int) -> int:
        return self.number("int32", value)

    def span(self, line: nodes.Line | None) -> int:
        if line is None or not self.lines:
            return self.none
        source = self.once("source", lambda: self.add("ir.SourceName", "kernel"))
        position = {"line": line.number, "column": 1, "end_line": line.number, "end_column": 2}
        return self.once(("line", line.number), lambda: self.add("ir.Span", {"source_name": source, **position}))

    def options(self, annotations: dict[str, object]) -> int:
        if not annotations:
            return self.empty_map
        data: list[int] = []
        for name, value in sorted(annotations.items()):
            data += [self.string(name), self._option(value)]
        return self.add("ffi.Map", data)

    def _option(self, value: object) -> int:
        if isinstance(value, tuple):
            return self.array([self._option(item) for item in value])
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bool):
            return self.number("bool", value)
        if isinstance(value, int):
            return self.int32(value)
        raise TypeError(f"an option can't have the value {value!r}")

    def text(self, value: str) -> int:
        return self.add("tirx.StringImm", {"span": self.none, "dtype": "handle", "value": self.string(value)})

    # Expressions

    def expr(self, node: nodes.Expr) -> int:
        return self.once(node, lambda: self._expr(node))

    def exprs(self, items: tuple[nodes.Expr, ...]) -> list[int]:
        return [self.expr(item) for item in items]

    def _expr(self, node: nodes.Expr) -> int:
        base = {"span": self.none, "dtype": node.dtype}
        match node:
            case nodes.Const(dtype=dtype, value=value):
                return self.number(dtype, value)
            case nodes.Text(value=value):
                return self.add("tirx.StringImm", base | {"value": self.string(value)})
            case nodes.Var():
                return self.var(node)
            case nodes.Binary(op=op, a=a, b=b):
                parts = {"a": self.expr(a), "b": self.expr(b)}
                return self.add(f"tirx.{op}", base | parts)
            case nodes.Not(a=a):
                return self.add("tirx.Not", base | {"a": self.expr(a)})
            case nodes.Cast(value=value):
                return self.add("tirx.Cast", base | {"value": self.expr(value), "annotations": self.empty_map})
            case nodes.Select(condition=condition, true=true, false=false):
                parts = {
                    "condition": self.expr(condition),
                    "true_value": self.expr(true),
                    "false_value": self.expr(false),
                }
                return self.add("tirx.Select", base | parts)
            case nodes.Load(buffer=buffer, indices=indices):
                return self._load(buffer, indices)
            case nodes.Region(buffer=buffer, mins=mins, extents=extents, access=access):
                args = [self._load(buffer, mins), self.int32(access), *self.exprs(extents)]
                return self._call("tl.region", "handle", args, self.empty_map)
            case nodes.Call(op=op, dtype=dtype, args=args, annotations=annotations):
                return self._call(op, dtype, self.exprs(args), self.options(annotations))
        raise TypeError(f"not an expression: {node!r}")

    def var(self, node: nodes.Var, prefix: str = "i") -> int:
        def make() -> int:
            data = {"span": self.none, "dtype": node.dtype, "name": self.fresh(prefix)}
            return self.add("tirx.Var", data | {"type_annotation": self.prim_type(node.dtype)})

        return self.once(node, make)

    def _load(self, buffer: nodes.Buffer, indices: tuple[nodes.Expr, ...]) -> int:
        data = {
            "buffer": self.buffer(buffer),
            "indices": self.array(self.exprs(indices)),
            "predicate": self.none,
        }
        return self.add("tirx.BufferLoad", {"span": self.none, "dtype": buffer.dtype} | data)

    def _call(self, op: str, dtype: str, args: list[int], annotations: int) -> int:
        operator = self.once(("op", op), lambda: self._operator(op))
        data = {"op": operator, "args": self.array(args), "annotations": annotations}
        return self.add("tirx.Call", {"span": self.none, "dtype": dtype} | data)

    def _operator(self, name: str) -> int:
        if not _HARMLESS.fullmatch(name):
            raise TypeError(f"{name!r} is no operator")
        return self.add("ir.Op", name)

    # Buffers

    def storage(self, node: nodes.Storage, dtype: str) -> int:
        def make() -> int:
            pointer = {
                "span": self.none,
                "element_type": self.prim_type(dtype),
                "storage_scope": self.string(node.scope),
            }
            kind = self.add("ir.PointerType", pointer)
            data = {"span": self.none, "dtype": "handle", "name": self.fresh(_PREFIX[node.scope])}
            return self.add("tirx.Var", data | {"type_annotation": kind})

        return self.once(node, make)

    def buffer(self, node: nodes.Buffer) -> int:
        def make() -> int:
            storage = self.storage(node.storage, node.dtype)
            return self.add(
                "tirx.Buffer",
                {
                    "data": storage,
                    "dtype": node.dtype,
                    "shape": self.array(self.exprs(node.shape)),
                    "strides": self.array(self.exprs(node.strides)),
                    "axis_separators": self.array([]),
                    "elem_offset": self.int32(0),
                    "name": self.fresh("buffer"),
                    "data_alignment": 64,
                    "offset_factor": 1,
                    "buffer_type": 1,
                    "span": self.none,
                },
            )

        return self.once(node, make)

    # Statements

    def stmt(self, node: nodes.Stmt) -> int:
        span = {"span": self.span(node.line)}
        match node:
            case nodes.Seq(body=body):
                return self.add("tirx.SeqStmt", span | {"seq": self.array([self.stmt(item) for item in body])})
            case nodes.Bind(var=var, value=value):
                return self.add("tirx.Bind", span | {"var": self.var(var), "value": self.expr(value)})
            case nodes.Evaluate(value=nodes.Print()):
                return self.add("tirx.Evaluate", span | {"value": self.int32(0)})
            case nodes.Evaluate(value=nodes.Call(op=op)) if op in _SPOKEN:
                return self.add("tirx.Evaluate", span | {"value": self.int32(0)})
            case nodes.Evaluate(value=value):
                return self.add("tirx.Evaluate", span | {"value": self.expr(value)})
            case nodes.Store(buffer=buffer, indices=indices, value=value):
                data = {
                    "buffer": self.buffer(buffer),
                    "value": self.expr(value),
                    "indices": self.array(self.exprs(indices)),
                    "predicate": self.none,
                }
                return self.add("tirx.BufferStore", span | data)
            case nodes.If(condition=condition, then=then, otherwise=otherwise):
                data = {
                    "condition": self.expr(condition),
                    "then_case": self.stmt(then),
                    "else_case": self.none if otherwise is None else self.stmt(otherwise),
                }
                return self.add("tirx.IfThenElse", span | data)
            case nodes.For(var=var, min=low, extent=extent, kind=kind, body=body, annotations=annotations):
                data = self._loop(self.var(var), self.expr(low), self.expr(extent), kind)
                options = self.options(annotations)
                return self.add("tirx.For", span | data | {"body": self.stmt(body), "annotations": options})
            case nodes.While(condition=condition, body=body):
                return self.add("tirx.While", span | {"condition": self.expr(condition), "body": self.stmt(body)})
            case nodes.Swizzle(kind=kind, size=size, body=body):
                pattern = [self.text(kind), self.int32(size)]
                value = self._call("tirx.tvm_tuple", "handle", pattern, self.empty_map)
                return self._attribute("threadblock_swizzle_pattern", value, body, span)
            case nodes.Hint(key=key, value=value, body=body):
                return self._attribute(key, self.int32(value), body, span)
        raise TypeError(f"not a statement: {node!r}")

    def _attribute(self, key: str, value: int, body: nodes.Stmt, span: dict[str, int]) -> int:
        data = {"node": self.none, "attr_key": self.string(key), "value": value, "body": self.stmt(body)}
        return self.add("tirx.AttrStmt", span | data)

    def _loop(self, var: int, low: int, extent: int, kind: int, binding: int | None = None) -> dict[str, Any]:
        return {
            "loop_var": var,
            "min": low,
            "extent": extent,
            "kind": kind,
            "thread_binding": self.none if binding is None else binding,
            "step": self.none,
        }

    # The host part

    def function(self, kernel: nodes.Kernel) -> str:
        handles, buffer_map = [], []
        for param in kernel.params:
            data = {"span": self.none, "dtype": "handle", "name": self.fresh("p")}
            handles.append(self.add("tirx.Var", data | {"type_annotation": self.prim_type("handle")}))
            buffer_map += [handles[-1], self.buffer(param)]
        struct_info = self._struct_info(kernel)
        name = [self.string("global_symbol"), self.string("main")]
        attrs = self.add("ir.DictAttrs", {"__dict__": self.add("ffi.Map", name)})
        returns = self.add("ir.TupleType", {"span": self.none, "fields": self.array([])})
        root = self.add(
            "tirx.PrimFunc",
            {
                "span": self.none,
                "struct_info_": struct_info,
                "attrs": attrs,
                "params": self.array(handles),
                "ret_type": returns,
                "buffer_map": self.add("ffi.Map", buffer_map),
                "body": self._block("root", [], self.empty_map, self._grid(kernel)),
            },
        )
        document = {"root_index": root, "nodes": self.nodes, "metadata": {"tvm_version": "0.25.dev0"}}
        return json.dumps(document, separators=(",", ":"))

    def _struct_info(self, kernel: nodes.Kernel) -> int:
        params = []
        for param in kernel.params:
            rank = len(param.shape)
            values = self.array(self.exprs(tuple(_as_int64(extent) for extent in param.shape)))
            info = self.add("relax.ShapeStructInfo", {"span": self.none, "values": values, "ndim": rank})
            shape = self.add("relax.expr.ShapeExpr", {"span": self.none, "struct_info_": info, "values": values})
            data = {"shape": shape, "dtype": param.dtype, "vdevice": self.none, "ndim": rank}
            params.append(self.add("relax.TensorStructInfo", {"span": self.none} | data))
        nothing = self.add("relax.TupleStructInfo", {"span": self.none, "fields": self.array([])})
        data = {"params": self.array(params), "ret": nothing, "derive_func": self.none, "purity": False}
        return self.add("relax.FuncStructInfo", {"span": self.none} | data)

    def _grid(self, kernel: nodes.Kernel) -> int:
        # Variables are numbered outside in; TVM wants the nodes inside out.
        block_vars = [self.var(dimension.var, "b") for dimension in kernel.grid]
        statements = []
        for axis, var in enumerate(kernel.thread_vars):
            index = self._call("tl.launch_thread_idx", "int32", [self.int32(axis)], self.empty_map)
            bind = {"span": self.none, "var": self.var(var, "t"), "value": index}
            statements.append(self.add("tirx.Bind", bind))
        allocations = [self.buffer(buffer) for buffer in kernel.allocations]
        options = [
            self.string("tl.launch_threads"),
            self.array([self.int32(count) for count in kernel.threads]),
        ]
        options += self._marks(kernel)
        # kernel.layouts are left out: TVM's loader can't restore a layout (it knows its index variables by
        # identity), so the compiler infers one, as it does where none is annotated. Results don't depend on it.
        body = self.stmt(kernel.body)
        statements.append(self._block("tilelang_root", allocations, self.add("ffi.Map", options), body))
        inner = self.add("tirx.SeqStmt", {"span": self.none, "seq": self.array(statements)})
        for dimension, var in reversed(list(zip(kernel.grid, block_vars, strict=True))):
            tag = self.string(f"blockIdx.{dimension.axis}")
            data = {
                "span": self.none,
                "dtype": "int32",
                "name": tag,
                "type_annotation": self.prim_type("int32"),
            }
            binding = self.add(
                "tirx.IterVar",
                {"dom": self.none, "var": self.add("tirx.Var", data), "iter_type": 1, "thread_tag": tag},
            )
            loop = self._loop(var, self.int32(0), self.expr(dimension.extent), nodes.THREAD, binding)
            inner = self.add(
                "tirx.For", {"span": self.none} | loop | {"body": inner, "annotations": self.empty_map}
            )
        return inner

    def _marks(self, kernel: nodes.Kernel) -> list[int]:
        """What the kernel's block says of buffers, but for hints for the L2 cache, which concern the device."""
        dtypes = {buffer.storage: buffer.dtype for buffer in (*kernel.params, *kernel.allocations)}

        def by_storage(items: dict[nodes.Storage, int]) -> int:
            pairs = ((self.storage(storage, dtypes[storage]), value) for storage, value in items.items())
            return self.add("ffi.Map", [item for pair in pairs for item in pair])

        marks: list[int] = []
        if kernel.safe_values:
            values = {storage: self.expr(value) for storage, value in kernel.safe_values.items()}
            marks += [self.string("safe_value_map"), by_storage(values)]
        for key, own in (("reducer_info_v2", True), ("reducer_info", False)):
            # Those of TileLang's older form are fragments.
            found = {s: name for s, name in kernel.reducers.items() if (s.scope == nodes.REDUCER) == own}
            infos = {storage: self._reducer(name, own) for storage, name in found.items()}
            marks += [self.string(key), by_storage(infos)] if infos else []
        if kernel.overlapping:
            names = [self.storage(storage, dtypes[storage]) for storage in kernel.overlapping]
            marks += [self.string("tl.non_restrict_params"), self.array(names)]
        return marks

    def _reducer(self, name: str, own: bool) -> int:
        fields = {"op": name} if own else {"op": name, "rep": "all"}
        return self.add("ffi.Map", [self.string(text) for pair in fields.items() for text in pair])

    def _block(self, name: str, allocations: list[int], annotations: int, body: int) -> int:
        block = self.add(
            "tirx.SBlock",
            {
                "span": self.none,
                "iter_vars": self.array([]),
                "reads": self.array([]),
                "writes": self.array([]),
                "name_hint": self.string(name),
                "alloc_buffers": self.array(allocations),
                "match_buffers": self.array([]),
                "annotations": annotations,
                "init": self.none,
                "body": body,
            },
        )
        true = self.number("bool", True)
        data = {"iter_values": self.array([]), "predicate": true, "block": block}
        return self.add("tirx.SBlockRealize", {"span": self.none} | data)


def _as_int64(extent: nodes.Expr) -> nodes.Expr:
    return nodes.Const("int64", extent.value) if isinstance(extent, nodes.Const) else extent
