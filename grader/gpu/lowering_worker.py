"""The disposable process in which TileLang lowers kernels: TVM is imported here, and a crash costs one kernel.

    python -m grader.gpu.lowering_worker FOLDER

Reads FOLDER/job.json; appends to FOLDER/report.jsonl a line when a kernel is begun and one when it is done. The
alarm's default action ends the process, inside the compiler's C++ too.
"""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grader.gpu.lowering import MAX_SOURCE, signature

MAX_TEXT = 4_000
FUNCTION = "main"  # the name of every kernel, whatever it was called


def main() -> None:
    folder = Path(sys.argv[1])
    work = json.loads((folder / "job.json").read_text())
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    import tilelang  # noqa: F401  before the first kernel's time begins

    with (folder / "report.jsonl").open("a", buffering=1) as report:

        def say(**line: object) -> None:
            report.write(json.dumps(line) + "\n")

        for number, job in enumerate(work["jobs"]):
            say(started=number)
            signal.alarm(work["seconds"])
            start = time.monotonic()
            try:
                with _console() as printed:
                    found = _lower(job)
                say(job=number, seconds=time.monotonic() - start, warnings=_warnings("".join(printed)), **found)
            except Exception as error:
                text = str(error).strip()[:MAX_TEXT]
                kind = type(error).__name__
                say(job=number, seconds=time.monotonic() - start, error=kind, text=text)
                if signature(kind, text) == work["until"]:
                    break
            signal.alarm(0)
    # Threads and handlers of the libraries have nothing left to do.
    os._exit(0)


def lowered(job: dict[str, Any], **wanted: bool) -> Any:
    """TileLang's artifact of a job's "json" for its "arch" with its "options"; ``wanted`` goes to TileLang."""
    import tilelang
    from tilelang import tvm

    target = tvm.target.Target({"kind": "cuda", "arch": job["arch"]}, host="c")
    function = tvm.ir.load_json(job["json"]).with_attr("global_symbol", FUNCTION)
    with target, tvm.transform.PassContext(opt_level=3, config=job["options"]):
        return tilelang.lower(function, target=target, **wanted)


def _lower(job: dict[str, Any]) -> dict[str, Any]:
    artifact = lowered(job)
    (device,) = artifact.device_mod.functions.values()
    extents = device.attrs["thread_extent"]
    threads = 1
    for axis in "xyz":
        threads *= int(extents.get(f"threadIdx.{axis}", 1))
    grid = [_constant(extents.get(f"blockIdx.{axis}", 1)) for axis in "xyz"]
    shared = _constant(device.attrs.get("dyn_shared_memory_buf", 0))
    if len(artifact.kernel_source) > MAX_SOURCE or shared is None:
        raise ValueError(f"the lowered kernel is unusable: {len(artifact.kernel_source)} bytes of source")
    return {"source": artifact.kernel_source, "threads": threads, "grid": grid, "shared": shared}


def _constant(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


@contextmanager
def _console() -> Iterator[list[str]]:
    """Collects what C++ and Python print meanwhile; it is there afterwards."""
    printed: list[str] = []
    with tempfile.TemporaryFile() as file:
        sys.stdout.flush()
        sys.stderr.flush()
        saved = {stream: os.dup(stream) for stream in (1, 2)}
        for stream in saved:
            os.dup2(file.fileno(), stream)
        try:
            yield printed
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for stream, copy in saved.items():
                os.dup2(copy, stream)
                os.close(copy)
            file.seek(0)
            printed.append(file.read(64 * 1024).decode(errors="replace"))


def _warnings(printed: str) -> list[str]:
    """TileLang's warnings, each with the lines that belong to it."""
    found: list[str] = []
    for line in printed.splitlines():
        _time, mark, text = line.partition("] : ")
        if mark and line.startswith("["):
            found.append(text)
        elif found and line.strip():
            found[-1] += "\n" + line.strip()
    return [text.removeprefix("Warning: ")[:MAX_TEXT] for text in found if text.startswith("Warning: ")]


if __name__ == "__main__":
    main()
