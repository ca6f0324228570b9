"""The throw-away process: runs a notebook's cells and writes what its kernels are. Started by ``sandbox``.

    python -m grader.capture.child RESULT_FD REPLY_FD < job.json

The job is ``{"kernels": the catalogue's, "values": names, "questions": n, "cells": [[file, source], …]}``. On
RESULT_FD go lines of JSON: ``{"cell": n}`` before each cell runs, ``{"tracing": true}``, and last
``{"done": {"traces": …, "cell_errors": …, "values": …}}``.
Then it waits for n lines on REPLY_FD, each with further kernels to trace, answered with ``{"further": traces}``:
those at the schedules that the values name, and last those whose shapes the student's code could not know before
it had said all that is shown of it.
The student's code could write there too: it could as well have written another kernel, and is judged by it.
"""

import json
import os
import sys
from typing import Any

MAX_CELL_ERRORS = 20


def main() -> None:
    job = json.load(sys.stdin)
    results = os.fdopen(int(sys.argv[1]), "w")
    os.environ["TILELAB_CAPTURE"] = "1"  # check() and its like do nothing here

    def report(**line: object) -> None:
        results.write(json.dumps(line) + "\n")
        results.flush()

    import tilelang  # noqa: F401  before the cells, so that their time is their own
    import torch
    from pydantic import TypeAdapter

    from grader.capture.format import Handed, Trace, TraceError
    from grader.capture.tracing import hand_in, trace_kernels
    from grader.catalog import Kernel

    torch.set_num_threads(1)
    sys.path.insert(0, os.getcwd())  # as in Jupyter: a cell may write a module and the next import it
    kernels = TypeAdapter(tuple[Kernel, ...]).validate_python(job["kernels"])
    files = [file for file, _source in job["cells"]]
    shell = _shell()
    errors: list[TraceError] = []
    for number, (file, source) in enumerate(job["cells"], start=1):
        report(cell=number)
        error = _run(shell, file, source, files)
        if error is not None and len(errors) < MAX_CELL_ERRORS:
            errors.append(error)
    report(tracing=True)
    all_traces = TypeAdapter(list[Trace])

    def traced(wanted: tuple[Kernel, ...]) -> object:
        return all_traces.dump_python(trace_kernels(shell.user_ns, wanted, files.__contains__), mode="json")

    report(
        done={
            "traces": traced(kernels),
            "cell_errors": TypeAdapter(list[TraceError]).dump_python(errors, mode="json"),
            "values": TypeAdapter(list[Handed]).dump_python(hand_in(shell.user_ns, job["values"]), mode="json"),
        }
    )
    with os.fdopen(int(sys.argv[2])) as replies:
        for _number in range(job["questions"]):
            report(further=traced(TypeAdapter(tuple[Kernel, ...]).validate_json(replies.readline())))
    os._exit(0)  # threads and atexit handlers of the student's have nothing left to do


def _shell() -> Any:
    """An IPython shell that compiles each cell under the file name set in ``shell.compile.file``.

    TileLang reads a kernel's source by that name, and the lines of its IR carry it.
    """
    from IPython.core.compilerop import CachingCompiler
    from IPython.core.interactiveshell import InteractiveShell

    class Compiler(CachingCompiler):
        file = "/notebook/cell-0"

        def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
            return self.file

    class Shell(InteractiveShell):
        compiler_class = Compiler

    return Shell.instance(history_length=0)


def _run(shell: Any, file: str, source: str, files: list[str]) -> Any:
    from grader.capture.tracing import describe

    shell.compile.file = file
    result = shell.run_cell(source, store_history=False)
    error = result.error_before_exec or result.error_in_exec
    return None if error is None else describe(error, files.__contains__)


if __name__ == "__main__":
    main()
