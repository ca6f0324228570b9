"""What is admitted and what is refused. Each refusal was an attack that worked against something less."""

import json
from dataclasses import replace

import pytest
import tilelang.language as T
from kernels import json_of, kernel_of, matmul, shape_of, vector_add

from grader import ir
from grader.admit import Refused, admit
from grader.catalog import Group, Kernel, Parameter, Role, Shape
from grader.ir import nodes
from grader.ir.rewrite import rewrite

N = 1024
ADD = kernel_of("lab01_vector_add")
SHAPE = Shape("test", {"N": N}, Group.TILES)


def refused(body, *, match: str, options=None) -> Refused:
    """Builds ``body`` into a vector-add kernel, and expects it to be refused."""
    with pytest.raises(Refused, match=match) as caught:
        admit(json_of(body), ADD, SHAPE, options)
    return caught.value


def add_kernel(inside):
    """A kernel with the right signature whose block runs ``inside(A, B, C, bx)``, a T.macro."""

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(4, threads=128) as bx:
            inside(A, B, C, bx)

    return main


def test_the_labs_kernels_are_admitted():
    admitted = admit(json_of(vector_add.get_tir(N)), ADD, SHAPE)
    assert "global_symbol" in admitted.json
    square = shape_of("lab02_matmul", "square")
    assert admit(json_of(matmul.get_tir(256, 256, 256)), kernel_of("lab02_matmul"), square).key != admitted.key


def test_slices_as_in_numpy_are_refused_with_what_to_write_instead():
    @T.macro
    def inside(A, B, C, bx):
        C[bx * 256 : bx * 256 + 256] = A[bx * 256 : bx * 256 + 256]

    error = refused(add_kernel(inside), match="a slice stands where a single element is expected")
    assert "T.copy" in error.advice
    assert error.line is not None


def test_names_and_files_of_the_student_do_not_reach_the_compiler():
    written = admit(
        json_of(matmul.get_tir(256, 256, 256)), kernel_of("lab02_matmul"), shape_of("lab02_matmul", "square")
    ).json
    strings = {
        node["data"] for node in json.loads(written)["nodes"] if node["type"] in ("ffi.String", "ir.SourceName")
    }
    assert not {text for text in strings if "tile" in text.replace("tilelang_root", "") or "/" in text}


def test_compiler_flags_in_the_functions_attributes_are_gone():
    document = json.loads(json_of(vector_add.get_tir(N)))
    for node in document["nodes"]:
        if (
            node["type"] == "ffi.Map"
            and node["data"]
            and document["nodes"][node["data"][0]]["data"] == "global_symbol"
        ):
            document["nodes"] += [{"type": "ffi.String", "data": "x"}]
    text = json.dumps(document).replace('"global_symbol"', '"tilelang_compile_flags"')
    assert "compile_flags" not in admit(text, ADD, SHAPE).json


@pytest.mark.parametrize(
    "options",
    [
        {"compile_flags": "['-ccbin', '/tmp/x']"},
        {"tl.ptxas_register_usage_level": 10},
        {"tl.enable_fast_math": "yes"},
        {"x" * 500: True},
    ],
)
def test_flags_and_unknown_options_are_refused(options):
    error = refused(vector_add.get_tir(N), match="compiler option", options=options)
    assert len(error.message) < 200


def test_allowed_options_stay():
    options = {"tl.enable_fast_math": True}
    assert admit(json_of(vector_add.get_tir(N)), ADD, SHAPE, options).options == options


@pytest.mark.parametrize("tag", ["blockIdx.x/*\n#include </etc/passwd>*/", "threadIdx.x", "vthread", "blockIdx.y"])
def test_a_thread_tag_is_one_of_three_words(tag):
    text = json_of(vector_add.get_tir(N)).replace('"blockIdx.x"', json.dumps(tag))
    with pytest.raises(Refused, match="grid uses"):
        admit(text, ADD, SHAPE)


def test_an_external_call_is_refused_by_name():
    @T.macro
    def inside(A, B, C, bx):
        T.evaluate(T.call_extern("int32", 'f(); system("id"); //', C[0]))

    refused(add_kernel(inside), match="call_extern")


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("call_packed", lambda: T.call_packed("ffi.ModuleLoadFromFile", "x")),
        ("tvm_call_packed|call_cpacked", lambda: T.call_cpacked("x", 1)),
        ("pdl_sync", T.pdl_sync),
        ("sync_grid", T.sync_grid),
        ("ptx|inline", lambda: T.ptx_wait_group(0)),
    ],
)
def test_hosts_clusters_and_raw_instructions_are_refused_by_name(name, call):
    @T.macro
    def inside(A, B, C, bx):
        T.evaluate(call())

    refused(add_kernel(inside), match=f"({name}).*not admitted")


def test_code_outside_the_kernel_block_is_refused():
    document = json.loads(json_of(vector_add.get_tir(N)))
    nodes = document["nodes"]
    none = next(i for i, node in enumerate(nodes) if node["type"] == "None")
    root = nodes[document["root_index"]]
    realize = nodes[root["data"]["body"]]
    block = nodes[realize["data"]["block"]]
    number = next(i for i, node in enumerate(nodes) if node["type"] == "ir.IntImm")
    tail = [nodes.pop() for _ in range(3)][::-1]  # block, realize, function: the last three
    assert [node["type"] for node in tail] == ["tirx.SBlock", "tirx.SBlockRealize", "tirx.PrimFunc"]
    start = len(nodes)
    nodes += [
        {"type": "tirx.Evaluate", "data": {"span": none, "value": number}},
        {"type": "ffi.Array", "data": [start, block["data"]["body"]]},
        {"type": "tirx.SeqStmt", "data": {"span": none, "seq": start + 1}},
        *tail,
    ]
    tail[0]["data"]["body"] = start + 2
    tail[1]["data"]["block"] = start + 3
    tail[2]["data"]["body"] = start + 4
    document["root_index"] = start + 5
    with pytest.raises(Refused, match=r"no T\.Kernel block|several T\.Kernel blocks|outside its"):
        admit(json.dumps(document), ADD, SHAPE)


def test_memory_between_launches_is_refused():
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(4, threads=128) as bx:
            cache = T.alloc_global((N,), "float32")
            for i in T.Parallel(256):
                C[bx * 256 + i] = cache[bx * 256 + i]

    refused(main, match=r"global memory|parameter|takes 4 tensors|outside")


def test_doubling_expressions_are_refused():
    @T.macro
    def inside(A, B, C, bx):
        v0 = A[bx] + 1.0
        v1 = v0 * v0
        v2 = v1 * v1
        v3 = v2 * v2
        v4 = v3 * v3
        v5 = v4 * v4
        v6 = v5 * v5
        v7 = v6 * v6
        v8 = v7 * v7
        v9 = v8 * v8
        v10 = v9 * v9
        C[bx] = v10

    refused(add_kernel(inside), match="grows beyond|too large")


def test_deep_pipelines_are_refused():
    refused_at = matmul.get_tir(256, 256, 256, num_stages=2000)
    with pytest.raises(Refused, match=r"num_stages|stages"):
        admit(json_of(refused_at), kernel_of("lab02_matmul"), shape_of("lab02_matmul", "square"))


def test_an_output_is_not_read_and_an_input_not_written():
    @T.macro
    def reads(A, B, C, bx):
        for i in T.Parallel(256):
            C[bx * 256 + i] = C[bx * 256 + i] + A[bx * 256 + i]

    @T.macro
    def writes(A, B, C, bx):
        for i in T.Parallel(256):
            A[bx * 256 + i] = B[bx * 256 + i]

    assert "fragment" in refused(add_kernel(reads), match="reads its output 'C'").advice
    refused(add_kernel(writes), match="writes to its input 'A'")


def test_conditions_on_the_poison_need_a_read_of_the_output():
    @T.macro
    def inside(A, B, C, bx):
        for i in T.Parallel(256):
            if C[bx * 256 + i] != C[bx * 256 + i]:
                C[bx * 256 + i] = A[bx * 256 + i] + B[bx * 256 + i]

    refused(add_kernel(inside), match="reads its output")


def test_assumptions_and_cache_hints_are_refused():
    @T.macro
    def assume(A, B, C, bx):
        T.assume(bx < 0)
        C[bx] = A[bx]

    refused(add_kernel(assume), match="can't be judged|not admitted")

    @T.prim_func
    def hint(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(4, threads=128) as bx:
            T.annotate_l2_hit_ratio({A: 1.0})
            C[bx] = A[bx]

    refused(hint, match="l2_hit_ratio|annotation")


def test_a_view_may_not_be_larger_than_its_memory():
    document = json.loads(json_of(vector_add.get_tir(N)))
    nodes = document["nodes"]
    load = next(node for node in nodes if node["type"] == "tirx.BufferLoad")
    original = nodes[load["data"]["buffer"]]
    sizes = [i for i, node in enumerate(nodes) if node["type"] == "ir.IntImm" and node["data"]["value"] == N]
    load_index = nodes.index(load)
    nodes[sizes[-1]]["data"]["value"] = N  # the last one is a parameter's own: leave it
    # A second buffer over the same data, twice as long, put in place of an unreferenced early node.
    spare = [i for i, node in enumerate(nodes[:load_index]) if node["type"] == "ffi.Map" and node["data"] == []][
        :3
    ]
    nodes[spare[0]] = {
        "type": "ir.IntImm",
        "data": {"span": load["data"]["span"], "dtype": "int32", "value": 2 * N},
    }
    for index, node in enumerate(nodes):  # whoever used the spare map gets another empty one
        if isinstance(node.get("data"), dict):
            for name, value in node["data"].items():
                if value == spare[0] and name in ("annotations",):
                    node["data"][name] = spare[1]
        assert index < len(nodes)
    shape = {"type": "ffi.Array", "data": [spare[0]]}
    strides = {"type": "ffi.Array", "data": []}
    view = {"type": "tirx.Buffer", "data": original["data"] | {}}
    insert_at = load_index
    for node in (shape, strides, view):
        _insert(document, insert_at, node)
        insert_at += 1
    view["data"]["shape"], view["data"]["strides"] = insert_at - 3, insert_at - 2
    load["data"]["buffer"] = insert_at - 1
    with pytest.raises(Refused, match="larger than the memory"):
        admit(json.dumps(document), ADD, SHAPE)


def _insert(document: dict, at: int, node: dict) -> None:
    """Inserts a raw node, and moves all references to what comes after it."""
    from grader.ir.reader import _PLAIN

    def moved(value):
        return value + 1 if type(value) is int and value >= at else value

    for other in document["nodes"]:
        plain = _PLAIN.get(other["type"], frozenset())
        data = other.get("data")
        if plain is None or data is None:
            continue
        if isinstance(data, list):
            other["data"] = [moved(value) for value in data]
        else:
            other["data"] = {name: value if name in plain else moved(value) for name, value in data.items()}
    document["nodes"].insert(at, node)
    document["root_index"] = moved(document["root_index"])


@pytest.mark.parametrize(
    ("sizes", "dtype", "match"),
    [((N,), "float16", "dtype float16"), ((N + 1,), "float32", "shape"), ((N, 1), "float32", "shape")],
)
def test_a_wrong_parameter_is_named(sizes, dtype, match):
    @T.prim_func
    def main(A: T.Tensor(sizes, dtype), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            C[bx] = B[bx]

    assert "parameter 1 ('A')" in refused(main, match=match).message


def test_a_missing_parameter_is_named():
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            C[bx] = A[bx]

    refused(main, match=r"takes 2 tensors, the lab asks for 3: A \(in\), B \(in\), C \(out\)")


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: matmul.get_tir(256, 256, 256, threads=2048), "threads a block"),
        (lambda: matmul.get_tir(256, 256, 256, block_M=256, block_N=256, block_K=256), "shared tiles need"),
    ],
)
def test_what_no_card_has_is_refused(build, match):
    with pytest.raises(Refused, match=match):
        admit(json_of(build()), kernel_of("lab02_matmul"), shape_of("lab02_matmul", "square"))


def test_refusals_name_the_students_line():
    @T.macro
    def inside(A, B, C, bx):
        T.evaluate(T.call_extern("int32", "f"))

    error = refused(add_kernel(inside), match="call_extern")
    assert error.line is not None
    assert error.line.file.endswith("test_admit.py")


def test_annotations_of_any_call_are_refused():
    @T.macro
    def inside(A, B, C, bx):
        for i in T.Parallel(256):
            C[bx * 256 + i] = T.infinity("float32")

    document = json.loads(json_of(add_kernel(inside)))
    listed = document["nodes"]
    at = next(
        i for i, node in enumerate(listed) if node["type"] == "tirx.Call" and node["data"]["dtype"] == "float32"
    )
    _insert(document, at, {"type": "ffi.String", "data": 'x*/\n#include "/etc/passwd"'})
    _insert(document, at + 1, {"type": "int", "data": 1})
    _insert(document, at + 2, {"type": "ffi.Map", "data": [at, at + 1]})
    listed[at + 3]["data"]["annotations"] = at + 2
    with pytest.raises(Refused, match=r"the option .* is not admitted"):
        admit(json.dumps(document), ADD, SHAPE)


@pytest.mark.parametrize("text", ['x"', "a b\n", "/etc/passwd", "x*/", "é", ""])
def test_the_writer_holds_no_string_that_could_end_a_name(text):
    from grader.ir import nodes, write

    kernel = admit(json_of(vector_add.get_tir(N)), ADD, SHAPE).kernel
    for evil in (nodes.Text("handle", text), nodes.Call("float32", text, ())):
        body = nodes.Seq(None, (kernel.body, nodes.Evaluate(None, evil)))
        with pytest.raises(TypeError):
            write(replace(kernel, body=body))


@pytest.mark.parametrize(
    ("value", "dtype"), [(2**32 + 200, "int32"), (-1, "uint8"), (300, "int8"), (2**63, "int64")]
)
def test_a_number_that_its_dtype_cannot_hold_is_refused(value, dtype):
    document = json.loads(json_of(vector_add.get_tir(N)))
    number = [n for n in document["nodes"] if n["type"] == "ir.IntImm" and n["data"]["value"] == N][-1]
    number["data"] |= {"value": value, "dtype": dtype}
    with pytest.raises(Refused, match="does not fit"):
        admit(json.dumps(document), ADD, SHAPE)


@pytest.mark.parametrize("position", range(3, 13))
@pytest.mark.parametrize("value", [-5, 7, 2**31 - 1])
def test_what_a_gemm_says_beside_its_tiles_must_follow_from_them(position, value):
    document = json.loads(json_of(matmul.get_tir(256, 256, 256)))
    nodes = document["nodes"]
    op = next(i for i, node in enumerate(nodes) if node.get("data") == "tl.tileop.gemm")
    call = next(node for node in nodes if node["type"] == "tirx.Call" and node["data"]["op"] == op)
    args = nodes[call["data"]["args"]]
    at = call["data"]["args"]
    _insert(
        document,
        at,
        {"type": "ir.IntImm", "data": {"span": call["data"]["span"], "dtype": "int32", "value": value}},
    )
    args["data"][position] = at
    with pytest.raises(Refused, match=r"don't fit together|number where|odd"):
        admit(json.dumps(document), kernel_of("lab02_matmul"), shape_of("lab02_matmul", "square"))


def test_barriers_are_admitted():
    @T.macro
    def inside(A, B, C, bx):
        S = T.alloc_shared((256,), "float32")
        T.copy(A[bx * 256], S)
        T.sync_threads()
        for i in T.Parallel(256):
            C[bx * 256 + i] = S[i] + B[bx * 256 + i]

    assert admit(json_of(add_kernel(inside)), ADD, SHAPE)


def test_code_by_thread_and_atomics_in_shared_memory_are_admitted_and_compile():
    @T.macro
    def inside(A, B, C, bx):
        tx = T.get_thread_binding()
        count = T.alloc_shared((4,), "int32")
        own = T.alloc_local((2,), "float32")
        total = T.alloc_var("float32")
        T.clear(count)
        own[0] = T.clamp(A[bx * 256 + tx], 0.0, 1.0)
        own[1] = T.ieee_add(B[bx * 256 + tx], T.__exp(own[0]), "rn")
        total = 0.0
        for k in T.serial(8):
            if k == 3:
                continue
            if k == tx:
                break
            total += T.fma(own[0], own[1], 1.0)
        T.atomic_add(count[tx % 4], 1)
        T.sync_threads()
        if T.any_of(count):
            C[bx * 256 + tx] = total
        for i in T.Parallel(128):
            C[bx * 256 + 128 + i] = A[bx * 256 + 128 + i] + T.cast(T.clz(count[0]), "float32")

    admitted = admit(json_of(add_kernel(inside)), ADD, SHAPE)
    from tilelang import lower, tvm

    with tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}, host="c") as target:
        source = lower(tvm.ir.load_json(admitted.json), target=target).kernel_source
    assert "atomic" in source.lower()
    assert "tl::clamp" in source


def test_atomics_on_inputs_and_outputs_are_refused():
    @T.macro
    def on_output(A, B, C, bx):
        for i in T.Parallel(256):
            T.atomic_add(C[bx * 256 + i], A[bx * 256 + i])

    @T.macro
    def on_input(A, B, C, bx):
        for i in T.Parallel(256):
            T.atomic_max(A[bx * 256 + i], B[bx * 256 + i])

    refused(add_kernel(on_output), match="reads its output 'C'")
    refused(add_kernel(on_input), match="writes to its input 'A'")


@pytest.mark.parametrize("mode", ["rn) + system(", "rX"])
def test_a_rounding_mode_is_one_of_four(mode):
    @T.macro
    def inside(A, B, C, bx):
        for i in T.Parallel(256):
            C[bx * 256 + i] = T.ieee_add(A[bx * 256 + i], B[bx * 256 + i], "rz")

    text = json_of(add_kernel(inside))
    assert admit(text, ADD, SHAPE)
    with pytest.raises(Refused, match="ieee_add"):
        admit(text.replace('"rz"', json.dumps(mode)), ADD, SHAPE)


# Tile operations and what kernels say of their buffers

TILE_SIGNATURE = Kernel(
    "tiles",
    ("N",),
    (Parameter("A", "float32", ("N", "N")), Parameter("B", "float32", ("N", "N"), Role.OUT)),
    (Shape("one", {"N": 64}, Group.TILES),),
)


def tiles(inside):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 64), "float32")
            b = T.alloc_fragment((64,), "float32")
            T.copy(A, a)
            inside(A, B, a, b)
            T.copy(a, B)

    return admit(json_of(main), TILE_SIGNATURE, TILE_SIGNATURE.shape("one"))


@T.macro
def reducing(A, B, a, b):
    acc = T.alloc_reducer((64,), "float32", op="sum")
    T.reducer_init(acc, 1.0)
    for i, j in T.Parallel(64, 64):
        T.reducer_update(acc[i], a[i, j])
    T.finalize_reducer(acc, b)


ADMITTED = {
    "cumsum": lambda A, B, a, b: T.cumsum(a, dim=1, reverse=True),
    "transpose": lambda A, B, a, b: T.transpose(a, a),
    "bits": lambda A, B, a, b: T.reduce_max(a, b, dim=1, batch=64),
    "atomic": lambda A, B, a, b: T.atomic_add(a[0:4, 0:64], 1.0, memory_order="relaxed"),
    "reducer": reducing,
    "print": lambda A, B, a, b: T.print(a, msg='"); system("id"); //'),
    "assert": lambda A, B, a, b: T.device_assert(a[0, 0] < 1.0, '*/ #include "x"'),
    "safe": lambda A, B, a, b: T.annotate_safe_value({A: -T.infinity("float32")}),
    "copy": lambda A, B, a, b: T.copy(A, a, prefer_instruction="cp_async", eviction_policy="evict_first"),
    "hint": lambda A, B, a, b: T.annotate_restrict_buffers(A, B),
}


@pytest.mark.parametrize("name", ADMITTED)
def test_tile_operations_are_admitted_and_written_in_our_words(name):
    chosen = ADMITTED[name]
    json_text = tiles(chosen if name == "reducer" else _macro(chosen)).json
    assert not any(word in json_text for word in ("system", "include", "debug_print"))


def _macro(call):
    @T.macro
    def inside(A, B, a, b):
        call(A, B, a, b)

    return inside


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda A, B, a, b: T.atomic_add(B, a), "reads its output"),
        (lambda A, B, a, b: T.atomic_add(A, a), "writes to its input"),
        (lambda A, B, a, b: T.transpose(a, A), "writes to its input"),
        (lambda A, B, a, b: T.print(B), "reads its output"),
        (lambda A, B, a, b: T.reduce_max(a, b, dim=1, batch=10_000), "batch.*odd"),
        (lambda A, B, a, b: T.copy(A, a, annotations={"dst_block": 1}), "dst_block"),
        (lambda A, B, a, b: T.annotate_l2_hit_ratio({A: 0.5}), "l2_hit_ratio"),
    ],
)
def test_tile_operations_that_do_more_are_refused(call, match):
    with pytest.raises(Refused, match=match):
        tiles(_macro(call))


def test_a_hint_must_be_small():
    @T.macro
    def inside(A, B, a, b):
        T.annotate_min_blocks_per_sm(33)

    with pytest.raises(Refused, match="min_blocks_per_sm"):
        tiles(inside)


def test_tiles_that_do_not_fit_are_refused():
    """TileLang refuses these while it traces: only IR made by hand says so."""

    @T.macro
    def inside(A, B, C, bx):
        tile = T.alloc_fragment((4, 64), "float32")
        top = T.alloc_fragment((4,), "float32")
        for i, j in T.Parallel(4, 64):
            tile[i, j] = A[bx * 256 + i * 64 + j]
        T.reduce_max(tile, top, dim=1)
        T.copy(top, C[bx * 4 : bx * 4 + 4])

    kernel = ir.read(json_of(add_kernel(inside)))

    def change(node):
        if isinstance(node, nodes.Call) and node.op == "tl.tileop.reduce":
            return replace(node, args=(*node.args[:3], nodes.Const("int32", 0), node.args[4]))
        return node

    def shorten(node):
        if isinstance(node, nodes.Call) and node.op == "tl.tileop.copy":
            tile = replace(node.args[1], extents=(nodes.Const("int32", 3),))
            return replace(node, args=(node.args[0], tile))
        return node

    assert admit(ir.write(kernel), ADD, SHAPE)
    for edit, match in ((change, "T.reduce of 4×64 along dimension 0"), (shorten, "different shapes: 4 and 3")):
        changed = replace(kernel, body=rewrite(kernel.body, edit))
        with pytest.raises(Refused, match=match):
            admit(ir.write(changed), ADD, SHAPE)


def test_a_while_loop_on_shared_memory_needs_a_barrier():
    """Without one, over half of the elements were wrong on an H200, and a flag in shared memory hung it."""

    def looped(barrier: bool, flag: bool):
        @T.macro
        def inside(A, B, C, bx):
            tile = T.alloc_shared((256,), "float32")
            count = T.alloc_shared((1,), "int32")
            own = T.alloc_fragment((256,), "float32")
            n = T.alloc_var("int32")
            n = 0
            T.clear(count)
            T.copy(A[bx * 256 : bx * 256 + 256], tile)
            while (count[0] if flag else n) < 3:
                for i in T.Parallel(256):
                    own[i] = tile[255 - i]
                T.copy(own, tile)
                n += 1
                count[0] = n
                if barrier:
                    T.sync_threads()
            T.copy(tile, C[bx * 256 : bx * 256 + 256])

        return json_of(add_kernel(inside))

    assert admit(looped(barrier=True, flag=False), ADD, SHAPE)
    with pytest.raises(Refused, match="no barrier between its turns"):
        admit(looped(barrier=False, flag=False), ADD, SHAPE)
    with pytest.raises(Refused, match="asks for memory that it also writes"):
        admit(looped(barrier=True, flag=True), ADD, SHAPE)


def test_while_loops_of_iterations_are_their_own():
    @T.macro
    def inside(A, B, C, bx):
        tile = T.alloc_shared((256,), "float32")
        n = T.alloc_var("int32")
        for i in T.Parallel(256):
            n = 0
            tile[i] = A[bx * 256 + i]
            while n < 3:
                tile[i] = tile[i] * 2.0
                n += 1
            C[bx * 256 + i] = tile[i]

    assert admit(json_of(add_kernel(inside)), ADD, SHAPE)
