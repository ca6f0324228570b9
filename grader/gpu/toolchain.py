"""CUDA's compilers of this machine, and the options that TileLang's CUDA source is compiled with: the one place.

Two compilers make the same machine code: nvcc, and NVRTC, which is the same compiler as a library. NVRTC needs no
host passes and can keep the parsed headers (``precompiled``), so it is several times faster. It is taken only if
its release is nvcc's, because the headers are.
"""

import importlib.metadata
import importlib.util
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grader.gpu.hardware import ask, look_at_compiler

NVCC = "nvcc"
NVRTC = "NVRTC"
PRECOMPILED = "NVRTC with precompiled headers"
WAYS = (NVCC, NVRTC, PRECOMPILED)  # from the slowest to the fastest

FAST_MATH = "tl.enable_fast_math"
REGISTER_LEVEL = "tl.ptxas_register_usage_level"

Options = Mapping[str, bool | int]


@dataclass(frozen=True)
class Toolchain:
    """``nvcc`` runs, and CUDA's folder is ``home``; ``release`` is its full version ("13.0.88").

    ``nvrtc`` is the library, None without one.
    """

    nvcc: Path
    home: Path
    release: str
    nvrtc: Path | None

    @property
    def version(self) -> tuple[int, int]:
        major, minor = self.release.split(".")[:2]
        return int(major), int(minor)

    @property
    def includes(self) -> tuple[Path, ...]:
        """CUDA's own headers. nvcc finds them by itself."""
        return (self.home / "include", self.home / "include" / "cccl")


@cache
def find() -> Toolchain | None:
    """The nvcc that TileLang would take, and the NVRTC of its release. None without an nvcc that runs."""
    compiler = look_at_compiler()
    if compiler is None or compiler.version is None:
        return None
    answer, _error = ask([compiler.path, "--version"])
    found = re.search(r"\bV(\d+\.\d+\.\d+)", answer)
    release = found[1] if found else ".".join(map(str, compiler.version))
    home = _home(compiler.path)
    return Toolchain(Path(compiler.path), home, release, _find_nvrtc(home, compiler.version))


def _home(nvcc: str) -> Path:
    """CUDA's folder. nvcc knows: its own path may be a link, or a script that calls it."""
    done = subprocess.run(
        [nvcc, "--dryrun", "-cubin", "-x", "cu", os.devnull],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    found = re.search(r"^#\$ TOP=(.+)$", done.stderr, re.MULTILINE)
    return (Path(found[1]) if found else Path(nvcc).parent.parent).resolve()


def _find_nvrtc(home: Path, version: tuple[int, int]) -> Path | None:
    """Beside nvcc, or the wheel that torch brings if it is of the same release."""
    name = f"libnvrtc.so.{version[0]}"
    for folder in ("lib64", "lib", "targets/x86_64-linux/lib", "lib/x86_64-linux-gnu"):
        if (path := home / folder / name).exists():
            return path
    try:
        wheel = importlib.metadata.distribution("nvidia-cuda-nvrtc")
    except importlib.metadata.PackageNotFoundError:
        return None
    if tuple(map(int, wheel.version.split(".")[:2])) != version:
        return None
    return next((Path(str(file.locate())) for file in wheel.files or () if file.name == name), None)


# -- options ------------------------------------------------------------------------------------------------


def nvcc_options(arch: str, options: Options) -> list[str]:
    """To a cubin for ``arch`` ("sm_90a"), as TileLang has it. Line information is for profilers and sanitizers."""
    number = arch.removeprefix("sm_")
    return [f"-gencode=arch=compute_{number},code=sm_{number}", "-cubin", "-O3", "-lineinfo", *_common(options)]


def nvrtc_options(toolchain: Toolchain, arch: str, options: Options) -> list[str]:
    """The same for NVRTC. Its own cache on disk is left out: ``library_cache`` keeps what is worth keeping."""
    headers = [f"-I{path}" for path in toolchain.includes]
    return [f"-arch={arch}", "-lineinfo", "-default-device", "-no-cache", "-w", *_common(options), *headers]


def _common(options: Options) -> list[str]:
    root = tilelang_folder()
    found = ["-std=c++20", f"-I{root / 'src'}", f"-I{root / '3rdparty' / 'cutlass' / 'include'}"]
    if options.get(FAST_MATH):
        found.append("--use_fast_math")
    if REGISTER_LEVEL in options:
        found.append(f"--ptxas-options=--register-usage-level={int(options[REGISTER_LEVEL])}")
    return found


@cache
def tilelang_folder() -> Path:
    """TileLang's folder, found without importing it."""
    spec = importlib.util.find_spec("tilelang")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("tilelang is not installed")
    return Path(spec.origin).parent


# -- precompiled headers ------------------------------------------------------------------------------------

_TEMPLATES = "tl_templates/cuda/"
_EVERY = ("reduce.h", "scan.h", "ldsm.h", "threadblock_swizzle.h", "debug.h")  # what every source includes
WGMMA = "instruction/wgmma.h"
_HOPPER = (WGMMA, "intrin.h", "barrier.h", "copy_sm90.h")
_FIRST = f"#include <{_TEMPLATES}nvrtc_std.h>\n"  # NVRTC has no standard library: TileLang's stand-in


@dataclass(frozen=True)
class Headers:
    """What is parsed once for many kernels: TileLang's headers that every source has, ``wgmma`` those of Hopper's
    matrix products too. Every header guards itself, so a source may include them again, and others besides.
    """

    arch: str
    fast_math: bool
    wgmma: bool

    @property
    def name(self) -> str:
        return f"{self.arch}{'-fast' if self.fast_math else ''}{'-wgmma' if self.wgmma else ''}"

    @property
    def text(self) -> str:
        names = (*(_HOPPER if self.wgmma else ()), *_EVERY)
        return _FIRST + "".join(f"#include <{_TEMPLATES}{name}>\n" for name in names) + "#pragma nv_hdrstop\n"


def headers_for(arch: str, options: Options, source: str) -> Headers:
    """The headers that fit a CUDA source, or (before there is one) the kernel's IR."""
    products = WGMMA in source or (arch == "sm_90a" and "tl.tileop.gemm" in source)
    return Headers(arch, bool(options.get(FAST_MATH)), products)


def all_headers(arch: str) -> tuple[Headers, ...]:
    """What kernels of an architecture include, as long as none asks for fast mathematics."""
    return tuple(Headers(arch, False, wgmma) for wgmma in ((False, True) if arch == "sm_90a" else (False,)))


def without_headers(source: str) -> str:
    """A CUDA source for NVRTC, that parses all its headers itself."""
    return _FIRST + source
