"""The IR's reader believes nothing, and its writer repeats nothing but structure."""

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
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


def read_mutated(text: str, seed: int) -> ir.Kernel | None:
    """The kernel of a text that was mutated in every way that JSON allows, or None if it is malformed."""
    chosen = random.Random(seed)
    document = json.loads(text)
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
        return ir.read(json.dumps(document))
    except ir.Malformed:
        return None


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_mutation_raises_anything_but_malformed(seed):
    """The law of the reader: a kernel, or Malformed."""
    kernel = read_mutated(_BASE, seed)
    assert kernel is None or ir.read(ir.write(kernel))


_BASE = json_of(matmul.get_tir(64, 64, 64))


# What kernels say of their buffers, and prints


def annotated(T):
    @T.prim_func
    def main(X: T.Tensor((64, 64), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(2, threads=128) as bx:
            T.annotate_min_blocks_per_sm(2)
            T.annotate_safe_value({X: 7.0})
            T.annotate_restrict_buffers(X, Y)
            x = T.alloc_shared((32, 64), "float32")
            y = T.alloc_fragment((32,), "float32")
            z = T.alloc_fragment((32,), "float32")
            acc = T.alloc_reducer((32,), "float32", op="max")
            old = T.alloc_reducer((32,), "float32", op="sum", replication="all")
            here = X[bx * 32 : bx * 32 + 32, 0:64]
            T.copy(here, x, prefer_instruction="tma", eviction_policy="evict_last")
            T.reducer_init(acc)
            T.clear(old)
            for i, j in T.Parallel(32, 64):
                T.reducer_update(acc[i], x[i, j])
            for i, j in T.Parallel(32, 64):
                old[i] += x[i, j]
            T.finalize_reducer(acc, y)
            T.finalize_reducer(old)
            T.device_assert(bx < 2, 'a "message" */')
            T.print(y, msg='x"); system("id"); //')
            T.print(bx)
            T.cumsum(x, dim=1)
            T.reduce_max(x, z, dim=1)
            T.copy(y, Y[bx * 32])
            T.copy(z, Y[bx * 32])
            T.copy(old, Y[bx * 32])

    return main


@pytest.fixture(scope="module")
def annotated_json() -> str:
    import warnings

    import tilelang.language as T

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return json_of(annotated(T))


def test_what_a_kernel_says_of_its_buffers_is_read(annotated_json):
    kernel = ir.read(annotated_json)
    assert {s.name: v.value for s, v in kernel.safe_values.items()} == {"X": 7.0}
    assert {s.name: (s.scope, kind) for s, kind in kernel.reducers.items()} == {
        "acc": (nodes.REDUCER, "max"),
        "old": (nodes.FRAGMENT, "sum"),
    }
    assert [storage.name for storage in kernel.overlapping] == ["X", "Y"]
    hints = [node for node in nodes.walk(kernel.body) if isinstance(node, nodes.Hint)]
    assert [(hint.key, hint.value) for hint in hints] == [("tl.min_blocks_per_sm", 2)]
    copy = next(n for n in nodes.walk(kernel.body) if isinstance(n, nodes.Call) and n.op == "tl.tileop.copy")
    assert copy.annotations == {"prefer_instruction": "tma", "eviction_policy": 2}
    prints = [node for node in nodes.walk(kernel.body) if isinstance(node, nodes.Print)]
    assert [(p.message, p.name, p.value is None) for p in prints] == [
        ('x"); system("id"); //', "y", False),
        ("expr<bx>", "", False),
    ]


def test_what_is_written_of_it_lowers_and_says_nothing_of_the_students(annotated_json):
    import tilelang
    from tilelang import tvm

    written = ir.write(ir.read(annotated_json))
    assert ir.write(ir.read(written)) == written
    assert not any(word in written for word in ("system", "message", "debug_print", "assert"))
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}, host="c")
    with target:
        source = tilelang.lower(tvm.ir.load_json(written), target=target).kernel_source
    assert "__launch_bounds__(128, 2)" in source
    assert "AllReduce" in source


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_no_mutation_of_annotations_raises_anything_but_malformed(annotated_json, seed):
    kernel = read_mutated(annotated_json, seed)
    assert kernel is None or isinstance(kernel, ir.Kernel)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('"tma"', '"tma; x"', "option"),
        ('"max"', '"product"', "reducer"),
        ('"safe_value_map"', '"safer_value_map"', "safer_value_map"),
        ('"tl.min_blocks_per_sm"', '"tl.max_blocks_per_sm"', "max_blocks"),
    ],
)
def test_words_that_are_not_on_a_list_are_malformed(annotated_json, old, new, match):
    assert old in annotated_json
    with pytest.raises(ir.Malformed, match=match):
        ir.read(annotated_json.replace(old, new))


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


def test_two_kernels_in_one_function_are_said_to_be_two():
    import tilelang.language as T

    @T.prim_func
    def main(X: T.Tensor((32,), "float32"), Y: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            T.fill(X, 1)
        with T.Kernel(1, threads=32) as _by:
            T.fill(Y, 1)

    with pytest.raises(ir.Malformed, match=r"several T\.Kernel"):
        ir.read(json_of(main))
