"""The command line, ``tilelab``: wiring only. Each command lies in a module of its own.

Exit status: 0 all that was assessed passed; 1 something failed; 2 the input is unusable, and the message says why;
3 the judge itself failed.
"""

from grader.cli.app import main

__all__ = ["main"]
