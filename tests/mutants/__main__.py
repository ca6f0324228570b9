"""``python -m mutants [task …]``: judges every wrong kernel and prints what became of each, one a line.

Ends with 1 if a wrong kernel passes unexplained, is not judged, or lacks the evidence that it must leave.
"""

import sys
from collections import Counter
from collections.abc import Iterable

import torch

from grader.ir.nodes import Line
from mutants.campaign import Result, run
from mutants.equivalents import KNOWN
from mutants.judging import judge, read
from mutants.patches import PATCHES
from mutants.tasks import TASKS, Task


def main(names: Iterable[str]) -> int:
    torch.set_num_threads(1)
    tasks = [TASKS[name] for name in names] or list(TASKS.values())
    problems: list[str] = []
    counts: Counter = Counter()
    for task in tasks:
        _patches(task, counts, problems)
        used = set()
        for result in run(task):
            used.add(result.entry)
            _tell(task.name, result.mutant.operator, result.name, *_outcome(result))
            counts["mutants", result.verdict.kind if result.verdict.failed else "right after all"] += 1
            if result.problem:
                problems.append(f"{task.name}, {result.mutant.operator}: {result.name}: {result.problem}")
        stale = [entry for entry in KNOWN if task.name in entry.tasks and entry not in used]
        problems += [f"{task.name}, {entry.operator}: no mutant has {entry.text!r}" for entry in stale]
    print()
    for (made, kind), count in sorted(counts.items()):
        print(f"{count:6d}  {made}: {kind}")
    print(f"{sum(counts.values()):6d}  together; {len(problems)} problems")
    for problem in problems:
        print(f"PROBLEM  {problem}")
    return 1 if problems else 0


def _patches(task: Task, counts: Counter, problems: list[str]) -> None:
    for patch in PATCHES:
        if patch.task == task.name:
            verdict = judge(task, read(task, patch.make()))
            _tell(task.name, "by hand", patch.name, verdict.kind, _at(verdict.evidence, verdict.line))
            counts["by hand", verdict.kind or "right"] += 1
            if verdict.kind != patch.kind:
                problems.append(
                    f"{task.name}, by hand: {patch.name}: {verdict.kind or 'passes'}, not {patch.kind}"
                )


def _outcome(result: Result) -> tuple[str, str]:
    if result.verdict.failed:
        return result.verdict.kind, _at(result.verdict.evidence, result.verdict.line)
    return "right after all" if result.reason else "UNEXPLAINED", result.reason or result.problem


def _at(evidence: str, line: Line | None) -> str:
    return evidence if line is None else f"line {line.number}: {evidence}"


def _tell(*cells: str) -> None:
    print("  |  ".join(cells))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
