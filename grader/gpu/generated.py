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
            name: found for name, found in written_names(kernel).items() if isinstance(found, nodes.Storage)
        }

    def text(self, line: int | None) -> str:
        """A generated line; "" if there is none of that number."""
        return self._lines[line - 1][0].strip() if line and line <= len(self._lines) else ""

    def touched(self, line: int | None, space: str = "") -> str:
        """The student's name for the first buffer in ``space`` that a generated line touches, or ""."""
        return next((storage.name for storage in self._on(line, space)), "")

    def statements(self, line: int | None, access: str = "", space: str = "") -> tuple[Site, ...]:
        """The student's statements that a generated line may be of, likeliest first; none if nothing tells.

        ``access`` is "read" or "write", ``space`` "global" or "shared", where that is known of the access.
        """
        if not self.text(line):
            return ()
        touched, mark = self._on(line), self._lines[line - 1][1]
        marked = [site for site in self._sites if site.line is not None and site.line.number == mark]
        if not touched:
            return tuple(_inner(marked))
        fitting = [site for site in self._sites if {b.storage for b in site.buffers}.issuperset(touched)]
        fitting = [site for site in fitting if _can(site, self._on(line, space), access)] or fitting
        return tuple(_inner([site for site in fitting if site in marked] or fitting))

    def _on(self, line: int | None, space: str = "") -> list[nodes.Storage]:
        found = [self._storages[name] for name in _NAME.findall(self.text(line)) if name in self._storages]
        return [storage for storage in dict.fromkeys(found) if space in ("", _space(storage))]


def _space(storage: nodes.Storage) -> str:
    """What compute-sanitizer calls the memory that a storage is in."""
    if storage.scope in (nodes.SHARED, nodes.SHARED_DYNAMIC):
        return "shared"
    return "global" if storage.scope == nodes.GLOBAL else "local"


def _can(site: Site, storages: list[nodes.Storage], access: str) -> bool:
    """May the statement access one of them that way?"""
    for part in nodes.walk(site.node):
        match part:
            case nodes.Load(buffer=buffer) if access != "write" and buffer.storage in storages:
                return True
            case nodes.Store(buffer=buffer) if access != "read" and buffer.storage in storages:
                return True
            case nodes.Region(buffer=buffer, access=bits) if buffer.storage in storages:
                if bits & {"read": 1, "write": 2}.get(access, 3):
                    return True
    return False


def _inner(found: list[Site]) -> list[Site]:
    """Without those that stand around another one: a loop whose store is there, too."""
    parts = {site: {id(part) for part in nodes.walk(site.node)} for site in found}
    return [
        site for site in found if not any(id(other.node) in parts[site] for other in found if other is not site)
    ]
