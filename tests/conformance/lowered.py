"""Lowers the kernels for sm_90a, which needs no GPU: TileLang must accept all but those that are said not to."""

import multiprocessing
from collections.abc import Iterator, Sequence

from .registry import CASES, Case
from .simulated import brief

ARCHITECTURE = "sm_90a"
NVCC = "nvcc:"  # begins the reason of a kernel that TileLang lowers to source that nvcc refuses


def lowered(cases: Sequence[Case], workers: int) -> Iterator[str]:
    """What doesn't lower as its case says."""
    from .command import quiet

    names = [case.name for case in cases]
    with multiprocessing.get_context("fork").Pool(workers, initializer=quiet) as pool:
        yield from filter(None, pool.imap(problem, names, chunksize=4))


def problem(name: str) -> str:
    """Why the case isn't as it says; nothing if it is."""
    case = CASES[name]
    by_nvcc = case.uncompilable.startswith(NVCC)
    try:
        source(case)
    except Exception as error:
        if not case.uncompilable or by_nvcc:
            return f"{name} doesn't lower: {brief(error)}"
        if not all(word in str(error) for word in case.uncompilable.split()):
            return f"{name} doesn't lower for another reason than '{case.uncompilable}': {brief(error)}"
        return ""
    if case.uncompilable and not by_nvcc:
        return f"{name} lowers, though it is said not to: {case.uncompilable}"
    return ""


def source(case: Case) -> str:
    """The CUDA source of a case's kernel."""
    import tilelang
    from tilelang import tvm

    target = tvm.target.Target({"kind": "cuda", "arch": ARCHITECTURE}, host="c")
    with target:
        return tilelang.lower(case.build().kernel, target=target).kernel_source
