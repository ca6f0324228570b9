"""The functions that a lab's notebook calls.

They run in the student's own kernel, so they trace there, and leave judging to another process: the same one,
with the same tests, that grades the notebook later.
"""

import os

#: Set in the sandbox: grading traces the kernels itself, and these functions have nothing to do there.
_CAPTURING = "TILELAB_CAPTURE"


def ready() -> None:
    """Installs what the labs need and is missing (on Google Colab, say), and says who judges here.

    Every lab's first cell calls it. Where all is in place it only looks.
    """
    if os.environ.get(_CAPTURING):
        return
    from grader.student.preparing import make_ready

    make_ready()


def check(kernel: object = None, part: str | None = None, *, device: str = "auto", **values: object) -> None:
    """Shows what the judge says of ``kernel``, a function decorated with ``@tilelang.jit``, or of ``values``.

    Which lab a kernel belongs to is known by its name. A value is passed under the name that the lab gives it:
    ``check(best=best)``. Some kernels are judged with values beside them: ``check(matmul, "right", best=best)``.

    ``part`` is "right" or "fast" (both, if it is left out); without a kernel it is the part that is called like
    the first of the values. ``device`` is "auto" (the GPU if there is one, else the simulator), "sim" or "gpu".
    """
    if os.environ.get(_CAPTURING):
        return
    from grader.student.checking import check_handed_in

    check_handed_in(kernel, values, part, device)


def trace(
    kernel: object,
    block: tuple[int, ...] = (0, 0),
    shape: str | dict[str, int] | None = None,
    **schedule: object,
) -> None:
    """Shows what one block of ``kernel`` does, step by step, on the simulator: which tiles it reads and writes.

    ``block`` are the block's indices, x first. ``shape`` is the name of one of the lab's shapes, or sizes such as
    ``{"M": 64, "N": 64, "K": 32}``. Further arguments go to the kernel's function: small tiles, such as
    ``block_M=8``, show their values as numbers.
    """
    if os.environ.get(_CAPTURING):
        return
    from grader.student.tracing import show_trace

    show_trace(kernel, block, shape, schedule)


def roofline(
    kernel: object,
    shape: str | dict[str, int] | None = None,
    card: str | None = None,
    **schedule: object,
) -> None:
    """Shows what ``kernel`` moves and computes, and the least time that takes on cards, by their datasheets.

    ``shape`` is the name of one of the lab's shapes, or sizes such as ``{"M": 512, "N": 512, "K": 512}``; ``card``
    is one card's name, for instance "H200". Further arguments go to the kernel's function, such as ``block_M=64``.
    """
    if os.environ.get(_CAPTURING):
        return
    from grader.student.rooflines import show_roofline

    show_roofline(kernel, shape, card, schedule)


def bench(kernel: object, shape: str | dict[str, int] | None = None, **schedule: object) -> None:
    """Measures ``kernel`` on this machine's card beside every library that does the same work. Gives no points.

    ``shape`` is the name of one of the lab's shapes, or sizes such as ``{"M": 512, "N": 512, "K": 512}``; without
    it, the shape whose speed is judged. Further arguments go to the kernel's function, such as ``block_M=64``.
    """
    if os.environ.get(_CAPTURING):
        return
    from grader.student.benching import show_bench

    show_bench(kernel, shape, schedule)


def show_cuda(
    kernel: object,
    shape: str | dict[str, int] | None = None,
    arch: str | None = None,
    **schedule: object,
) -> None:
    """Shows the CUDA source that ``kernel`` becomes, with line numbers and its landmarks marked. Needs no GPU.

    ``shape`` is the name of one of the lab's shapes, or sizes such as ``{"M": 512, "N": 512, "K": 512}``; without
    it, the shape whose speed is judged. ``arch`` is for instance "sm_80" (A100) or "sm_90a" (H100, H200); without
    it, this machine's card's, or sm_90a. Further arguments go to the kernel's function, such as ``block_M=64``.
    """
    if os.environ.get(_CAPTURING):
        return
    from grader.student.cuda import show_cuda_source

    show_cuda_source(kernel, shape, arch, schedule)


def show_prints(
    kernel: object,
    shape: str | dict[str, int] | None = None,
    block: tuple[int, ...] | None = None,
    **schedule: object,
) -> None:
    """Runs ``kernel`` on the simulator and shows what its ``T.print`` statements print, block by block.

    ``shape`` is the name of one of the lab's shapes, or sizes such as ``{"M": 1, "N": 8}``. ``block`` are the
    indices of one block, x first; without it all are shown. Further arguments go to the kernel's function: small
    tiles, such as ``block_N=4``, print few values.
    """
    if os.environ.get(_CAPTURING):
        return
    from grader.student.printing import show_printout

    show_printout(kernel, shape, block, schedule)


for _tool in (bench, check, ready, roofline, show_cuda, show_prints, trace):
    _tool.__module__ = "grader"
