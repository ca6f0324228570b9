"""The kernels, a module a theme. Importing this package registers all of them."""

from . import (
    annotations,
    arithmetic,
    atomics,
    casts,
    control,
    copies,
    debugging,
    functions,
    launch,
    memory,
    products,
    reductions,
    scans,
    threads,
    whole,
)

__all__ = [
    "annotations",
    "arithmetic",
    "atomics",
    "casts",
    "control",
    "copies",
    "debugging",
    "functions",
    "launch",
    "memory",
    "products",
    "reductions",
    "scans",
    "threads",
    "whole",
]
