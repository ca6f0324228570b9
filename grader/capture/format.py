"""The capture file: what leaves the student's process, as JSON.

Nothing in it is trusted: whoever judges it reads the IR through ``grader.admit`` and shows the texts escaped.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from grader.capture import plain
from grader.messages import _
from grader.verdict import Location, Unusable

FORMAT = "tilelab-capture/1"


@dataclass(frozen=True)
class Source:
    """The text behind a file name that IR lines and errors refer to, and what the student calls it."""

    file: str
    label: str
    text: str

    def location(self, line: int) -> Location:
        lines = self.text.splitlines()
        text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        return Location(self.label, line, text)


@dataclass(frozen=True)
class TraceError:
    """An exception of the student's code: its type, its message, and the innermost line of theirs."""

    kind: str
    message: str
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class Trace:
    """One kernel traced at one shape: TVM's JSON and the compiler options asked for, or the error."""

    kernel: str
    shape: str
    ir: str | None = None
    options: dict[str, bool | int | str] = field(default_factory=dict)
    error: TraceError | None = None


@dataclass(frozen=True)
class Handed:
    """A value of the student's: plain data (see ``plain``), or why it can't be written as such."""

    name: str
    value: Any = None
    error: str = ""


@dataclass(frozen=True)
class Capture:
    """The kernels and values of one submission. ``sandbox`` says how they were run.

    That is "bubblewrap", "process" (limits only) or "notebook" (traced in the student's own kernel).
    ``cell_errors`` are cells that raised: the run goes on after them, as in Jupyter.
    """

    lab: str
    lab_version: int
    traces: tuple[Trace, ...]
    sources: tuple[Source, ...] = ()
    cell_errors: tuple[TraceError, ...] = ()
    notebook_sha256: str = ""
    sandbox: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    values: tuple[Handed, ...] = ()
    format: str = FORMAT

    @property
    def sha256(self) -> str:
        """Of what is judged: lab, traces and values."""
        judged = _traces.dump_json(self.traces) + (_handed.dump_json(self.values) if self.values else b"")
        return hashlib.sha256(f"{self.lab}\n".encode() + judged).hexdigest()

    @property
    def plain_values(self) -> dict[str, Any]:
        """The values that came as plain data, by name."""
        return {handed.name: handed.value for handed in self.values if not handed.error}

    def trace(self, kernel: str, shape: str) -> Trace | None:
        for trace in self.traces:
            if trace.kernel == kernel and trace.shape == shape:
                return trace
        return None

    def handed(self, name: str) -> Handed | None:
        return next((handed for handed in self.values if handed.name == name), None)

    def locate(self, file: str | None, line: int | None) -> Location | None:
        """The student's line, or None if the file is none of the submission's cells."""
        for source in self.sources:
            if source.file == file and line is not None:
                return source.location(line)
        return None

    def assignment(self, name: str) -> Location | None:
        """The last line of the submission's that gives a variable of that name its value, as text shows it."""
        assigns = re.compile(rf"\s*{re.escape(name)}\s*(:[^=]+)?=(?!=)")
        for source in reversed(self.sources):
            lines = source.text.splitlines()
            for number in range(len(lines), 0, -1):
                if assigns.match(lines[number - 1]):
                    return source.location(number)
        return None

    def to_json(self) -> str:
        return _capture.dump_json(self).decode()


_capture = TypeAdapter(Capture)
_traces = TypeAdapter(tuple[Trace, ...])
_handed = TypeAdapter(tuple[Handed, ...])


def plain_json(text: str | bytes) -> Any:
    """JSON whose strings are valid Unicode: lone surrogates, which could not be written again, become '?'."""
    document = json.loads(text)
    return json.loads(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))


def read_capture(path: Path) -> Capture:
    """The capture in a file. Raises Unusable if it is none."""
    try:
        return parse_capture(path.read_bytes())
    except OSError as error:
        raise Unusable(_("'{path}' can't be read: {error}").format(path=path, error=error.strerror)) from None


def parse_capture(text: str | bytes) -> Capture:
    """The capture in JSON ``text``. Raises Unusable if it is none."""
    try:
        document = plain_json(text)
    except (ValueError, RecursionError):
        raise Unusable(_("This is not a capture file: it is not JSON. 'tilelab capture' writes one.")) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise Unusable(
            _("This is not a capture file of this version ({format}). 'tilelab capture' writes one.").format(
                format=FORMAT
            )
        )
    try:
        capture = _capture.validate_python(document)
        for handed in capture.values:
            plain.check(handed.value)
        return capture
    except plain.NotPlain:
        raise Unusable(_("The capture file is damaged at '{where}'.").format(where="values")) from None
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"][:4])
        raise Unusable(_("The capture file is damaged at '{where}'.").format(where=where)) from None
