"""Runs one nbgrader converter in this process and says whether it worked, with nbgrader's own log if not."""

import logging
from dataclasses import dataclass

from nbgrader.converters import NbGraderException
from nbgrader.converters.base import BaseConverter
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config


@dataclass(frozen=True)
class Run:
    """``log`` holds nbgrader's warnings and errors, tracebacks included."""

    ok: bool
    log: str


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def run(converter: type[BaseConverter], config: Config, assignment: str, student: str = "*") -> Run:
    """Run ``converter`` (Autograde, GenerateAssignment, ...) for an assignment, over what it made before.

    ``student`` is a glob. Ctrl-C passes through.
    """
    coursedir = CourseDirectory(config=config)
    coursedir.assignment_id, coursedir.student_id = assignment, student
    app = converter(coursedir=coursedir, config=config)
    app.force = True
    lines = _Lines()
    app.log.addHandler(lines)
    try:
        app.start()
    except NbGraderException as error:
        lines.lines.append(str(error))
        return Run(False, "\n".join(lines.lines))
    finally:
        app.log.removeHandler(lines)
    return Run(True, "\n".join(lines.lines))
