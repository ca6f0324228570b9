"""The table: a row a construct, and what is wrong in it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from .registry import Case, short
from .simulated import RIGHT, SKIPPED, Result


@dataclass
class Row:
    """What became of all cases of one construct."""

    construct: str
    dtypes: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    @property
    def run(self) -> list[Result]:
        return [result for result in self.results if result.status != SKIPPED]

    @property
    def ok(self) -> bool:
        return all(result.ok for result in self.results)

    @property
    def share(self) -> float:
        return max((result.share for result in self.results), default=0.0)

    def verdict(self) -> str:
        if not self.run:
            return SKIPPED
        right = sum(result.status == RIGHT for result in self.run)
        return RIGHT if right == len(self.run) else f"{right} of {len(self.run)} right"


def rows(cases: Iterable[Case], results: Sequence[Result]) -> list[Row]:
    found: dict[str, Row] = {}
    by_name = {result.case: result for result in results}
    for case in cases:
        row = found.setdefault(case.construct, Row(case.construct))
        row.results.append(by_name[case.name])
        for value, known in ((case.dtype, row.dtypes), ("×".join(map(str, case.shape)), row.shapes)):
            if value not in known:
                known.append(value)
    return list(found.values())


def show(cases: Sequence[Case], results: Sequence[Result], console: Console) -> bool:
    """Prints the table, what is wrong, and a summary. True if nothing is wrong."""
    table = Table(title="Conformance", title_justify="left")
    for heading, side in (("construct", "left"), ("cases", "right"), ("dtypes", "left"), ("shapes", "left")):
        table.add_column(heading, justify=side)
    table.add_column("error / bound", justify="right")
    table.add_column("result")
    for row in rows(cases, results):
        style = "green" if row.ok else "red"
        table.add_row(
            row.construct,
            str(len(row.results)),
            " ".join(map(short, row.dtypes)),
            " ".join(row.shapes),
            f"{row.share:.2f}" if row.run else "",
            f"[{style}]{row.verdict()}[/]",
        )
    console.print(table)
    for result in results:
        if result.status == SKIPPED:
            console.print(f"not compilable by TileLang: {result.case}: {result.detail}", style="dim", markup=False)
    wrong = [result for result in results if not result.ok]
    for result in wrong:
        console.print(f"{result.status}: {result.case}: {result.detail}", style="red", markup=False)
    console.print(summary(results), style="bold red" if wrong else "bold green", markup=False)
    return not wrong


def summary(results: Sequence[Result]) -> str:
    counts: dict[str, int] = {}
    for result in results:
        counts[result.status] = counts.get(result.status, 0) + 1
    total = len(results) - counts.get(SKIPPED, 0)
    parts = [f"{count} {status}" for status, count in counts.items() if status not in (RIGHT, SKIPPED)]
    line = f"{counts.get(RIGHT, 0)} of {total} cases are right"
    if counts.get(SKIPPED):
        line += f", and {counts[SKIPPED]} TileLang itself can't compile"
    return f"{line}; {', '.join(parts)}" if parts else line
