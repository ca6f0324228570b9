"""The disposable process that compute-sanitizer looks at: launches a kernel once at one shape, and times nothing.

    python -m grader.judge.sanitize_worker FOLDER SHAPE

Reads FOLDER/job.json; SHAPE is a shape's name, or "" to compile for all shapes and launch nothing. What has been
compiled stays in the cache that the environment names, so that the sanitizer need not sit through it.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from grader.catalog import Group, Role, Shape, find
from grader.gpu.compiler import Launch, Source, compile_all
from grader.judge import seeds, tasks

MAX_MESSAGE = 20_000  # characters of what a compiler says


def main() -> None:
    folder, wanted = Path(sys.argv[1]), sys.argv[2]
    job = json.loads((folder / "job.json").read_text())
    rows = [row for row in job["shapes"] if wanted in ("", row["name"])]
    compiled = _compiled(rows)
    if wanted:
        _launch(job, rows[0], compiled[wanted])
    else:
        failed = {
            name: str(found)[:MAX_MESSAGE] for name, found in compiled.items() if isinstance(found, Exception)
        }
        (folder / "uncompilable.json").write_text(json.dumps(failed))


def _compiled(rows: list[dict[str, Any]]) -> dict[str, Launch | Exception]:
    return dict(compile_all({row["name"]: Source(row["json"], row["options"]) for row in rows}))


def _launch(job: dict[str, Any], row: dict[str, Any], launch: Launch | Exception) -> None:
    if isinstance(launch, Exception):
        raise launch
    task, kernel = tasks.find(job["lab"], job["kernel"]), find(job["lab"]).kernel(job["kernel"])
    shape = Shape(row["name"], row["sizes"], Group(row["group"]))
    family = task.families[0]
    # Drawn on the CPU: then no kernel but the student's runs, and every byte of the inputs is known to be written.
    inputs = task.inputs(family, shape, seeds.generator(job["seed"], task.kernel, shape.name, family))
    (parameter,) = (p for p in kernel.parameters if p.role is Role.OUT)
    output = torch.empty(parameter.sizes(shape), dtype=getattr(torch, parameter.dtype), device="cuda")
    launch(*(tensor.cuda() for tensor in inputs), output)
    torch.cuda.synchronize()
    output.cpu()  # under initcheck this tells whether all of it was written


if __name__ == "__main__":
    main()
