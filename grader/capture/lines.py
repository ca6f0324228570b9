"""Lines and names of the student's, also where TileLang builds a statement from several of its own.

``T.reduce_max``, ``T.cumsum`` and others are macros of TileLang's: as it builds IR, it gives their statements the
lines of its own files, and a buffer that goes in the name of the macro's variable. A message has to name the
student's line and buffer. TileLang knows whence a macro was called, but keeps no record of it in the IR, so here
the builder is told to, for as long as a kernel is traced.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def students_lines(target: Any) -> Iterator[None]:
    """While this is open, what is built from ``target`` (a JITImpl, or a function) has the student's lines.

    Macros that are the student's own keep their lines. TileLang keeps IR that it has built before: that is not
    used now, and there afterwards as if nothing had happened.
    """
    import tilelang
    from tilelang.language.eager.builder import Builder
    from tvm.script.ir_builder import IRBuilder
    from tvm.tirx import Buffer

    own = Path(tilelang.__file__).parent
    set_line, give_name = Builder.set_fileline, IRBuilder.name
    names: dict[Any, str] = {}  # of buffers, as the student calls them
    in_macro = False  # of TileLang's

    def set_callers_line(builder: Any, file: str, line: int, name: str) -> None:
        nonlocal in_macro
        in_macro = bool(builder.macro_fileline_stack) and own in Path(file).parents
        if in_macro:
            file, line, name = builder.macro_fileline_stack[-1]
        set_line(builder, file, line, name)

    def keep_name(name: str, value: Any) -> Any:
        if isinstance(value, Buffer):
            if in_macro:
                name = names.get(value, name)
            elif name != "_":  # TileLang's, for what gets its name later
                names[value] = name
        return give_name(name, value)

    function = getattr(target, "func", None)
    built = getattr(function, "p1_cache", None)
    Builder.set_fileline, IRBuilder.name = set_callers_line, staticmethod(keep_name)
    if built is not None:
        function.p1_cache = {}
    try:
        yield
    finally:
        Builder.set_fileline, IRBuilder.name = set_line, staticmethod(give_name)
        if built is not None:
            function.p1_cache = built
