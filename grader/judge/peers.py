"""Peers: library calls that do the same work as a kernel, on the same inputs, to be timed beside it.

Each lab names those that may be the best for its work; ``tilelab calibrate`` finds out which is, on a card.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from grader.messages.errors import first_line

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Peer:
    """``prepare(inputs, output)``, with tensors on the card, does what is done once (compiling, warming up).

    It returns the launch, which does the work once on the current stream and returns where the result is: in
    ``output`` if the library can write there. It raises Missing if this installation or card can't.
    """

    name: str
    prepare: Callable[[Tensors, torch.Tensor], Callable[[], torch.Tensor]]


class Missing(RuntimeError):
    """The library has no such call here: the message says why."""


def writing(name: str, work: Callable[[Tensors, torch.Tensor], object]) -> Peer:
    """A call that writes to a given output."""

    def prepare(inputs: Tensors, output: torch.Tensor) -> Callable[[], torch.Tensor]:
        def launch() -> torch.Tensor:
            work(inputs, output)
            return output

        return _warm(launch)

    return Peer(name, prepare)


def eager(name: str, work: Callable[..., torch.Tensor]) -> Peer:
    """A function of the inputs, kernel by kernel as torch runs it."""
    return Peer(name, lambda inputs, output: _warm(lambda: work(*inputs)))


def compiled(work: Callable[..., torch.Tensor]) -> Peer:
    """A function of the inputs, through torch.compile."""

    def prepare(inputs: Tensors, output: torch.Tensor) -> Callable[[], torch.Tensor]:
        function = _compiled(work)
        return _warm(lambda: function(*inputs))

    return Peer("torch.compile", prepare)


def attention(backend: str, *, causal: bool) -> Peer:
    """Scaled dot product attention of (batch, heads, length, dim) by ``backend``: "cuDNN" or "flash"."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kinds = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}

    def prepare(inputs: Tensors, output: torch.Tensor) -> Callable[[], torch.Tensor]:
        def launch() -> torch.Tensor:
            with sdpa_kernel(kinds[backend]):
                return torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=causal)

        return _warm(launch)

    return Peer(f"{backend} attention", prepare)


@cache
def _compiled(work: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return torch.compile(work, dynamic=False)


def _warm(launch: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """The launch, after a first one: what can't run here fails now, and libraries choose their kernels now."""
    try:
        if launch().is_cuda:
            torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, ImportError) as error:
        raise Missing(first_line(error)) from error
    return launch
