"""Compiles admitted IR for the card of this machine. For worker processes only: TVM is imported here."""

import concurrent.futures
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

Launch = Callable[..., None]


@dataclass(frozen=True)
class Source:
    """What is compiled: JSON from ``grader.admit`` (never a student's own) and admitted options."""

    json: str
    options: dict[str, bool | int]


def compile_all(sources: dict[str, Source]) -> Iterator[tuple[str, Launch | Exception]]:
    """Each source by name, as it gets ready, compiled in parallel. A launch takes the tensors by position."""
    target = {"kind": "cuda", "arch": _architecture()}
    workers = max(1, min(len(sources), os.cpu_count() or 1))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        names = {pool.submit(_compile, source, target): name for name, source in sources.items()}
        for future in concurrent.futures.as_completed(names):
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            yield names[future], error or future.result()


def _architecture() -> str:
    """The card's, with the instructions that only it has ("a") from Hopper on."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def _compile(source: Source, target: dict[str, str]) -> Launch:
    import tilelang
    from tilelang import tvm

    function = tvm.ir.load_json(source.json)
    return tilelang.compile(function, target=target, pass_configs=dict(source.options) or None)
