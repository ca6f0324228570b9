"""NVRTC, CUDA's compiler as a library: to a cubin, with headers that were parsed beforehand.

Bound by ctypes, not by ``cuda-bindings``: a dozen calls are needed, the library must be the one whose headers and
nvcc are used (not the one that a package finds), and a machine with no GPU need not install bindings to CUDA's
driver. Reference: NVRTC documentation, "User Interface" and "Precompiled Headers".

A precompiled header is a picture of NVRTC's own heap, and serves only where that heap lies at the same address. So
``reserve`` allocates the heap once, and what is forked from that process afterwards can make and use such headers.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path

HEAP = 2**30  # bytes of address space: the headers of Hopper's products alone take 290 MB of it


class Refused(Exception):
    """NVRTC did not compile a source. The text is its log."""


class Nvrtc:
    """A loaded library. OSError if it can't be loaded, RuntimeError if it doesn't work."""

    def __init__(self, path: Path) -> None:
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
            # The library looks for it by name alone, which finds it only if it is there already.
            ctypes.CDLL(str(builtins))
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        self._library.nvrtcSetPCHHeapSize.argtypes = [ctypes.c_size_t]
        self._library.nvrtcDestroyProgram.argtypes = [ctypes.c_void_p]

    @property
    def version(self) -> tuple[int, int]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def reserve(self, scratch: Path) -> None:
        """Allocates the heap of precompiled headers, by making an empty one in the folder ``scratch``."""
        self._call("nvrtcSetPCHHeapSize", HEAP)
        file = scratch / "reserve.pch"
        self.precompile("#pragma nv_hdrstop\n", file, ["-no-cache"])
        file.unlink()

    def precompile(self, text: str, file: Path, options: Sequence[str]) -> None:
        """Writes the headers that ``text`` includes to ``file``. Raises Refused."""
        log = self.log_of(text, [*options, f"--create-pch={file}"])
        if not file.exists():
            raise Refused(f"NVRTC wrote no precompiled headers: {log}")

    def compile(self, source: str, options: Sequence[str], headers: Path | None = None) -> bytes:
        """A cubin. ``headers``: what the source begins with is taken from there. Raises Refused."""
        return self._compile(source, [*options, *([f"--use-pch={headers}"] if headers else [])])

    def log_of(self, source: str, options: Sequence[str]) -> str:
        """What is printed of a source: with "--ptxas-options=-v", ptxas's figures, too. Raises Refused."""
        return self._compile(source, options, "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace")

    def _compile(self, source: str, options: Sequence[str], wanted: str = "nvrtcGetCUBIN") -> bytes:
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        try:
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            if self._library.nvrtcCompileProgram(program, len(options), given) != 0:
                raise Refused(self._bytes(program, "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace"))
            return self._bytes(program, wanted)
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, call: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{call}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(call, program, buffer)
        return buffer.raw

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: {self._library.nvrtcGetErrorString(status).decode()}")
