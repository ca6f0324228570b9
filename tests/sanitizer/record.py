"""Records what compute-sanitizer really says of the kernels in ``faulty``, for the tests of its parser.

    PYTHONPATH=.:tests python -m sanitizer.record FOLDER     # on a machine with a GPU

Writes to FOLDER: each tool's log of each kernel, the generated sources with TileLang's line directives, the tool's
version and options; and prints a table of what the parser makes of them.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from kernels import json_of, kernel_of, shape_of

from grader import catalog
from grader.admit import admit
from grader.gpu import hardware, sanitizer
from grader.gpu.lowering import Job, lower_all
from grader.judge import sanitized
from sanitizer.faulty import FAULTY

LAB, SHAPE = "lab01_vector_add", "odd"


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path, card = sanitized.must_have(), hardware.judging_card()
    for option in ("--version", "--help"):
        done = subprocess.run([path, option], capture_output=True, text=True, check=False)
        (folder / f"{option.strip('-')}.txt").write_text(done.stdout + done.stderr)
    print(path, card, (folder / "version.txt").read_text().strip().splitlines()[-1:])
    kernel, shape = kernel_of(LAB), shape_of(LAB, SHAPE)
    arch = f"sm_{card.capability[0]}{card.capability[1]}{'a' if card.capability[0] >= 9 else ''}"
    for name, factory in FAULTY.items():
        short = name.replace(" ", "-")
        admitted = admit(json_of(factory.get_tir(**shape.sizes)), kernel, shape)
        (lowered,) = lower_all([Job(admitted.json, arch, sanitized.LINE_MARKS)])
        (folder / f"{short}.cu").write_text(getattr(lowered, "source", str(lowered)))
        with tempfile.TemporaryDirectory() as work:
            refused, watched = sanitized.watch(
                path, catalog.find(LAB), kernel, {shape: admitted}, "record", Path(work)
            )
        if refused:
            print(f"{name}: not compiled: {refused}")
        for (_shape, tool), seen in watched.items():
            (folder / f"{short}.{tool}.log").write_text(seen.log)
            (folder / f"{short}.{tool}.console").write_text(f"status {seen.status}\n{seen.console}")
            log = sanitizer.parse(seen.log, tool)
            print(f"{name:20} {tool:10} status {seen.status}, errors {log.errors}")
            for report in log.reports:
                print(f"    {report}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
