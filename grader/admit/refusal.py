"""How a kernel is refused."""

from grader.ir.nodes import Line


class Refused(Exception):
    """The kernel is not admitted: ``message`` says why, ``line`` where, ``advice`` what to try."""

    def __init__(self, message: str, line: Line | None = None, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.advice = advice
