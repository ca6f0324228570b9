"""TileLang's and nvcc's errors in a student's words: one plain sentence, what to try, and the line.

A table of patterns, each with its sentence; a test provokes them with real kernels. An error that no pattern knows
is told honestly as the compiler's own words, shortened.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from grader import ir
from grader.gpu.lowering import Job, Lowered, NotLowered, lower_all
from grader.gpu.sites import Gemm, Site, gemm_of, prefixes, sites
from grader.ir import nodes
from grader.ir.nodes import Line
from grader.messages import _

MAX_OWN_WORDS = 300
MAX_PREFIXES = 60

Values = dict[str, str]
Find = Callable[[Values, Mapping[str, object], Sequence[Site]], Iterable[Site]]


@dataclass(frozen=True)
class Explained:
    """``lines`` are the student's that the error may be about, likeliest first; none if nothing tells.

    ``own_words`` is the compiler's message under the student's names, shortened; ``known`` is False if there is
    nothing more to say than that.
    """

    message: str
    advice: str
    lines: tuple[Line, ...]
    own_words: str
    known: bool = True


@dataclass(frozen=True)
class Rule:
    """``pattern`` finds the error and its values; ``find`` the statements that it may be about.

    A group named ``buffer`` or ``other`` is a buffer's name, ``index`` text with names in it.
    """

    pattern: re.Pattern[str]
    message: str
    advice: str
    find: Find


# Where an error may come from


def _gemms(fits: Callable[[Gemm, Values], bool]) -> Find:
    def find(values: Values, _names: Mapping[str, object], all_sites: Sequence[Site]) -> Iterable[Site]:
        for site in all_sites:
            product = gemm_of(site)
            if product is not None and fits(product, values):
                yield site

    return find


def _on_buffers(*ops: str) -> Find:
    """Statements of these kinds (any, if none is named) that touch all buffers of the message."""

    def find(values: Values, names: Mapping[str, object], all_sites: Sequence[Site]) -> Iterable[Site]:
        wanted = [names.get(values[group]) for group in ("buffer", "other") if values.get(group)]
        for site in all_sites:
            if (not ops or site.op in ops) and not site.in_parallel and site.touches(*wanted):
                yield site

    return find


def _in_parallel(values: Values, _names: Mapping[str, object], all_sites: Sequence[Site]) -> Iterable[Site]:
    """Statements inside a T.Parallel nest, of the kind that the message names."""
    return [site for site in all_sites if site.in_parallel and site.op == values.get("op", site.op)]


def _kind(*ops: str) -> Find:
    def find(_values: Values, _names: Mapping[str, object], all_sites: Sequence[Site]) -> Iterable[Site]:
        return [site for site in all_sites if site.op in ops]

    return find


def _indexed_by_data(_values: Values, _names: Mapping[str, object], all_sites: Sequence[Site]) -> Iterable[Site]:
    """Statements that index a fragment by what stands in another buffer."""
    for site in all_sites:
        for node in nodes.walk(site.node):
            if (
                isinstance(node, nodes.Load | nodes.Store)
                and node.buffer.scope == nodes.FRAGMENT
                and any(isinstance(part, nodes.Load) for index in node.indices for part in nodes.walk(index))
                and not site.in_parallel
            ):
                yield site


def _indexed_from_outside(
    _values: Values, _names: Mapping[str, object], all_sites: Sequence[Site]
) -> Iterable[Site]:
    """T.Parallel nests that index a fragment by the variable of a loop around them."""
    for site in all_sites:
        if site.op != "parallel":
            continue
        inside = list(nodes.walk(site.node))
        own = {loop.var for loop in inside if isinstance(loop, nodes.For)}
        for node in inside:
            if isinstance(node, nodes.Load | nodes.Store) and node.buffer.scope == nodes.FRAGMENT:
                used = {
                    part for index in node.indices for part in nodes.walk(index) if isinstance(part, nodes.Var)
                }
                if used - own:
                    yield site
                    break


def _unknown_size(_values: Values, _names: Mapping[str, object], all_sites: Sequence[Site]) -> Iterable[Site]:
    """T.Parallel nests and parts of fragments whose extents are not constant."""
    for site in all_sites:
        extents: list[nodes.Expr] = []
        for node in nodes.walk(site.node):
            if isinstance(node, nodes.For) and node.kind == nodes.PARALLEL and site.op == "parallel":
                extents.append(node.extent)
            elif isinstance(node, nodes.Region) and node.buffer.scope == nodes.FRAGMENT:
                extents += node.extents
        if any(not isinstance(extent, nodes.Const) for extent in extents):
            yield site


def _on_uneven(values: Values, names: Mapping[str, object], all_sites: Sequence[Site]) -> Iterable[Site]:
    """Statements on fragments whose size is no multiple of the threads."""
    threads = int(values["threads"])
    for site in all_sites:
        if not site.in_parallel and any(_is_uneven(buffer, threads) for buffer in site.buffers):
            yield site


def _is_uneven(buffer: nodes.Buffer, threads: int) -> bool:
    """Is it a fragment of several elements a thread, that don't come out even?"""
    extents = [extent.value for extent in buffer.shape if isinstance(extent, nodes.Const)]
    size = prod(extents)
    constant = len(extents) == len(buffer.shape)
    return buffer.scope == nodes.FRAGMENT and constant and size > threads and size % threads != 0


def _anywhere(_values: Values, _names: Mapping[str, object], _all_sites: Sequence[Site]) -> Iterable[Site]:
    return ()


_any_gemm = _gemms(lambda product, values: True)


def _rule(pattern: str, message: str, advice: str, find: Find) -> Rule:
    return Rule(re.compile(pattern, re.DOTALL), message, advice, find)


RULES = (
    _rule(
        r"No valid warp partition for T\.gemm: M=(?P<m>\d+), N=(?P<n>\d+) .* by (?P<warps>\d+) warps "
        r"\(policy=(?P<policy>\w+)\)",
        _("T.gemm can't share its {m}×{n} tile among {warps} warps ({threads} threads)."),
        _(
            "Each warp needs a multiple of 16 rows and of 8 columns. Choose threads as 32 times a power of "
            "two (128 "
            "fits most tiles), or a larger tile."
        ),
        _gemms(lambda product, values: (product.m, product.n) == (int(values["m"]), int(values["n"]))),
    ),
    _rule(
        r"M must be divisible by (?P<unit>\d+), but got (?P<m>\d+)",
        _("T.gemm's tile has {m} rows; the tensor cores take a multiple of {unit}."),
        _("Choose a tile with more rows and let the guarded copies fill the rest with zeros."),
        _gemms(lambda product, values: product.m == int(values["m"])),
    ),
    _rule(
        r"N must be divisible by (?P<unit>\d+), but got (?P<n>\d+)",
        _("T.gemm's tile has {n} columns; the tensor cores take a multiple of {unit}."),
        _("Choose a tile width that is a multiple of 16; guarded copies fill what lies outside with zeros."),
        _gemms(lambda product, values: product.n == int(values["n"])),
    ),
    _rule(
        r"block_K \((?P<k>\d+)\) must be a multiple of micro_size_k \((?P<unit>\d+)\)",
        _("T.gemm's tiles are {k} deep (K); the tensor cores take a multiple of {unit} for this dtype."),
        _("Choose block_K as a multiple of {unit}, for instance 32 or 64."),
        _gemms(lambda product, values: product.k == int(values["k"])),
    ),
    _rule(
        r"^Unsupported dtype: (?P<dtype>\w+)",
        _("The tensor cores can't multiply {dtype}."),
        _(
            "T.gemm takes float16, bfloat16, float32 (as tf32), float8, int8 or float64 tiles: convert with "
            "T.copy."
        ),
        _gemms(lambda product, values: values["dtype"] in (product.a.buffer.dtype, product.b.buffer.dtype)),
    ),
    _rule(
        r"tl::mma_sync: unsupported configuration|tl::wgmma\w*: unsupported configuration",
        _("The tensor cores have no such product: nvcc knows none for these dtypes of A, B and C."),
        _(
            "The accumulator must be float32 for float16, bfloat16 and float8 tiles (float16 may stay "
            "float16), and "
            "int32 for int8 tiles."
        ),
        _any_gemm,
    ),
    _rule(
        r"Mixed-dtype GEMM only supports .* got A=(?P<a>\w+), B=(?P<b>\w+)",
        _("T.gemm multiplies {a} by {b}; both tiles must have one dtype."),
        _("Copy one of them into a tile of the other's dtype first: T.copy converts."),
        _gemms(
            lambda product, values: (product.a.buffer.dtype, product.b.buffer.dtype) == (values["a"], values["b"])
        ),
    ),
    _rule(
        r"local_buf (?:(?P<buffer>\w+) )?must be a fragment",
        _("T.gemm's result must be a fragment (registers)."),
        _("Allocate the accumulator with T.alloc_fragment, and T.copy it out once, after the loop."),
        _gemms(lambda product, values: product.c.buffer.scope != nodes.FRAGMENT),
    ),
    _rule(
        r"Unsupported gemm combination.*A: (?P<a>[\w.]+), B: (?P<b>[\w.]+)",
        _("T.gemm can't multiply tiles that lie there (A in {a} memory, B in {b})."),
        _("T.copy both into tiles made by T.alloc_shared; A may be a fragment."),
        _gemms(lambda product, values: nodes.GLOBAL in (product.a.buffer.scope, product.b.buffer.scope)),
    ),
    _rule(
        r"Fragment output C must be a full region",
        _("T.gemm adds to a part of a fragment; it must be the whole fragment."),
        _("Give this product an accumulator of its own, of exactly its size."),
        _gemms(lambda product, values: True),
    ),
    _rule(
        r"WGMMA operand layout contiguity",
        _("T.gemm's tile is too narrow for Hopper's wgmma in the layout that it got."),
        _("Choose a tile of at least 16 columns, or leave the policy to T.gemm (drop policy=)."),
        _any_gemm,
    ),
    _rule(
        r"Get different layout for (?P<buffer>\w+)",
        _("Two statements want the fragment {buffer} spread over the threads in different ways."),
        _(
            "Use it in one way only: the same policy= in every T.gemm that touches it; or T.copy it into "
            "another "
            "fragment (or a shared tile) for the second use."
        ),
        _on_buffers("gemm", "reduce", "cumsum"),
    ),
    _rule(
        r"Layout infer conflict between (?P<buffer>\w+) and (?P<other>\w+) in T\.Parallel",
        _("{buffer} and {other} are spread over the threads in ways that don't meet in this statement."),
        _(
            "An element-wise step needs both in the same threads. Index them by the same row variable; use "
            "policy=T.GemmWarpPolicy.FullRow in the T.gemm calls; or go through a shared tile."
        ),
        _on_buffers("parallel", "copy"),
    ),
    _rule(
        r"StructuralEqual\(\)\(it->second\.indices, indices\).* is false: (?P<buffer>\w+): (?P<index>.*)",
        _("One T.Parallel loop indexes the fragment {buffer} in two ways: {index}."),
        _(
            "A thread holds only its own elements of a fragment. Read the other element from a shared tile: "
            "T.copy "
            "the fragment there first."
        ),
        _on_buffers("parallel"),
    ),
    _rule(
        r"The layout for fragment (?P<buffer>\w+) can not be inferred correctly",
        _("Nothing says how the fragment {buffer} is to be spread over the threads."),
        _(
            "Is it used at all? Copy, compute or reduce with it in a T.Parallel loop or a tile operation, "
            "or remove it."
        ),
        _on_buffers(),
    ),
    _rule(
        r"Selected loop range is smaller than original src range.*base\(extent=(?P<small>\d+).*"
        r"< src\(extent=(?P<large>\d+).* for src=(?P<buffer>\w+), dst=(?P<other>\w+)",
        _("T.copy is to bring {large} elements of {buffer} into {small} of {other}."),
        _("Give both sides the same extents: slice the larger one."),
        _on_buffers("copy"),
    ),
    _rule(
        r"Only elementwise operations are allowed inside a parallel loop.*name=\"tl\.tileop\.(?P<op>\w+)\"",
        _("T.{op} works on a whole tile, so it can't stand inside T.Parallel."),
        _("Move it out of the loop: a tile operation spreads over the threads by itself. Or loop with T.serial."),
        _in_parallel,
    ),
    _rule(
        r"Pipelined loop cannot be nested inside a parallel loop",
        _("A T.Pipelined loop stands inside T.Parallel."),
        _("Turn them round: T.Pipelined outside, T.Parallel inside."),
        lambda values, names, all_sites: [s for s in all_sites if s.in_parallel and s.op == "pipelined"],
    ),
    _rule(
        r"no available layout found",
        _("TileLang finds no way to share {uneven} among {threads} threads."),
        _(
            "Choose extents whose product is a multiple of the threads (powers of two are safest) and pad "
            "what is "
            "odd; use whole fragments, not parts of them."
        ),
        _on_uneven,
    ),
    _rule(
        r"T\.tma_copy\(\) cannot fall back to normal copy.*src=(?P<buffer>\w+), dst=(?P<other>\w+)",
        _("TileLang can't copy {buffer} to {other} with this architecture's TMA."),
        _("Write T.copy(..., disable_tma=True) there, or choose another dtype or tile width."),
        _on_buffers("copy"),
    ),
    _rule(
        r"^Layout .* has errors: .*(?:bijective|traverse)",
        _("{threads} threads can't share {uneven} evenly."),
        _("Choose the threads as a multiple of 32, and tiles whose size is a multiple of the threads."),
        _on_uneven,
    ),
    _rule(
        r"AllReduce requires logical_width .* got (?P<width>\d+)",
        _("A reduction would have to run over {width} threads; the card can do that for powers of two only."),
        _(
            "Choose threads as 32 times a power of two, and a reduced extent that is a power of two (pad "
            "the rest)."
        ),
        _kind("reduce"),
    ),
    _rule(
        r"^Cannot match type handle vs",
        _("A fragment is indexed by a value that was read from memory."),
        _(
            "Which thread holds an element must be known when the kernel is compiled. Keep what is looked "
            "up in a "
            "shared tile or in global memory, and index that."
        ),
        _indexed_by_data,
    ),
    _rule(
        r"Cannot lower (?P<op>cumsum|cummax\w*) for (?P<a>[\w.]+) and (?P<b>[\w.]+)",
        _("T.{op} works on shared tiles and fragments, not from {a} to {b} memory."),
        _("T.copy the input into a shared tile first."),
        _kind("cumsum", "cummax"),
    ),
    _rule(
        r"CanProveEqual\(abs\(source->scale\), 1\)",
        _("TileLang can't spread a fragment over the threads: a loop's variable picks single elements of it."),
        _(
            "Loop with T.Parallel over all of its dimensions, or use T.reduce_*; or keep the tile in shared "
            "memory."
        ),
        _indexed_from_outside,
    ),
    _rule(
        r"Local buffer `(?P<buffer>\w+)` is indexed by T\.Parallel loop variable",
        _("{buffer} is private to each thread (T.alloc_local), so T.Parallel can't share its elements out."),
        _("Allocate it with T.alloc_fragment, or index it in a T.serial or T.unroll loop."),
        _on_buffers("parallel"),
    ),
    _rule(
        r"T\.Parallel loop with symbolic range \((?P<index>.*)\) is used to index a fragment",
        _("A T.Parallel loop whose length is only known at run time ({index}) indexes a fragment."),
        _("Loop over the whole tile, and guard the body: 'if i < length:'."),
        _unknown_size,
    ),
    _rule(
        r"Can not use non-constant range to iterate over a fragment",
        _("A part of a fragment whose size is only known at run time is copied."),
        _("Copy the whole tile: T.copy guards what lies outside of a tensor by itself."),
        _unknown_size,
    ),
    _rule(
        r"Loop layout is not injective",
        _("TileLang would have two threads hold one element in this statement."),
        _("Use whole fragments, in tiles whose extents are powers of two; a part of one needs a tile of its own."),
        _anywhere,
    ),
    _rule(
        r"Two statements in the software pipeline cannot have the same order",
        _("Two statements of the pipeline were given the same order."),
        _("Drop order= and stage=, or number the statements of the loop 0, 1, 2, …"),
        _kind("pipelined"),
    ),
    _rule(
        r"Downcast from tirx\.\w+ to ir\.IntImm failed",
        _(
            "TileLang needs a number when it compiles that is known only on the card. Most likely it is how often "
            "a T.Pipelined loop runs which copies tiles at two places."
        ),
        _("For cards before Hopper, TileLang 0.1.15 can't pipeline such a loop: choose num_stages=1."),
        _kind("pipelined"),
    ),
    _rule(
        r"Cannot find role for stmt: tirx\.(?P<op>\w+)",
        _(
            "TileLang can't divide this pipelined loop between copying and computing warps: it holds a {op} "
            "statement."
        ),
        _("Use T.serial instead of T.Pipelined for this loop, or move the statement out of it."),
        _kind("while"),
    ),
    _rule(
        r"^TileLang did not finish compiling|^nvcc did not finish",
        _("The compiler did not come to an end."),
        _("Unrolled loops and huge fragments make it slow: use T.serial, or smaller tiles."),
        _anywhere,
    ),
)


# From an error to an explanation


def explain(
    error: NotLowered,
    kernel: nodes.Kernel,
    options: Mapping[str, bool | int] | None = None,
    *,
    search: bool = True,
) -> Explained:
    """What the error means for the student who wrote ``kernel``.

    If the message alone doesn't tell the line and ``search`` is set, the kernel is lowered again, cut off after
    its first statement, after its second, and so on, until the same error comes (seconds).
    """
    explained = explain_text(error.text, kernel, crashed=error.kind == "Crash")
    if explained.lines or not search or error.kind == "Timeout":
        return explained
    line = _first_line_of(error, kernel, options or {})
    return explained if line is None else replace(explained, lines=(line,))


def explain_text(
    text: str, kernel: nodes.Kernel, *, compiler: str = "TileLang", crashed: bool = False
) -> Explained:
    """The same from the message of ``compiler`` alone, without lowering anything again."""
    names = ir.written_names(kernel)
    own_words = _shortened(text, names)
    spans = _spans(text, kernel)
    for rule in RULES:
        match = rule.pattern.search(text)
        if match is None:
            continue
        values = {name: value for name, value in match.groupdict().items() if value is not None}
        values |= _of_kernel(kernel)
        found = [site.line for site in rule.find(values, names, sites(kernel)) if site.line is not None]
        shown = {name: _renamed(value, names) for name, value in values.items()}
        message, advice = rule.message.format(**shown), rule.advice.format(**shown)
        return Explained(message, advice, spans or tuple(dict.fromkeys(found)), own_words)
    if crashed:
        message = _("{compiler}'s process ended on this kernel. Its last words: {words}")
    else:
        message = _("{compiler} can't compile this kernel. In its own words: {words}")
    advice = _("Try it with the last statement that you added left out, to see which one it is about.")
    return Explained(message.format(words=own_words, compiler=compiler), advice, spans, own_words, known=False)


def _of_kernel(kernel: nodes.Kernel) -> Values:
    """What messages say of the kernel: its threads, and the fragments that these can't share evenly."""
    threads = prod(kernel.threads)
    uneven = [
        f"{buffer.name} ({'×'.join(map(ir.show, buffer.shape))})"
        for buffer in kernel.allocations
        if _is_uneven(buffer, threads)
    ]
    return {"threads": str(threads), "uneven": ", ".join(uneven) or _("a fragment")}


def _first_line_of(error: NotLowered, kernel: nodes.Kernel, options: Mapping[str, bool | int]) -> Line | None:
    """The line of the statement with which the error first comes, if the kernel grows statement by statement."""
    cut = list(prefixes(kernel))[:MAX_PREFIXES]
    jobs = [Job(ir.write(part), error.arch, options) for _line, part in cut]
    results = lower_all(jobs, until=error)
    for (line, _part), result in zip(cut, results, strict=False):
        if isinstance(result, NotLowered) and result.signature == error.signature:
            return line
    return None


#: A name of ``ir.write``, in a compiler's message.
_NAME = re.compile(r"\b[a-z]+\d+\b")


def _renamed(text: str, names: Mapping[str, object]) -> str:
    """The text with the student's names in place of the writer's."""
    return _NAME.sub(lambda match: str(getattr(names.get(match[0]), "name", match[0])), text)


def _shortened(text: str, names: Mapping[str, object]) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [_("(no message)")]
    first = re.sub(r"^Check failed: (.*?) is false:\s*(?=\S)", "", lines[0])
    words = _renamed(first, names)
    return words if len(words) <= MAX_OWN_WORDS else words[:MAX_OWN_WORDS].rpartition(" ")[0] + " …"


def _spans(text: str, kernel: nodes.Kernel) -> tuple[Line, ...]:
    """The lines that a message points at by itself ("--> kernel:12:1")."""
    numbers = [int(number) for number in re.findall(r"--> kernel:(\d+):", text)]
    known = {site.line.number: site.line for site in sites(kernel) if site.line is not None}
    return tuple(known[number] for number in dict.fromkeys(numbers) if number in known)


# Warnings


def explain_warnings(lowered: Lowered, kernel: nodes.Kernel) -> tuple[Explained, ...]:
    """TileLang's warnings about a kernel that it compiles."""
    return tuple(_warning(text, kernel) for text in lowered.warnings)


def _warning(text: str, kernel: nodes.Kernel) -> Explained:
    names = ir.written_names(kernel)
    own_words, lines = _shortened(text, names), _spans(text, kernel)
    unread = re.search(r"`(\w+)` is read before anything writes it", text)
    if unread:
        message = _("{buffer} is read before anything is written to it.").format(buffer=_renamed(unread[1], names))
        advice = _("An accumulator needs T.clear, a tile T.copy, before it is read.")
        return Explained(message, advice, lines, own_words)
    serial = re.search(r"T\.vectorized loop over `(\w+)` with extent (\d+) is lowered as a serial loop", text)
    if serial and serial[1] not in names:  # a loop of TileLang's own making
        message = _("A T.Parallel loop works element by element: TileLang found no way to take {count} at a time.")
        advice = _(
            "The kernel is right, and often no slower. This is seen where a loop names a value (z = …) and calls "
            "a function without a vector form (T.fast_rcp)."
        )
        return Explained(message.format(count=serial[2]), advice, lines, own_words)
    if serial:
        message = _("A T.vectorized loop of {count} became a plain loop: TileLang found no vectors for it.")
        advice = _(
            "Vectors have 2, 4 or 8 neighbouring elements, aligned to their size, and no variable that each step "
            "changes. Or use T.serial."
        )
        return Explained(message.format(count=serial[2]), advice, _loop(kernel, names.get(serial[1])), own_words)
    return Explained(_("TileLang warns: {words}").format(words=own_words), "", lines, own_words, known=False)


def _loop(kernel: nodes.Kernel, var: object) -> tuple[Line, ...]:
    """The line of the loop over ``var``."""
    loops = [node for node in nodes.walk(kernel.body) if isinstance(node, nodes.For) and node.var is var]
    return tuple(loop.line for loop in loops if loop.line is not None)
