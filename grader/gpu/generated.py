"""From a line of the CUDA source that TileLang generated to the student's statements.

TileLang can write ``#line`` directives into that source. Not every generated statement has one of its own, so a
directive alone may be the one of an earlier statement: it counts only if its statement touches the buffers that
stand on the line. Where it doesn't, the statements that touch them are all that can be said.
"""

import re

from grader.gpu.sites import Site, sites
from grader.ir import nodes, written_names

_DIRECTIVE = re.compile(r'^#line (\d+) "(.*)"$')
_NAME = re.compile(r"\b([a-z]+\d+)(?:_\w+)?\b")
_OURS = "kernel"  # the file that ``ir.write`` names in a kernel's spans


class Generated:
    """A source with directives, as TileLang gives it with ``tl.emit_line_directives``, and the kernel it is of.

    Lines are counted as in the source without directives: the one that is compiled.
    """

    def __init__(self, source: str, kernel: nodes.Kernel) -> None:
        self._lines: list[tuple[str, int | None]] = []
        mark: int | None = None
        for line in source.splitlines():
            directive = _DIRECTIVE.match(line)
            if directive is None:
                self._lines.append((line, mark))
            elif directive[2] == _OURS:
                mark = int(directive[1])
        self._sites = sites(kernel)
        self._storages = {
            name: found if isinstance(found, nodes.Storage) else found.storage
            for name, found in written_names(kernel).items()
            if isinstance(found, nodes.Storage | nodes.Buffer)
        }

    def text(self, line: int | None) -> str:
        """A generated line; "" if there is none of that number."""
        return self._lines[line - 1][0].strip() if line and line <= len(self._lines) else ""

    def touched(self, line: int | None) -> str:
        """The student's name for the first buffer that a generated line touches; "" if it names none."""
        return next((storage.name for storage in self._on(line)), "")

    def statements(self, line: int | None, access: str = "") -> tuple[Site, ...]:
        """The student's statements that a generated line may be of, likeliest first; none if nothing tells.

        ``access`` is "read" or "write" where that is known of the buffer that the line touches.
        """
        if not self.text(line):
            return ()
        storages, mark = self._on(line), self._lines[line - 1][1]
        fitting = [site for site in self._sites if storages and self._touches(site, storages)]
        narrow = [site for site in fitting if _can(site, storages, access)] or fitting
        marked = [site for site in narrow if site.line is not None and site.line.number == mark]
        if marked or storages:
            return tuple(_innermost(marked or narrow))
        return tuple(_innermost([site for site in self._sites if site.line and site.line.number == mark]))

    def _on(self, line: int | None) -> list[nodes.Storage]:
        names = _NAME.findall(self.text(line))
        return list(dict.fromkeys(self._storages[name] for name in names if name in self._storages))

    @staticmethod
    def _touches(site: Site, storages: list[nodes.Storage]) -> bool:
        mine = {buffer.storage for buffer in site.buffers}
        return mine.issuperset(storages)


def _can(site: Site, storages: list[nodes.Storage], access: str) -> bool:
    """May the statement access one of them that way?"""
    if access not in ("read", "write"):
        return True
    for part in nodes.walk(site.node):
        match part:
            case nodes.Load(buffer=buffer) if access == "read" and buffer.storage in storages:
                return True
            case nodes.Store(buffer=buffer) if access == "write" and buffer.storage in storages:
                return True
            case nodes.Region(buffer=buffer, access=bits) if buffer.storage in storages:
                if bits & (1 if access == "read" else 2):
                    return True
    return False


def _innermost(found: list[Site]) -> list[Site]:
    """Without those that only stand around another one: a loop whose store is there too."""
    inner = {id(part) for site in found for part in nodes.walk(site.node) if part is not site.node}
    around = {
        id(site.node)
        for site in found
        if any(
            id(other.node) in {id(part) for part in nodes.walk(site.node)} for other in found if other is not site
        )
    }
    return [site for site in found if id(site.node) not in around] if inner else found
