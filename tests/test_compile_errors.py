"""Lowering with no GPU: landmarks by architecture, and TileLang's real errors in a student's words."""

import re
from dataclasses import replace
from functools import partial

import broken_kernels
import pytest
import tilelang.language as T
from broken_kernels import line_of, product
from kernels import json_of, vector_add

from grader import ir
from grader.capture.tracing import lines_of_callers
from grader.gpu import compile_errors
from grader.gpu.landmarks import accesses, landmarks
from grader.gpu.lowering import Job, Lowered, NotLowered, lower, lower_all
from grader.ir import nodes

HOPPER, AMPERE = "sm_90a", "sm_80"

#: name -> (the kernel, its architecture, what the sentence says); the marked line is among those told.
BROKEN = {
    "warps": (partial(product, threads=96), AMPERE, "64×64 tile among 3 warps (96 threads)"),
    "rows": (partial(product, m=24), AMPERE, "has 24 rows; the tensor cores take a multiple of 16"),
    "columns": (partial(product, n=20), AMPERE, "has 20 columns; the tensor cores take a multiple of 8"),
    "depth": (partial(product, k=24), AMPERE, "24 deep (K)"),
    "dtype": (partial(product, dtype="int16", out="int32"), AMPERE, "can't multiply int16"),
    "result": (partial(product, result="shared"), AMPERE, "result must be a fragment"),
    "narrow": (partial(product, n=8, policy=T.GemmWarpPolicy.FullCol), HOPPER, "too narrow for Hopper's wgmma"),
    "tma": (partial(product, dtype="float64", out="float64"), HOPPER, "can't copy A to a with"),
    "mixed": (broken_kernels.mixed_dtypes, AMPERE, "multiplies float16 by bfloat16"),
    "global": (broken_kernels.product_of_global, AMPERE, "A in global memory"),
    "part": (broken_kernels.product_into_a_part, AMPERE, "must be the whole fragment"),
    "policies": (broken_kernels.two_policies, AMPERE, "want the fragment total spread"),
    "conflict": (broken_kernels.rows_and_columns, AMPERE, "top and scores are spread"),
    "indices": (broken_kernels.transposed_fragment, AMPERE, "fragment x in two ways: (i, j) and (j, i)"),
    "extents": (broken_kernels.copy_that_does_not_fit, AMPERE, "64 elements of A into 32 of tile"),
    "tile op": (broken_kernels.tile_operation_in_parallel, AMPERE, "T.fill works on a whole tile"),
    "pipeline": (broken_kernels.pipeline_in_parallel, AMPERE, "T.Pipelined loop stands inside T.Parallel"),
    "odd": (broken_kernels.odd_fragment, AMPERE, "share x (5×100) among 128 threads"),
    "seven": (broken_kernels.seven_threads, AMPERE, "7 threads can't share x (64) evenly"),
    "reduction": (broken_kernels.reduction_over_24_threads, AMPERE, "over 24 threads"),
    "looked up": (broken_kernels.looked_up_in_a_fragment, AMPERE, "indexed by a value that was read"),
    "cumsum": (broken_kernels.sums_of_global, AMPERE, "not from global to shared.dyn memory"),
    "columns one by one": (broken_kernels.fragment_column_by_column, AMPERE, "picks single elements"),
    "local": (broken_kernels.local_shared_out, AMPERE, "mine is private to each thread"),
    "unknown length": (broken_kernels.loop_of_unknown_length, AMPERE, "extent=bx * 16 + 16"),
    "unknown size": (broken_kernels.part_of_unknown_size, AMPERE, "size is only known at run time"),
    "while": (broken_kernels.while_in_a_pipeline, HOPPER, "it holds a While statement"),
    "unknown steps": (broken_kernels.pipeline_of_unknown_length, AMPERE, "a T.Pipelined loop runs which copies"),
    "unused": (broken_kernels.unused_accumulator, AMPERE, "how the fragment forgotten is to be spread"),
}

#: Its error names no statement: the line is found by growing the kernel.
INJECTIVE = broken_kernels.two_threads_for_an_element

WARNED = {
    "read": (broken_kernels.uninitialised, "x is read before anything is written"),
    "vectors": (broken_kernels.vectors_of_three, "loop of 3 became a plain loop"),
}

ARCHITECTURES = ("sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")

GOOD = {
    "matmul": partial(product, m=128, n=128, k=32),
    "softmax": broken_kernels.row_maximum,
    "vector_add": partial(vector_add.get_tir, N=4096),
}


def _read(make) -> ir.Kernel:
    with lines_of_callers():
        return ir.read(json_of(make()))


def _marked(make, name: str = "") -> int:
    return line_of(getattr(make, "func", make), "copy" if name == "tma" else "here")


@pytest.fixture(scope="module")
def lowered():
    """lowered[name, arch] -> (kernel, result), for all of the above: TileLang is started once."""
    wanted = [(name, arch, make) for name, make in GOOD.items() for arch in ARCHITECTURES]
    wanted += [(name, arch, make) for name, (make, arch, _words) in BROKEN.items()]
    wanted += [(name, AMPERE, make) for name, (make, _words) in WARNED.items()]
    wanted.append(("injective", AMPERE, INJECTIVE))
    kernels = [_read(make) for _name, _arch, make in wanted]
    results = lower_all(
        [Job(ir.write(kernel), arch) for kernel, (_name, arch, _make) in zip(kernels, wanted, strict=True)]
    )
    pairs = zip(kernels, results, strict=True)
    return {(name, arch): pair for (name, arch, _make), pair in zip(wanted, pairs, strict=True)}


TURING = {"mma", "ldmatrix", "__syncthreads"}
BLACKWELL = {"mma", "ldmatrix", "TMA load", "mbarrier", "setmaxnreg", "__syncthreads"}


@pytest.mark.parametrize(
    ("arch", "expected"),
    [
        ("sm_75", TURING),
        ("sm_80", TURING | {"cp.async"}),
        ("sm_89", TURING | {"cp.async"}),
        ("sm_90a", {"wgmma", "TMA load", "mbarrier", "setmaxnreg", "__syncthreads"}),
        ("sm_100a", BLACKWELL),
        ("sm_120a", BLACKWELL),
    ],
)
def test_a_product_becomes_what_the_architecture_has(lowered, arch, expected):
    _kernel, result = lowered["matmul", arch]
    assert isinstance(result, Lowered)
    assert set(landmarks(result.source)) == expected
    # Two stages of A (128×32) and B (32×128) in float16; a warp-specialised kernel has 128 threads more.
    assert result.shared == 2 * 2 * 128 * 32 * 2
    assert result.threads == (256 if "TMA load" in expected else 128)
    assert result.grid == (1, 1, 1)


def test_reads_and_writes_have_a_width(lowered):
    for arch in ARCHITECTURES:
        _kernel, result = lowered["softmax", arch]
        assert "warp reduction" in landmarks(result.source)
        assert {(a.parameter, a.writes) for a in accesses(result.source)} == {("g0", False), ("g1", True)}
        _kernel, result = lowered["vector_add", arch]
        (block,) = {(a.bits, a.count) for a in accesses(result.source)}
        assert block == (128, 1)
        assert result.grid == (4, 1, 1)


def test_at_least_fifteen_different_errors_are_provoked(lowered):
    texts = {lowered[name, arch][1].signature for name, (_make, arch, _words) in BROKEN.items()}
    assert len(texts) >= 15


@pytest.mark.parametrize("name", BROKEN)
def test_an_error_is_one_sentence_at_the_students_line(lowered, name):
    make, arch, words = BROKEN[name]
    kernel, error = lowered[name, arch]
    assert isinstance(error, NotLowered)
    explained = compile_errors.explain(error, kernel, search=False)
    assert explained.known
    assert words in explained.message
    assert explained.advice
    assert _marked(make, name) in [line.number for line in explained.lines]
    assert len(explained.lines) <= 3
    assert {line.file for line in explained.lines} == {broken_kernels.__file__}
    shown = explained.message + explained.advice + explained.own_words
    assert not re.search(r"\b(?:buffer|[sfilgbt])\d+\b", shown), shown
    assert "{" not in explained.message + explained.advice


def test_a_line_that_no_message_names_is_found_by_growing_the_kernel(lowered):
    kernel, error = lowered["injective", AMPERE]
    assert compile_errors.explain(error, kernel, search=False).lines == ()
    explained = compile_errors.explain(error, kernel)
    assert "two threads hold one element" in explained.message
    assert [line.number for line in explained.lines] == [_marked(INJECTIVE)]


@pytest.mark.parametrize("name", WARNED)
def test_a_warning_is_told_too(lowered, name):
    make, words = WARNED[name]
    kernel, result = lowered[name, AMPERE]
    (explained,) = compile_errors.explain_warnings(result, kernel)
    assert words in explained.message
    assert [line.number for line in explained.lines] == [_marked(make)]


def test_a_loop_of_the_compilers_own_is_not_taken_for_a_vectorized_one_of_the_students():
    kernel = _read(broken_kernels.row_maximum)
    text = "T.vectorized loop over `vec` with extent 2 is lowered as a serial loop because TileLang could not"
    explained = compile_errors._warning(text, kernel)
    assert "T.Parallel loop works element by element" in explained.message
    assert "T.vectorized" not in explained.message
    assert explained.lines == ()


def test_a_long_warning_shows_that_it_was_cut():
    explained = compile_errors._warning("lowering to 24/160 registers " * 20, _read(broken_kernels.row_maximum))
    assert explained.message.endswith((" lowering …", " to …", " 24/160 …", " registers …"))
    assert len(explained.own_words) <= compile_errors.MAX_OWN_WORDS + 2


def test_an_unknown_error_is_told_as_the_compilers_own_words(lowered):
    kernel, _result = lowered["matmul", AMPERE]
    text = "Check failed: (x > 0) is false: buffer3 is odd\n  at line\n" + "x" * 9_000
    explained = compile_errors.explain_text(text, kernel)
    assert not explained.known
    assert explained.message.endswith("In its own words: a is odd")
    assert explained.lines == ()
    (crashed,) = (compile_errors.explain_text("status -11", kernel, crashed=True),)
    assert "ended on this kernel" in crashed.message


def test_what_nvcc_refuses_is_explained_by_the_same_table(lowered):
    kernel, _result = lowered["matmul", AMPERE]
    text = 'mma.h(282): error: static assertion failed with "tl::mma_sync: unsupported configuration"'
    explained = compile_errors.explain_text(text, kernel, compiler="nvcc")
    assert "no such product" in explained.message
    assert [line.number for line in explained.lines] == [line_of(product)]


def test_a_kernel_that_hangs_or_kills_the_compiler_costs_itself_alone():
    good = ir.write(_read(GOOD["vector_add"]))
    product_ = _read(GOOD["matmul"])
    endless = ir.write(replace(product_, body=nodes.Seq(None, (product_.body,) * 100)))  # takes minutes
    deadly = '{"root_index":0,"nodes":[{"type":"ffi.Array","data":[99999999]}]}'
    results = lower_all([Job(endless, AMPERE), Job(deadly, AMPERE), Job(good, AMPERE)], seconds=4)
    assert [getattr(result, "kind", "lowered") for result in results] == ["Timeout", "Crash", "lowered"]
    kernel = _read(GOOD["vector_add"])
    assert "did not come to an end" in compile_errors.explain(results[0], kernel).message


def test_an_unknown_architecture_is_an_error():
    with pytest.raises(ValueError, match="unknown architecture 'sm_1'"):
        lower("{}", "sm_1")
