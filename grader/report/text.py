"""Findings as plain text, for pytest's output, nbgrader's comments and logs."""

from collections.abc import Iterable

from grader.verdict import Finding


def describe_findings(findings: Iterable[Finding]) -> str:
    return "\n".join(describe(finding) for finding in findings)


def printable(text: str) -> str:
    """A student's text without control characters: they could rewrite what a terminal shows."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def describe(finding: Finding) -> str:
    """A finding on a few lines: what happened, where, the evidence, what to try."""
    lines = [finding.message]
    if finding.where is not None:
        lines.append(f"  {finding.where}: {finding.where.text}" if finding.where.text else f"  {finding.where}")
    lines += [f"  {item}" for item in finding.evidence]
    if finding.advice:
        lines.append(f"  → {finding.advice}")
    return printable("\n".join(lines))
