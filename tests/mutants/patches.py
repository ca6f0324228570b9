"""Wrong kernels made by hand: each is a reference kernel's source with a few lines changed, as a student errs."""

import inspect
import itertools
import linecache
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from grader.simulator import FaultKind
from mutants import references
from mutants.judging import WRONG
from mutants.tasks import TASKS

UNINITIALISED, RACE = FaultKind.UNINITIALISED_READ, FaultKind.RACE
UNWRITTEN = FaultKind.UNWRITTEN
OUTSIDE_READ, OUTSIDE_WRITE = FaultKind.OUT_OF_BOUNDS_READ, FaultKind.OUT_OF_BOUNDS_WRITE


@dataclass(frozen=True)
class Patch:
    """``changes`` are pairs of text and what stands in its place; each text occurs once in the source.

    ``kind`` is the evidence that the judge must find. Of a fault, ``buffer`` is whose, and ``line`` is part of the
    source line that it must name.
    """

    task: str
    name: str
    changes: tuple[tuple[str, str], ...]
    kind: str = WRONG
    buffer: str = ""
    line: str = ""

    @property
    def source(self) -> str:
        text = textwrap.dedent(inspect.getsource(_factory(self.task)))
        for old, new in self.changes:
            if text.count(old) != 1:
                raise ValueError(f"{self.task}, {self.name}: {text.count(old)} times in the source: {old!r}")
            text = text.replace(old, new)
        return text

    def make(self) -> Callable:
        """The factory, from the changed source; TileLang finds that in linecache, as it does notebook cells."""
        file = f"<{self.task}: {self.name} {next(_numbers)}>"
        text = self.source
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        names = dict(vars(references))
        exec(compile(text, file, "exec"), names)
        factory = names[_factory(self.task).__name__]
        return lambda **sizes: factory(**sizes, **getattr(TASKS[self.task].make, "keywords", {}))


_numbers = itertools.count(1)


def _factory(task: str) -> Callable:
    make = TASKS[task].make
    return getattr(make, "func", make)


def _moved(text: str, before: str, depth: int = 16) -> tuple[tuple[str, str], ...]:
    """A statement moved to before another one of the loop."""
    return ((f"{' ' * depth}{text}\n", ""), (before, f"{text}\n{' ' * depth}{before}"))


COPY_A, COPY_B = "T.copy(A[by * block, k * block], a)", "T.copy(B[k * block, bx * block], b)"
STORE_C = "T.copy(c, C[by * block, bx * block])"
LOOP_K = "for k in T.Pipelined(T.ceildiv(K, block), num_stages=2):"
GEMM = "T.gemm(a, b, c)"


TRUNCATED = 'c[i, j] = T.cast(T.cast(c[i, j], "int32"), "float32")'


def _by_element(text: str) -> str:
    """A nest over the tile's elements, for a statement that stands at the depth of the kernel's body."""
    return f"for i, j in T.Parallel(block, block):\n                {text}"


MATMUL = (
    Patch("matmul", "no clear", (("T.clear(c)", "pass"),), UNINITIALISED, "c", "T.gemm"),
    Patch("matmul", "cleared in every step", ((COPY_A, f"T.clear(c); {COPY_A}"),)),
    Patch("matmul", "cleared by each gemm", ((GEMM, "T.gemm(a, b, c, clear_accum=True)"),)),
    Patch(
        "matmul", "the last part of K left out", ((LOOP_K, LOOP_K.replace("T.ceildiv(K, block)", "K // block")),)
    ),
    Patch("matmul", "the first step left out", ((LOOP_K, "for k in T.serial(1, T.ceildiv(K, block)):"),)),
    Patch("matmul", "one step too few", ((LOOP_K, LOOP_K.replace("T.ceildiv(K, block)", "(K - 1) // block")),)),
    Patch(
        "matmul",
        "grid rounded down",
        (("T.ceildiv(M, block), threads", "M // block, threads"),),
        UNWRITTEN,
        "C",
        "T.copy(c",
    ),
    Patch(
        "matmul",
        "grid of the other dimension",
        (("T.ceildiv(N, block), T.ceildiv(M", "T.ceildiv(M, block), T.ceildiv(N"),),
        UNWRITTEN,
        "C",
        "T.copy(c",
    ),
    Patch(
        "matmul",
        "tiles by the other block index",
        ((COPY_A, COPY_A.replace("by", "bx")), (COPY_B, COPY_B.replace("bx", "by"))),
    ),
    Patch(
        "matmul",
        "stored at the transposed tile",
        ((STORE_C, "T.copy(c, C[bx * block, by * block])"),),
        UNWRITTEN,
        "C",
        "T.copy(c",
    ),
    Patch("matmul", "always the first tile of A", ((COPY_A, "T.copy(A[by * block, 0], a)"),)),
    Patch("matmul", "the next tile of A", ((COPY_A, "T.copy(A[by * block, (k + 1) * block], a)"),)),
    Patch("matmul", "B's offset in elements", ((COPY_B, "T.copy(B[k, bx * block], b)"),)),
    Patch("matmul", "B transposed", ((GEMM, "T.gemm(a, b, c, transpose_B=True)"),)),
    Patch("matmul", "A transposed", ((GEMM, "T.gemm(a, b, c, transpose_A=True)"),)),
    Patch("matmul", "operands swapped", ((GEMM, "T.gemm(b, a, c)"),)),
    Patch("matmul", "added twice", ((GEMM, f"{GEMM}; {GEMM}"),)),
    Patch("matmul", "half-precision sum", (('(block, block), "float32"', '(block, block), "float16"'),)),
    Patch("matmul", "a tile never loaded", ((COPY_B, "pass"),), UNINITIALISED, "b", "T.gemm"),
    Patch(
        "matmul",
        "multiplied before loading",
        ((COPY_A, f"{GEMM}; {COPY_A}"), (f"                {GEMM}\n", "")),
        UNINITIALISED,
        "a",
        "T.gemm",
    ),
    Patch("matmul", "the wrong tile stored", ((STORE_C, STORE_C.replace("copy(c", "copy(a")),)),
    Patch("matmul", "one tile for two", ((COPY_B, COPY_B.replace("], b)", "], a)")), (GEMM, "T.gemm(a, a, c)"))),
    Patch(
        "matmul",
        "blocks overlap",
        ((STORE_C, "T.copy(c, C[by * block, bx * (block - 1)])"),),
        RACE,
        "C",
        "T.copy(c",
    ),
    Patch(
        "matmul",
        "K split over blocks, no atomics",
        (
            (
                "T.ceildiv(M, block), threads=128) as (bx, by)",
                "T.ceildiv(M, block), 2, threads=128) as (bx, by, bz)",
            ),
            (LOOP_K, "for k in T.serial(bz, T.ceildiv(K, block) - 1 + bz):"),
        ),
        RACE,
        "C",
        "T.copy(c",
    ),
    Patch(
        "matmul",
        "stored without a guard",
        ((STORE_C, _by_element("C[by * block + i, bx * block + j] = c[i, j]")),),
        OUTSIDE_WRITE,
        "C",
        "C[by",
    ),
    Patch(
        "matmul",
        "guard one too wide",
        (
            (
                STORE_C,
                "for i, j in T.Parallel(block, block):\n"
                "                if by * block + i <= M and bx * block + j < N:\n"
                "                    C[by * block + i, bx * block + j] = c[i, j]",
            ),
        ),
        OUTSIDE_WRITE,
        "C",
        "= c[i, j]",
    ),
    Patch("matmul", "rounded to integers", ((STORE_C, f"{_by_element(TRUNCATED)}\n            {STORE_C}"),)),
)

ADD = "z[i, j] = z[i, j] + added[j]"
LOAD_BIAS = "T.copy(bias[bx * block], added)"
GUARD = "if by * block + i < M and bx * block + j < N:"
STORE_Y = "Y[by * block + i, bx * block + j] = z[i, j]"
TANH = "(1.0 + T.tanh(0.79788456 * (z[i, j] + 0.044715 * z[i, j] * z[i, j] * z[i, j])))"

LINEAR_GELU = (
    Patch("linear_gelu", "no bias", ((ADD, "z[i, j] = z[i, j]"),)),
    Patch("linear_gelu", "bias along the rows", ((ADD, "z[i, j] = z[i, j] + added[i]"),)),
    Patch("linear_gelu", "bias of the other block", ((LOAD_BIAS, "T.copy(bias[by * block], added)"),)),
    Patch("linear_gelu", "bias of the first block", ((LOAD_BIAS, "T.copy(bias[0], added)"),)),
    Patch(
        "linear_gelu",
        "bias read without a guard",
        ((ADD, "z[i, j] = z[i, j] + bias[bx * block + j]"),),
        OUTSIDE_READ,
        "bias",
        "bias[",
    ),
    Patch("linear_gelu", "bias never loaded", ((LOAD_BIAS, "pass"),), UNINITIALISED, "added", "added[j]"),
    Patch("linear_gelu", "bias truncated", ((ADD, 'z[i, j] = z[i, j] + T.cast(added[j], "int32")'),)),
    Patch("linear_gelu", "bias subtracted", ((ADD, "z[i, j] = z[i, j] - added[j]"),)),
    Patch("linear_gelu", "weights not transposed", ((", transpose_B=True", ""),)),
    Patch("linear_gelu", "weights' indices swapped", (("W[bx * block, k * block]", "W[k * block, bx * block]"),)),
    Patch("linear_gelu", "no clear", (("T.clear(z)", "pass"),), UNINITIALISED, "z", "T.gemm"),
    Patch("linear_gelu", "half-precision sum", (('(block, block), "float32"', '(block, block), "float16"'),)),
    Patch("linear_gelu", "a digit of a constant slipped", (("0.044715", "0.44715"),)),
    Patch("linear_gelu", "the other root", (("0.79788456", "0.88622693"),)),
    Patch("linear_gelu", "the constant of another approximation", ((TANH, "2.0 * T.sigmoid(1.702 * z[i, j])"),)),
    Patch("linear_gelu", "square for cube", (("* z[i, j] * z[i, j] * z[i, j]", "* z[i, j] * z[i, j]"),)),
    Patch("linear_gelu", "no half", (("0.5 * z[i, j] *", "z[i, j] *"),)),
    Patch("linear_gelu", "ReLU", ((f"0.5 * z[i, j] * {TANH}", "T.max(z[i, j], 0.0)"),)),
    Patch("linear_gelu", "guard with or", ((GUARD, GUARD.replace(" and ", " or ")),), OUTSIDE_WRITE, "Y", "Y["),
    Patch(
        "linear_gelu", "no guard of the columns", ((GUARD, "if by * block + i < M:"),), OUTSIDE_WRITE, "Y", "Y["
    ),
    Patch("linear_gelu", "no guard of the rows", ((GUARD, "if bx * block + j < N:"),), OUTSIDE_WRITE, "Y", "Y["),
    Patch(
        "linear_gelu",
        "guard by the other size",
        ((GUARD, "if by * block + i < N and bx * block + j < M:"),),
        OUTSIDE_WRITE,
        "Y",
        "Y[",
    ),
    Patch(
        "linear_gelu", "guard one too narrow", ((GUARD, GUARD.replace("< N", "< N - 1")),), UNWRITTEN, "Y", "Y[by"
    ),
    Patch(
        "linear_gelu",
        "output's indices swapped",
        ((STORE_Y, "Y[bx * block + j, by * block + i] = z[i, j]"),),
        OUTSIDE_WRITE,
        "Y",
        "Y[",
    ),
    Patch(
        "linear_gelu",
        "all columns to one",
        ((STORE_Y, "Y[by * block + i, bx * block] = z[i, j]"),),
        RACE,
        "Y",
        "Y[",
    ),
    Patch(
        "linear_gelu",
        "a neighbour's element",
        ((ADD, "z[i, j] = z[i, (j + 1) % block] + added[j]"),),
        RACE,
        "z",
        "added[j]",
    ),
)

EXP, DIVIDE = "x[i, j] = T.exp(x[i, j] - top[i])", "x[i, j] = x[i, j] / total[i]"
MAX, SUM = "T.reduce_max(x, top, dim=1)", "T.reduce_sum(x, total, dim=1)"

SOFTMAX = (
    Patch("softmax", "no maximum subtracted", ((EXP, "x[i, j] = T.exp(x[i, j])"),)),
    Patch("softmax", "maximum added", ((EXP, "x[i, j] = T.exp(x[i, j] + top[i])"),)),
    Patch("softmax", "powers of two", ((EXP, EXP.replace("exp", "exp2")),)),
    Patch("softmax", "no division", ((DIVIDE, "x[i, j] = x[i, j]"),)),
    Patch("softmax", "divided by the maximum", ((DIVIDE, "x[i, j] = x[i, j] / top[i]"),)),
    Patch("softmax", "multiplied by the sum", ((DIVIDE, "x[i, j] = x[i, j] * total[i]"),)),
    Patch("softmax", "largest magnitude for maximum", ((MAX, MAX.replace("max", "absmax")),)),
    Patch("softmax", "minimum for maximum", ((MAX, MAX.replace("max", "min")),)),
    Patch("softmax", "maximum for sum", ((SUM, SUM.replace("sum", "max")),)),
    Patch(
        "softmax",
        "sum not cleared",
        ((SUM, SUM.replace("dim=1", "dim=1, clear=False")),),
        UNINITIALISED,
        "total",
        "T.reduce",
    ),
    Patch(
        "softmax",
        "maximum not cleared",
        ((MAX, MAX.replace("dim=1", "dim=1, clear=False")),),
        UNINITIALISED,
        "top",
        "T.reduce",
    ),
    Patch("softmax", "summed before exp", ((MAX, f"{MAX}; {SUM}"), (f"            {SUM}\n", ""))),
    Patch(
        "softmax", "tile never loaded", (("T.copy(X[bx * rows, 0], x)", "pass"),), UNINITIALISED, "x", "T.reduce"
    ),
    Patch(
        "softmax",
        "half-precision sum",
        (('total = T.alloc_fragment((rows,), "float32")', 'total = T.alloc_fragment((rows,), "float16")'),),
    ),
    Patch(
        "softmax",
        "half-precision maximum",
        (('top = T.alloc_fragment((rows,), "float32")', 'top = T.alloc_fragment((rows,), "float16")'),),
    ),
    Patch(
        "softmax",
        "half-precision tile",
        (('(rows, C), "float32")\n            top', '(rows, C), "float16")\n            top'),),
    ),
    Patch(
        "softmax",
        "in place over its own divisor",
        ((DIVIDE, "x[i, j] = x[i, j] / x[i, 0]"),),
        RACE,
        "x",
        "x[i, 0]",
    ),
    Patch("softmax", "rows' offset in blocks, loading", (("X[bx * rows, 0]", "X[bx, 0]"),)),
    Patch("softmax", "rows' offset in blocks, storing", (("Y[bx * rows, 0]", "Y[bx, 0]"),), RACE, "Y", "T.copy(x"),
    Patch(
        "softmax",
        "grid rounded down",
        (("T.ceildiv(R, rows)", "T.max(R // rows, 1)"),),
        UNWRITTEN,
        "Y",
        "T.copy(x",
    ),
)

BEFORE, RUNNING = "T.copy(top, before)", "T.reduce_max(x, top, dim=1, clear=False)"
FACTOR = "T.exp2(before[i] * LOG2E - top[i] * LOG2E)"
TOTAL = f"total[i] = total[i] * {FACTOR} + part[i]"
STORE_GUARD = "if bx * block + i < R and n * block + j < C:"

ONLINE_SOFTMAX = (
    Patch("online_softmax", "stale maximum", _moved(RUNNING, BEFORE)),
    Patch("online_softmax", "sum not rescaled", ((TOTAL, "total[i] = total[i] + part[i]"),)),
    Patch("online_softmax", "rescaled the wrong way", ((FACTOR, "T.exp2(top[i] * LOG2E - before[i] * LOG2E)"),)),
    Patch("online_softmax", "rescaled with exp", ((FACTOR, FACTOR.replace("exp2", "exp")),)),
    Patch("online_softmax", "part rescaled, too", ((TOTAL, f"total[i] = (total[i] + part[i]) * {FACTOR}"),)),
    Patch("online_softmax", "only the last tile's sum", ((TOTAL, "total[i] = part[i]"),)),
    Patch("online_softmax", "maximum from 0 on", (("T.fill(top, -1e30)", "T.fill(top, 0.0)"),)),
    Patch(
        "online_softmax", "maximum not set", (("T.fill(top, -1e30)", "pass"),), UNINITIALISED, "top", "T.copy(top"
    ),
    Patch("online_softmax", "sum not set", (("T.fill(total, 0.0)", "pass"),), UNINITIALISED, "total", "total[i]"),
    Patch("online_softmax", "maximum of the last tile", ((RUNNING, RUNNING.replace(", clear=False", "")),)),
    Patch(
        "online_softmax",
        "sum along the columns",
        (("T.reduce_sum(x, part, dim=1)", "T.reduce_sum(x, part, dim=0)"),),
    ),
    Patch("online_softmax", "maximum along the columns", ((RUNNING, RUNNING.replace("dim=1", "dim=0")),)),
    Patch("online_softmax", "tail counted as zeros", (('-T.infinity("float32")', "0.0"),)),
    Patch("online_softmax", "tail counted as the largest", (('-T.infinity("float32")', 'T.infinity("float32")'),)),
    Patch(
        "online_softmax",
        "tail not guarded",
        (("n * block + j < C,", "n * block + j <= C,"),),
        OUTSIDE_READ,
        "X",
        "x[i, j] = T.if",
    ),
    Patch(
        "online_softmax",
        "no guard of the columns",
        ((STORE_GUARD, "if bx * block + i < R:"),),
        OUTSIDE_READ,
        "X",
        "Y[bx",
    ),
    Patch("online_softmax", "divided by the last part", (("/ total[i]", "/ part[i]"),)),
    Patch(
        "online_softmax",
        "maximum of before the last tile",
        (
            (
                "X[bx * block + i, n * block + j] * LOG2E - top[i]",
                "X[bx * block + i, n * block + j] * LOG2E - before[i]",
            ),
        ),
    ),
    Patch(
        "online_softmax",
        "no change of base",
        (("LOG2E - top[i] * LOG2E) / total[i]", "1.0 - top[i]) / total[i]"),),
    ),
)

MASK = 'T.if_then_else(n * block + j < L, 0, -T.infinity("float32"))'
CAUSAL_MASK = "bx * block + i >= n * block + j"
COPY_V = "T.copy(V[bz, n * block : (n + 1) * block, by, :], v)"
COPY_K = "T.copy(K[bz, n * block : (n + 1) * block, by, :], k)"
STORE_OUT = "T.copy(o, Out[bz, bx * block : (bx + 1) * block, by, :])"
SCORES = "T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)"
VALUES = "T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)"
RESCALE_O = "o[i, j] = o[i, j] * factor[i]"
RESCALE_TOTAL = "total[i] = total[i] * factor[i] + part[i]"
SCALE = "scale = D**-0.5 * LOG2E"
MAKING_FACTOR = "                for i in T.Parallel(block):\n                    factor"
RESCALING_O = f"                for i, j in T.Parallel(block, D):\n                    {RESCALE_O}"


ATTENTION = (
    Patch("attention", "no scale", ((SCALE, "scale = LOG2E"),)),
    Patch("attention", "scale without its root", ((SCALE, "scale = LOG2E / D"),)),
    Patch("attention", "scale without the change of base", ((SCALE, "scale = D**-0.5"),)),
    Patch("attention", "scale of the length", ((SCALE, "scale = L**-0.5 * LOG2E"),)),
    Patch("attention", "result not rescaled", ((RESCALE_O, "o[i, j] = o[i, j]"),)),
    Patch("attention", "sum not rescaled", ((RESCALE_TOTAL, "total[i] = total[i] + part[i]"),)),
    Patch(
        "attention",
        "rescaled after the product",
        (
            (f"                {COPY_V}\n                {VALUES}\n", ""),
            (
                RESCALING_O,
                f"                {COPY_V}\n                {VALUES}\n{RESCALING_O}",
            ),
        ),
    ),
    Patch("attention", "stale maximum", _moved("T.reduce_max(s, top, dim=1, clear=False)", "T.copy(top, before)")),
    Patch(
        "attention",
        "maximum of the last tile",
        (("T.reduce_max(s, top, dim=1, clear=False)", "T.reduce_max(s, top, dim=1)"),),
    ),
    Patch("attention", "maximum from 0 on", (('T.fill(top, -T.infinity("float32"))', "T.fill(top, 0.0)"),)),
    Patch("attention", "no division", (("o[i, j] = o[i, j] / total[i]", "o[i, j] = o[i, j]"),)),
    Patch("attention", "divided in every step", ((RESCALE_O, "o[i, j] = o[i, j] * factor[i] / total[i]"),)),
    Patch("attention", "divided by the last part", (("/ total[i]", "/ part[i]"),)),
    Patch("attention", "keys for values", ((COPY_V, COPY_V.replace("V[", "K[")),)),
    Patch("attention", "values for keys", ((COPY_K, COPY_K.replace("K[", "V[")),)),
    Patch("attention", "keys not transposed", ((SCORES, SCORES.replace("transpose_B=True, ", "")),)),
    Patch("attention", "values transposed", ((VALUES, VALUES.replace("o, ", "o, transpose_B=True, ")),)),
    Patch(
        "attention",
        "batch and head swapped",
        (("Q[bz, bx * block : (bx + 1) * block, by, :]", "Q[by, bx * block : (bx + 1) * block, bz, :]"),),
    ),
    Patch("attention", "all heads of one batch", ((COPY_K, COPY_K.replace("bz", "0")),)),
    Patch(
        "attention",
        "every head to the first",
        ((STORE_OUT, STORE_OUT.replace("by", "0")),),
        RACE,
        "Out",
        "T.copy(o",
    ),
    Patch(
        "attention",
        "queries of the key's tile",
        (("Q[bz, bx * block : (bx + 1) * block", "Q[bz, by * block : (by + 1) * block"),),
    ),
    Patch(
        "attention",
        "weights taken before exp",
        (
            ("                T.copy(s, p)\n", ""),
            (MAKING_FACTOR, f"                T.copy(s, p)\n{MAKING_FACTOR}"),
        ),
    ),
    Patch("attention", "weights never taken", (("T.copy(s, p)", "pass"),), UNINITIALISED, "p", "T.gemm(p"),
    Patch("attention", "scores not cleared", ((f"s[i, j] = {MASK}", "pass"),), UNINITIALISED, "s", "T.gemm(q"),
    Patch("attention", "result not cleared", (("T.clear(o)", "pass"),), UNINITIALISED, "o", "factor[i]"),
    Patch("attention", "sum not cleared", (("T.clear(total)", "pass"),), UNINITIALISED, "total", "factor[i]"),
    Patch("attention", "no mask of the tail", ((f"s[i, j] = {MASK}", "s[i, j] = 0"),)),
    Patch("attention", "mask one too wide", ((MASK, MASK.replace("< L", "<= L")),)),
    Patch("attention", "the last tile left out", (("else T.ceildiv(L, block)\n", "else L // block\n"),)),
    Patch(
        "attention",
        "half-precision result",
        (('o = T.alloc_fragment((block, D), "float32")', 'o = T.alloc_fragment((block, D), "float16")'),),
    ),
    Patch(
        "attention",
        "half-precision sum",
        (('total = T.alloc_fragment((block,), "float32")', 'total = T.alloc_fragment((block,), "float16")'),),
    ),
    Patch(
        "attention",
        "half-precision scores",
        (('s = T.alloc_fragment((block, block), "float32")', 's = T.alloc_fragment((block, block), "float16")'),),
    ),
    Patch(
        "attention",
        "values loaded once",
        (
            (f"                {COPY_V}\n", ""),
            ("            T.clear(o)\n", "            T.copy(V[bz, 0:block, by, :], v)\n            T.clear(o)\n"),
        ),
    ),
    Patch(
        "attention",
        "values used before they are loaded",
        (
            (
                f"                {COPY_V}\n                {VALUES}\n",
                f"                {VALUES}\n                {COPY_V}\n",
            ),
        ),
        UNINITIALISED,
        "v",
        "T.gemm(p",
    ),
    Patch("causal_attention", "the other side masked", ((CAUSAL_MASK, CAUSAL_MASK.replace(">=", "<=")),)),
    Patch("causal_attention", "the diagonal masked", ((CAUSAL_MASK, CAUSAL_MASK.replace(">=", ">")),)),
    Patch("causal_attention", "one key too many", ((CAUSAL_MASK, "bx * block + i + 1 >= n * block + j"),)),
    Patch("causal_attention", "mask within the tile only", ((CAUSAL_MASK, "i >= j"),)),
    Patch("causal_attention", "mask by tiles only", ((CAUSAL_MASK, "bx >= n"),)),
    Patch("causal_attention", "no mask", ((f'T.if_then_else({CAUSAL_MASK}, 0, -T.infinity("float32"))', "0"),)),
    Patch(
        "causal_attention",
        "masked within the tile only, after exp",
        (
            (f'T.if_then_else({CAUSAL_MASK}, 0, -T.infinity("float32"))', "0"),
            ("T.exp2(s[i, j] * scale - top[i] * scale)", "T.exp2(s[i, j] * scale - top[i] * scale) * (i >= j)"),
        ),
    ),
    Patch("causal_attention", "one tile too few", (("tiles = bx + 1 if", "tiles = bx if"),)),
    Patch(
        "causal_attention", "as many tiles as the other block index", (("tiles = bx + 1 if", "tiles = by + 1 if"),)
    ),
)

PATCHES = (*MATMUL, *LINEAR_GELU, *SOFTMAX, *ONLINE_SOFTMAX, *ATTENTION)
