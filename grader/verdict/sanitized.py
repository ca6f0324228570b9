"""What compute-sanitizer found in a kernel, as plain data."""

from dataclasses import dataclass

from pydantic import TypeAdapter

from grader.verdict import Finding


@dataclass(frozen=True)
class ToolRun:
    """One of the sanitizer's tools: what it looks for, and what it found (nothing: the kernel is clean)."""

    tool: str
    about: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Sanitized:
    """A kernel, the shapes at which it was looked at, and each tool's answer."""

    lab: str
    kernel: str
    shapes: tuple[str, ...]
    tools: tuple[ToolRun, ...]

    @property
    def clean(self) -> bool:
        return not any(tool.findings for tool in self.tools)


_kernels = TypeAdapter(tuple[Sanitized, ...])


def to_json(kernels: tuple[Sanitized, ...]) -> str:
    return _kernels.dump_json(kernels, indent=2).decode()
