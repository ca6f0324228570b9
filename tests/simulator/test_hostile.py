"""Whatever IR it is given, a run ends in a Run, Unsupported or OverBudget. Kernels are damaged at random."""

import dataclasses
import random

import pytest
import tilelang.language as T
import torch
from simulated_kernels import attention, matmul, odd, softmax, threads_own, vector_add

from grader.ir import nodes
from grader.simulator import Budget, OverBudget, Run, Unsupported, run

NUMBERS = [0, 1, -1, 2, 3, 7, 16, 33, 127, 255, 2**15, 2**31 - 1, -(2**31), 2**33, 2**62, -(2**63)]
DTYPES = ["int32", "int64", "uint8", "uint32", "uint64", "bool", "float16", "float32", "float64", "handle"]
DTYPES += ["float8_e4m3fn", "bfloat16", "int8"]
OPS = ["tl.tileop.copy", "tl.tileop.fill", "tl.tileop.gemm", "tl.tileop.reduce", "tirx.exp", "tirx.if_then_else"]
OPS += ["tirx.shift_left", "tirx.bitwise_and", "tirx.pow", "tl.infinity", "tirx.reinterpret", "tirx.break_loop"]


class Damage:
    """A copy of a kernel with some of its parts changed at random. Variables and buffers keep their identity."""

    def __init__(self, kernel: nodes.Kernel, seed: int) -> None:
        self.random = random.Random(seed)
        self.rate = self.random.choice((0.003, 0.01, 0.03))
        self.variables = [*kernel.thread_vars, *(dimension.var for dimension in kernel.grid)]
        self.buffers = [*kernel.params, *kernel.allocations]
        self.expressions: list[nodes.Expr] = []
        self.statements: list[nodes.Stmt] = []
        for node in nodes.walk(kernel.body):
            if isinstance(node, nodes.Var):
                self.variables.append(node)
            (self.statements if isinstance(node, nodes.Stmt) else self.expressions).append(node)
        self.guards = self.pick((0.0, 0.0, 0.5, 1.0))  # how many guards of stores are left out
        self.kernel = dataclasses.replace(
            kernel,
            body=self.change(kernel.body),
            grid=tuple(
                dataclasses.replace(dimension, extent=self.change(dimension.extent)) for dimension in kernel.grid
            ),
            allocations=tuple(self.buffer(buffer) for buffer in kernel.allocations),
        )

    def hit(self) -> bool:
        return self.random.random() < self.rate

    def pick(self, items):
        return self.random.choice(items)

    def change(self, node):
        if self.hit():
            return self.replace(node)
        if isinstance(node, nodes.If) and self.random.random() < self.guards:
            return self.change(node.then)
        changed = {}
        for item in dataclasses.fields(node):
            value = getattr(node, item.name)
            if isinstance(value, nodes.Expr | nodes.Stmt) and not isinstance(value, nodes.Var):
                changed[item.name] = self.change(value)
            elif isinstance(value, tuple) and value and isinstance(value[0], nodes.Expr | nodes.Stmt):
                items = [self.change(part) for part in value]
                if self.hit():
                    self.random.shuffle(items)
                if self.hit():
                    items = items[1:] if self.random.random() < 0.5 else [*items, items[0]]
                changed[item.name] = tuple(items)
            elif isinstance(value, nodes.Buffer) and self.hit():
                changed[item.name] = self.pick(self.buffers)
        node = dataclasses.replace(node, **changed) if changed else node
        return self.bind(node) if isinstance(node, nodes.Store) and self.random.random() < 0.1 else node

    def bind(self, store: nodes.Store) -> nodes.Stmt:
        """A store of a value that is bound to a name first, constants and what is computed of them too."""
        dtype = store.value.dtype
        constant = nodes.Const(dtype, 0.5 if "float" in dtype else True if dtype == "bool" else 2)
        names = [nodes.Var(dtype, f"n{number}") for number in range(3)]
        op = self.pick(["Add", "Mul", "Sub", "Min", "Max"])
        second = nodes.Cast(dtype, nodes.Cast(self.pick(DTYPES), names[0]))
        binds = [constant, second, nodes.Binary(dtype, op, names[0], names[1])]
        steps = [nodes.Bind(store.line, *pair) for pair in zip(names, binds, strict=True)]
        value = self.pick([names[2], nodes.Binary(dtype, op, store.value, names[2])])
        return nodes.Seq(store.line, (*steps, dataclasses.replace(store, value=value)))

    def buffer(self, buffer: nodes.Buffer) -> nodes.Buffer:
        if not self.hit():
            return buffer
        shape = tuple(nodes.Const("int32", self.pick(NUMBERS)) for _ in range(self.random.randrange(4)))
        return dataclasses.replace(buffer, shape=shape, dtype=self.pick(DTYPES))

    def replace(self, node):
        if isinstance(node, nodes.Stmt):
            if self.random.random() < 0.3:
                return nodes.While(node.line, nodes.Const("bool", True), node)
            if isinstance(node, nodes.For) and self.random.random() < 0.7:
                return dataclasses.replace(node, kind=self.random.randrange(4), extent=self.number())
            return self.pick(self.statements)
        match self.random.randrange(6):
            case 0:
                return self.number()
            case 1:
                return self.pick(self.variables)
            case 2:
                return dataclasses.replace(node, dtype=self.pick(DTYPES))
            case 3 if isinstance(node, nodes.Binary):
                return dataclasses.replace(node, op=self.pick(list(nodes.BINARY)))
            case 4 if isinstance(node, nodes.Call):
                return dataclasses.replace(node, op=self.pick(OPS))
            case _:
                return self.pick(self.expressions)

    def number(self) -> nodes.Const:
        dtype = self.pick(["int32", self.pick(DTYPES)])
        value = self.pick([number for number in NUMBERS if -(2**31) <= number < 2**31])
        if "float" in dtype or self.random.random() < 0.1:
            value = self.pick([0.0, 1.5, -1e30, float("inf"), float("nan")])
        elif self.random.random() < 0.1:
            value = self.pick(NUMBERS)
        return nodes.Const(dtype, value)


@T.prim_func
def unguarded(X: T.Tensor((10, 7), "float32"), Y: T.Tensor((10, 7), "float32")):
    with T.Kernel(2, 3, threads=32) as (bx, by):
        s = T.alloc_shared((4, 4), "float32")
        v = T.alloc_var("float32")
        half = T.float32(0.5)
        for i, j in T.Parallel(4, 4):
            s[i, j] = X[by * 4 + i, bx * 4 + j] * half
        v = s[0, 0] + half
        s[0, 1] = v
        for i, j in T.Parallel(4, 4):
            if by * 4 + i < 10:
                Y[by * 4 + i, bx * 4 + j] = s[i, j] + s[3 - i, 0] + X[by * 4 + i, 0]
            if bx * 4 + j < 7:
                Y[by * 4 + i, bx * 4 + j] += s[0, j] - X[i, bx * 4 + j - i]


KERNELS = {
    "unguarded": unguarded,
    "add": vector_add(300, 64),
    "matmul": matmul(40, 24, 20, blocks=(16, 16, 16)),
    "softmax": softmax(5, 33, 2),
    "attention": attention(1, 1, 32, 16, True, block=16),
    "odd": odd(24),
    "threads": threads_own(),
}


@pytest.mark.parametrize("name", KERNELS)
def test_damaged_kernels_end_in_order(read, name):
    kernel = read(KERNELS[name])
    ends = set()
    for seed in range(60):
        damaged = Damage(kernel, seed).kernel
        tensors = [
            torch.ones([extent.value for extent in buffer.shape], dtype=getattr(torch, buffer.dtype))
            for buffer in damaged.params
        ]
        try:
            ends.add(type(run(damaged, tensors, budget=Budget(steps=3000, seconds=1.0, bytes=1 << 24))))
        except (Unsupported, OverBudget) as error:
            ends.add(type(error) if str(error) else None)
    assert None not in ends
    assert {Run, Unsupported} <= ends
