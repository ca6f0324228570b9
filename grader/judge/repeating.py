"""Large tensors of random numbers that take hardly any memory: a short pattern, mapped again and again.

For looking at a few blocks of a large kernel. Pages are copied when they are written.
"""

import ctypes
import mmap
import os
from math import prod

import torch

PERIOD = 5_000 * mmap.PAGESIZE  # bytes: no power of two, so that it meets no tile's edge again and again

_MAP_FIXED = 0x10  # <asm-generic/mman-common.h>; Python's mmap has no name for it


def repeating(dtype: torch.dtype, sizes: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """A tensor whose elements, normal for floating dtypes and 0 or 1 for others, repeat after PERIOD bytes.

    Its memory stays mapped until the process ends. Raises OSError if the system has no room for it.
    """
    size = prod(sizes) * dtype.itemsize
    count = PERIOD // dtype.itemsize
    if dtype.is_floating_point:
        pattern = torch.randn(count, generator=generator).to(dtype)
    else:
        pattern = torch.randint(2, (count,), generator=generator).to(dtype)
    file = os.memfd_create("pattern")
    try:
        os.truncate(file, PERIOD)
        with mmap.mmap(file, PERIOD) as window:
            window[:] = pattern.view(torch.uint8).numpy().tobytes()
        address = _mapped(file, -(-max(size, 1) // PERIOD))
    finally:
        os.close(file)
    memory = (ctypes.c_uint8 * max(size, 1)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype, count=prod(sizes)).view(sizes)


def _mapped(file: int, times: int) -> int:
    """The address of so many copies of the pattern, one behind the other."""
    reach = mmap.PROT_READ | mmap.PROT_WRITE
    start = _mmap(None, times * PERIOD, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    for number in range(times):
        _mmap(start + number * PERIOD, PERIOD, reach, mmap.MAP_PRIVATE | _MAP_FIXED, file)
    return start


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]


def _mmap(address: int | None, size: int, reach: int, flags: int, file: int) -> int:
    found = _libc.mmap(address, size, reach, flags, file, 0)
    if found == ctypes.c_void_p(-1).value:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return found
