"""A TileLang kernel's IR as typed Python objects.

``read`` turns the JSON that TileLang saves into a ``Kernel`` of the node types in ``nodes``; it needs no TVM
and believes nothing that it reads. ``write`` makes new JSON from those nodes, with names, attributes and
options of our own: nothing but structure and numbers of the original survives. ``show`` prints a node as a
reader of TileLang would write it.
"""

from grader.ir.nodes import Kernel
from grader.ir.printer import show
from grader.ir.reader import Malformed, read
from grader.ir.writer import write, written_names

__all__ = ["Kernel", "Malformed", "read", "show", "write", "written_names"]
