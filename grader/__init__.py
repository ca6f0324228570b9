"""What students call from a notebook: ``from grader import bench, check, ready``, and what ``__all__`` names.

Importing this is quick and needs no GPU. What each function does is in ``grader.student``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grader.student import bench, check, ready, roofline, show_cuda, show_prints, trace

__all__ = ["bench", "check", "ready", "roofline", "show_cuda", "show_prints", "trace"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'grader' has no attribute {name!r}")
    import grader.student

    return getattr(grader.student, name)
