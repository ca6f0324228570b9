"""Whatever IR it is given, a run ends in a Run, Unsupported or OverBudget. Kernels are damaged at random."""

import dataclasses
import random

import pytest
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
        return dataclasses.replace(node, **changed) if changed else node

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
        dtype = self.pick(DTYPES)
        value = self.pick(NUMBERS)
        if "float" in dtype:
            value = self.pick([0.0, 1.5, -1e30, float("inf"), float("nan")])
        return nodes.Const("int32" if self.random.random() < 0.5 and "float" not in dtype else dtype, value)


KERNELS = {
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
