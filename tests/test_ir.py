"""The IR's reader believes nothing, and its writer repeats nothing but structure."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import eager_vector_add, json_of, matmul, vector_add

from grader import ir
from grader.ir import nodes


@pytest.fixture(scope="module")
def matmul_json() -> str:
    return json_of(matmul.get_tir(256, 256, 256))


def names(kernel: ir.Kernel) -> list[str]:
    return [buffer.name for buffer in (*kernel.params, *kernel.allocations)]


def test_a_matmul_is_read_as_it_was_written(matmul_json):
    kernel = ir.read(matmul_json)
    assert names(kernel) == ["A", "B", "C", "A_tile", "B_tile", "C_tile"]
    assert [buffer.scope for buffer in kernel.allocations] == [
        nodes.SHARED_DYNAMIC,
        nodes.SHARED_DYNAMIC,
        nodes.FRAGMENT,
    ]
    assert kernel.threads == (128, 1, 1)
    assert [(g.axis, g.extent.value) for g in kernel.grid] == [("x", 2), ("y", 2)]
    calls = [node.value.op for node in nodes.walk(kernel.body) if isinstance(node, nodes.Evaluate)]
    assert calls == [f"tl.tileop.{name}" for name in ("fill", "copy", "copy", "gemm", "copy")]
    (loop,) = (node for node in nodes.walk(kernel.body) if isinstance(node, nodes.For))
    assert (loop.extent.value, loop.annotations) == (8, {"num_stages": 3})


def test_both_styles_give_the_same_form():
    import torch

    eager = eager_vector_add.get_tir(torch.empty(1000, device="meta"), torch.empty(1000, device="meta"))
    kernel = ir.read(json_of(eager))
    assert [p.dtype for p in kernel.params] == ["float32"] * 3
    assert [p.shape[0].value for p in kernel.params] == [1000] * 3


def test_statements_carry_the_students_line():
    kernel = ir.read(json_of(vector_add.get_tir(1000)))
    (store,) = (node for node in nodes.walk(kernel.body) if isinstance(node, nodes.Store))
    assert store.line.file.endswith("kernels.py")
    assert ir.show(store.value) == "A[index] + B[index]"


def test_the_writer_is_stable_and_reads_back(matmul_json):
    written = ir.write(ir.read(matmul_json))
    assert ir.write(ir.read(written)) == written


def test_tvm_takes_what_the_writer_makes_for_the_same_kernel(matmul_json):
    from tilelang import tvm

    ours = tvm.ir.load_json(ir.write(ir.read(matmul_json)))
    theirs = tvm.ir.load_json(matmul_json).with_attr("global_symbol", "main")
    assert tvm.ir.structural_equal(ours, theirs, map_free_vars=True)


def test_names_do_not_pass_through(matmul_json):
    evil = 'x"\n#include "/etc/passwd"\n'
    document = json.loads(matmul_json)
    for node in document["nodes"]:
        if node["type"] == "ffi.String" and node["data"] in ("A", "A_tile", "bx", "k", "main", "A_handle"):
            node["data"] = evil + node["data"]
    written = ir.write(ir.read(json.dumps(document)))
    assert "include" not in written
    assert written == ir.write(ir.read(matmul_json))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        "[" * 100_000,
        "9" * 5000,
        '{"nodes": 3}',
        '{"root_index": 0, "nodes": []}',
        '{"root_index": 0, "nodes": [1]}',
        '{"root_index": 0, "nodes": [{"type": "tirx.PrimFunc"}]}',
        '{"root_index": 0, "nodes": [{"type": "ir.IntImm", "data": {"value": 1}}]}',
        '{"root_index": true, "nodes": [{"type": "None"}]}',
    ],
)
def test_what_is_no_kernel_is_malformed(text):
    with pytest.raises(ir.Malformed):
        ir.read(text)


@pytest.mark.parametrize("index", [-1, 10**9, 350])
def test_an_index_out_of_range_or_forward_is_malformed(matmul_json, index):
    document = json.loads(matmul_json)
    for node in document["nodes"]:
        if node["type"] == "tirx.Evaluate":
            node["data"]["value"] = index
            break
    with pytest.raises(ir.Malformed, match="refers"):
        ir.read(json.dumps(document))


@pytest.mark.parametrize("kind", ["ffi.Module", "ffi.Function", "tirx.Allocate", "script.Code"])
def test_an_unknown_node_is_named(matmul_json, kind):
    document = json.loads(matmul_json)
    for node in document["nodes"]:
        if node["type"] == "tirx.Evaluate":
            node["type"] = kind
            break
    with pytest.raises(ir.Malformed, match=kind):
        ir.read(json.dumps(document))


def test_deep_and_doubling_expressions_are_malformed(matmul_json):
    for base, count in (("a", 3000), ("both", 60)):
        document = json.loads(matmul_json)
        listed = document["nodes"]
        number = next(
            i for i, node in enumerate(listed) if node["type"] == "ir.IntImm" and node["data"]["dtype"] == "int32"
        )
        none = next(i for i, node in enumerate(listed) if node["type"] == "None")
        first = len(listed)
        for step in range(count):
            left = number if step == 0 else first + step - 1
            right = left if base == "both" else number
            listed.append({"type": "tirx.Add", "data": {"span": none, "dtype": "int32", "a": left, "b": right}})
        listed.append({"type": "tirx.Evaluate", "data": {"span": none, "value": len(listed) - 1}})
        root = dict(listed[document["root_index"]])
        listed.append(root | {"data": root["data"] | {"body": len(listed) - 1}})
        document["root_index"] = len(listed) - 1
        with pytest.raises(ir.Malformed, match=r"nested deeper|too large"):
            ir.read(json.dumps(document))


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_mutation_raises_anything_but_malformed(seed):
    """The law of the reader: a kernel, or Malformed. Mutations are of every kind that JSON allows."""
    chosen = random.Random(seed)
    document = json.loads(_BASE)
    for _ in range(chosen.randint(1, 4)):
        node = chosen.choice(document["nodes"])
        value = chosen.choice([None, -1, 0, 7, 10**12, 2.5, True, "x", [], [3], {}, {"a": 1}, float("nan")])
        match chosen.randint(0, 3):
            case 0:
                node["data"] = value
            case 1 if isinstance(node.get("data"), dict) and node["data"]:
                node["data"][chosen.choice(list(node["data"]))] = value
            case 2 if isinstance(node.get("data"), list) and node["data"]:
                node["data"][chosen.randrange(len(node["data"]))] = value
            case _:
                node["type"] = chosen.choice([n["type"] for n in document["nodes"]])
    try:
        kernel = ir.read(json.dumps(document))
    except ir.Malformed:
        return
    assert ir.read(ir.write(kernel))


_BASE = json_of(matmul.get_tir(64, 64, 64))


def test_a_number_from_2_to_the_63_on_is_a_number():
    import tilelang.language as T
    from tilelang import tvm

    @T.prim_func
    def main(Z: T.Tensor((1,), "uint64")):
        with T.Kernel(1, threads=32) as _bx:
            for i in T.Parallel(1):
                Z[i] = T.uint64(2**63 + 5)

    kernel = ir.read(json_of(main))
    for read in (kernel, ir.read(ir.write(kernel))):
        numbers = [part.value for part in nodes.walk(read.body) if isinstance(part, nodes.Const)]
        assert 2**63 + 5 in numbers
    assert "T.large_uint_imm(T.uint32(5), T.uint32(2147483648))" in str(tvm.ir.load_json(ir.write(kernel)))
