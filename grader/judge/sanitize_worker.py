"""The disposable process that compute-sanitizer watches: launches a compiled kernel once, and times nothing.

    python -m grader.judge.sanitize_worker FOLDER SHAPE

Reads FOLDER/job.json; SHAPE is the name of one of its shapes.
"""

import json
import sys
from pathlib import Path

import torch

from grader.catalog import Group, Role, Shape, find
from grader.gpu.launch import load
from grader.judge import seeds, tasks


def main() -> None:
    folder, name = Path(sys.argv[1]), sys.argv[2]
    job = json.loads((folder / "job.json").read_text())
    row = job["shapes"][name]
    shape = Shape(name, row["sizes"], Group(row["group"]))
    task, kernel = tasks.find(job["lab"], job["kernel"]), find(job["lab"]).kernel(job["kernel"])
    launch = load(Path(row["library"]))
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
