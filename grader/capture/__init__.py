"""From a notebook to the IR of its kernels: the only place where a student's code runs.

``capture_notebook`` reads the cells, runs them in a throw-away process (``sandbox``, ``child``) and hands back
a ``Capture``: plain data that is judged elsewhere, by code that never runs a line of the student's.
"""

from grader.capture.format import Capture, Source, Trace, TraceError, read_capture
from grader.capture.notebook import Cell, read_notebook
from grader.capture.run import capture_notebook

__all__ = [
    "Capture",
    "Cell",
    "Source",
    "Trace",
    "TraceError",
    "capture_notebook",
    "read_capture",
    "read_notebook",
]
