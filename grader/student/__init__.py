"""The functions that a lab's notebook calls.

They run in the student's own kernel, so they trace there, and leave judging to another process: the same one,
with the same tests, that grades the notebook later.
"""

import os

#: Set in the sandbox: grading traces the kernels itself, and these functions have nothing to do there.
_CAPTURING = "TILELAB_CAPTURE"


def check(kernel: object, part: str | None = None, *, device: str = "auto") -> None:
    """Shows what the judge says of ``kernel``, a function decorated with ``@tilelang.jit``.

    Which lab it belongs to is known by its name. ``part`` is "right" or "fast" (both, if it is left out);
    ``device`` is "auto" (the GPU if there is one, else the simulator), "sim" or "gpu".
    """
    if os.environ.get(_CAPTURING):
        return
    from grader.student.checking import check_kernel

    check_kernel(kernel, part, device)


check.__module__ = "grader"
