"""Loads a compiled kernel on the card's side: TVM's runtime, and nothing that compiles.

A library holds a kernel's launcher and its machine code. The launcher checks what it is given against what the
kernel declared, and launches on torch's current stream, so that a CUDA graph can record it. Importing TileLang
would take seconds; of it only two shared objects are needed, one that loads machine code and one that describes
tensors to the TMA.
"""

import contextlib
import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch  # noqa: F401  first: TVM's libraries find CUDA's where torch has loaded them
import tvm_ffi

from grader.gpu.toolchain import tilelang_folder

Launch = Callable[..., None]
"""Takes the kernel's tensors by position. RuntimeError or TypeError if they aren't what it declared."""

NEEDED = ("ffi.Module.load_from_bytes.cuda", "__tvm_set_device", "__tvm_tensormap_create_tiled")


def load(library: Path) -> Launch:
    """The kernel in a library that ``grader.gpu.compiler`` built. It stays loaded until this process ends.

    Raises RuntimeError if it can't be loaded.
    """
    _runtime()
    return tvm_ffi.load_module(library)["main"]


@cache
def _runtime() -> None:
    """What a library's launcher asks for by name."""
    if _lacking():
        for name in ("libtvm_runtime.so", "libtilelang.so"):
            # An installation of another form than a wheel's has them elsewhere; TileLang itself will know.
            with contextlib.suppress(OSError):
                # Globally: a launcher finds the runtime's functions by name, when it first calls them.
                ctypes.CDLL(str(tilelang_folder() / "lib" / name), mode=os.RTLD_LAZY | os.RTLD_GLOBAL)
    if _lacking():
        import tilelang  # noqa: F401
    if lacking := _lacking():
        raise RuntimeError(f"TVM's runtime lacks {', '.join(lacking)}")


def _lacking() -> list[str]:
    return [name for name in NEEDED if tvm_ffi.get_global_func(name, allow_missing=True) is None]
