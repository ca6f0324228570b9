"""The command: ``python -m tests.conformance``."""

import argparse
import json
import logging
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from .registry import CASES, Case
from .simulated import Result, check


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--device", choices=("simulator", "cuda"), default="simulator")
    parser.add_argument("--only", default="", help="cases whose construct or name contains this text")
    parser.add_argument("--list", action="store_true", help="say which cases there are")
    parser.add_argument("--lower", action="store_true", help="also lower each kernel for sm_90a, with no GPU")
    parser.add_argument("--workers", type=int, default=0, help="processes; as many as cores if not given")
    parser.add_argument("--seconds", type=float, default=400.0, help="on the card: no case is begun after them")
    parser.add_argument("--part", default="1/1", help="on the card: run the K-th of N parts of the cases, K/N")
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks"), help="the folder for the JSON and the page"
    )
    parser.add_argument("--merge", type=Path, nargs="+", help="make one page of several runs' JSON, and end")
    asked = parser.parse_args()
    if asked.merge:
        write_merged(asked.merge, asked.out)
        return
    cases = select(asked.only)
    if asked.list:
        print("\n".join(f"{case.construct}: {case.name}" for case in cases))
        return
    if not cases:
        sys.exit(f"no case contains '{asked.only}'")
    workers = asked.workers or os.cpu_count() or 1
    if asked.device == "cuda":
        from . import card

        part, parts = map(int, asked.part.split("/"))
        sys.exit(card.run(cases, workers, asked.seconds, asked.out, (part, parts)))
    from rich.console import Console

    from . import table

    console = Console(width=None if sys.stdout.isatty() else 150)
    results = list(checked(cases, workers))
    right = table.show(cases, results, console)
    if asked.lower:
        from .lowered import lowered

        problems = list(lowered(cases, workers))
        for problem in problems:
            console.print(problem, style="red", markup=False)
        console.print(f"{len(cases) - len(problems)} of {len(cases)} kernels lower for sm_90a as is said of them")
        right = right and not problems
    sys.exit(0 if right else 1)


def write_merged(files: Sequence[Path], out: Path) -> None:
    from . import card, markdown

    record = card.merged(files)
    (out / "conformance.json").write_text(json.dumps(record, indent=1))
    (out / "conformance.md").write_text(markdown.page(record))


def select(text: str) -> list[Case]:
    """The cases whose construct or name contains the text."""
    from . import kernels

    assert kernels.__all__  # importing them registered the cases
    return [case for case in CASES.values() if text in case.construct or text in case.name]


def quiet() -> None:
    """TileLang logs what it can't trace or lower, whole sources included: the table says that more briefly."""
    import torch

    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)


def _check(name: str) -> Result:
    return check(CASES[name])


def checked(cases: Sequence[Case], workers: int) -> Iterator[Result]:
    """Every case on the simulator, in order."""
    if workers < 2 or len(cases) < 2:
        quiet()
        yield from map(check, cases)
        return
    import tilelang  # noqa: F401 (before the fork: it takes seconds)

    with multiprocessing.get_context("fork").Pool(workers, initializer=quiet) as pool:
        yield from pool.imap(_check, [case.name for case in cases], chunksize=8)
