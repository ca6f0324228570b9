"""Which instructions a lowered kernel became: landmarks in its CUDA source, and how wide it reaches global memory.

Counts are places in the text: a landmark in a loop counts once, however often it runs.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: landmark -> what it looks like in TileLang's CUDA source, in the order in which they are told.
LANDMARKS = {
    "mma": r"\btl::mma_sync<|\btl::mma_sync_sm\d+<|\bmma\.sync\b",
    "wgmma": r"\btl::wgmma_(?:ss|rs)\b",
    "tcgen05": r"\btl::tcgen05\w*mma\w*",
    "ldmatrix": r"\btl::ptx_ldmatrix_\w+",
    "stmatrix": r"\btl::ptx_stmatrix_\w+",
    "cp.async": r"\btl::cp_async_gs\w*<",
    "TMA load": r"\btl::tma_load\w*\(",
    "TMA store": r"\btl::tma_store(?!_)\w*[(<]|\btl::tma_reduce\w*[(<]",
    "mbarrier": r"\bmbarrier(?:_\d+)?\[.*?\]\.(?:wait|arrive\w*|expect\w*)\(|\btl::mbarrier_\w+\(",
    "setmaxnreg": r"\btl::warpgroup_reg_(?:de)?alloc<",
    "__syncthreads": r"\b__syncthreads\(",
    "named barrier": r"\btl::__sync_thread_partial\b|\btl::NamedBarrier<",
    "warp reduction": r"\btl::AllReduce<|\btl::warp_reduce\w*\b|\b__shfl\w*\(",
    "atomic": r"\bAtomic\w+\(|\batomic[A-Z]\w+\(",
}

_PATTERNS = {name: re.compile(pattern) for name, pattern in LANDMARKS.items()}

#: CUDA type -> bytes. Vector types are a base and a count ("float4").
_BASE = {
    "char": 1,
    "uchar": 1,
    "short": 2,
    "ushort": 2,
    "half_t": 2,
    "half": 2,
    "bfloat16_t": 2,
    "int": 4,
    "uint": 4,
    "float": 4,
    "longlong": 8,
    "ulonglong": 8,
    "long": 8,
    "ulong": 8,
    "double": 8,
    "bool": 1,
    "signed char": 1,
    "unsigned char": 1,
    "unsigned int": 4,
    "unsigned short": 2,
    "int8_t": 1,
    "uint8_t": 1,
    "int16_t": 2,
    "uint16_t": 2,
    "int32_t": 4,
    "uint32_t": 4,
    "int64_t": 8,
    "uint64_t": 8,
    "tfloat32_t": 4,
}
_SMALL = re.compile(r"fp8_e\d_(?:(\d+)_)?t|float_e\dm\d_t")


@dataclass(frozen=True)
class Access:
    """Accesses of one width to one pointer parameter: ``bits`` at a time by a thread, at ``count`` places."""

    parameter: str
    writes: bool
    bits: int
    count: int


def landmarks(source: str) -> dict[str, int]:
    """How often each landmark stands in the source; those that don't occur are left out."""
    body = _body(source)
    counts = {name: sum(1 for _found in pattern.finditer(body)) for name, pattern in _PATTERNS.items()}
    return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True)
class Place:
    """A landmark in a source: the line (from 1), and the columns [start, end) of what gives it away (from 0)."""

    name: str
    line: int
    start: int
    end: int


def places(source: str) -> tuple[Place, ...]:
    """Where each landmark stands, from top to bottom. There are as many as ``landmarks`` counts."""
    body = _body(source)
    offset = len(source) - len(body)
    found = []
    for name, pattern in _PATTERNS.items():
        for match in pattern.finditer(body):
            start, end = match.start() + offset, match.end() + offset
            line = source.count("\n", 0, start) + 1
            begin = source.rfind("\n", 0, start) + 1
            found.append(Place(name, line, start - begin, end - begin))
    return tuple(sorted(found, key=lambda place: (place.line, place.start)))


def definition(source: str) -> int:
    """The line on which the kernel's definition begins (from 1): after the includes and its declaration."""
    return source.count("\n", 0, len(source) - len(_body(source))) + 1


def accesses(source: str) -> tuple[Access, ...]:
    """The reads and writes of global memory by threads, widest first. Those of the TMA are not here."""
    body = _body(source)
    counts: dict[tuple[str, bool, int], int] = {}
    for name, size in _pointers(source).items():
        for writes, width in _of(body, name, size):
            key = (name, writes, 8 * width)
            counts[key] = counts.get(key, 0) + 1
    rows = [Access(name, writes, bits, count) for (name, writes, bits), count in counts.items()]
    return tuple(sorted(rows, key=lambda row: (row.parameter, row.writes, -row.bits)))


def renamed(found: tuple[Access, ...], names: Mapping[str, str]) -> tuple[Access, ...]:
    """The same accesses under the student's names for the parameters."""
    return tuple(Access(names.get(a.parameter, a.parameter), a.writes, a.bits, a.count) for a in found)


def _body(source: str) -> str:
    """The definition of the kernel: what comes after the includes and its declaration."""
    start = source.find("__launch_bounds__")
    return source[start:] if start >= 0 else source


def _pointers(source: str) -> dict[str, int | None]:
    """The kernel's pointer parameters, each with the bytes of an element (None: a type that is not known here)."""
    head = _body(source).partition("{")[0]
    found = re.finditer(r"[(,]\s*(?:const\s+)?([\w ]+?)\s*\*\s*(?:__restrict__\s+)?(\w+)\s*(?=[,)])", head)
    return {match[2]: _size(match[1].strip()) for match in found}


def _size(kind: str) -> int | None:
    """Bytes of a CUDA type by its name."""
    if kind in _BASE:
        return _BASE[kind]
    small = _SMALL.fullmatch(kind)
    if small:
        return int(small[1] or 1)
    vector = re.fullmatch(r"([a-z]+?)(\d+)", kind)
    if vector and vector[1] in _BASE:
        return _BASE[vector[1]] * int(vector[2])
    return None


def _of(body: str, name: str, element: int | None) -> Iterator[tuple[bool, int]]:
    """(writes, bytes) of each access to the pointer ``name``."""
    # *(float4*)(g0 + ...): also inside tl::load_global_256(&(*(ulonglong4*)(g0 + ...))) and its store.
    for match in re.finditer(rf"\*\(([\w ]+)\*\)\({name} \+", body):
        width = _size(match[1])
        if width is not None:
            before = body[: match.start()]
            by_function = re.search(r"tl::(load|store)_global_\d+\w*(?:<[^>]*>)?\(&\($", before)
            end = _closing(body, body.index("(" + name, match.start()))
            yield (by_function[1] == "store" if by_function else _is_assigned(body, end)), width
    for match in re.finditer(rf"(&\()?\b{name}\[", body):
        if match[1]:
            asynchronous = re.search(
                rf"tl::cp_async_gs\w*<(\d+)>\([^;]*&\({name}\[$", _statement(body, match.end())
            )
            if asynchronous:
                yield False, int(asynchronous[1])
        elif element is not None:
            yield _is_assigned(body, _closing(body, match.end() - 1)), element


def _statement(body: str, end: int) -> str:
    """The text of a statement up to ``end``."""
    return body[max(body.rfind(";", 0, end), body.rfind("{", 0, end)) + 1 : end]


def _closing(body: str, opening: int) -> int:
    """The position after the bracket that closes the one at ``opening``."""
    depth = 0
    for position in range(opening, len(body)):
        depth += (body[position] in "([") - (body[position] in ")]")
        if depth == 0:
            return position + 1
    return len(body)


def _is_assigned(body: str, end: int) -> bool:
    return re.match(r"\s*=(?!=)", body[end : end + 8]) is not None


#: SASS mnemonics, where a disassembler is there: what the landmarks really became.
SASS = {
    "mma": r"\b[HIDQO]MMA\.",
    "wgmma": r"\b[HIQ]GMMA\.",
    "tcgen05": r"\bUT[CHIQO]MMA\b|\bUTC\w*MMA\b",
    "ldmatrix": r"\bLDSM\.",
    "stmatrix": r"\bSTSM\.",
    "cp.async": r"\bLDGSTS\.",
    "TMA load": r"\bUTMALDG\b",
    "TMA store": r"\bUTMASTG\b|\bUTMAREDG\b",
    "mbarrier": r"\bSYNCS\.",
    "setmaxnreg": r"\bUSETMAXREG\b",
    "barrier": r"\bBAR\.(?:SYNC|RED|ARV)",
    "warp reduction": r"\bSHFL\.",
    "atomic": r"\b(?:ATOMG?|REDG?)\.",
    "128-bit global read": r"\bLDG\.E\S*\.128",
    "128-bit global write": r"\bSTG\.E\S*\.128",
    "local memory (spills)": r"\b(?:LDL|STL)\b",
}


def sass_landmarks(listing: str) -> dict[str, int]:
    """How often each landmark stands in a disassembly of nvdisasm."""
    counts = {name: len(re.findall(pattern, listing)) for name, pattern in SASS.items()}
    return {name: count for name, count in counts.items() if count}
