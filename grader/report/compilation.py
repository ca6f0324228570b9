"""Compilations in the terminal: a table by architecture, and below it what there is to say."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from grader.messages import _
from grader.report.text import describe, printable
from grader.verdict.compilation import Compilation, GlobalAccess


def render(compilations: tuple[Compilation, ...]) -> RenderableType:
    """One table for each kernel and shape, in the order given."""
    groups: dict[tuple[str, str], list[Compilation]] = {}
    for compilation in compilations:
        groups.setdefault((compilation.kernel, compilation.shape), []).append(compilation)
    return Group(*(_table(kernel, shape, rows) for (kernel, shape), rows in groups.items()))


def _table(kernel: str, shape: str, rows: list[Compilation]) -> RenderableType:
    title = _("{kernel} at {shape}").format(kernel=kernel, shape=shape)
    table = Table(title=Text(printable(title)), title_justify="left", show_lines=True)
    for name in (_("architecture"), _("compiles"), _("shared memory"), _("registers, spills"), _("blocks a SM")):
        table.add_column(name)
    table.add_column(_("instructions"), ratio=1)
    for row in rows:
        table.add_row(row.arch, _state(row), _shared(row), _registers(row), _blocks(row), _instructions(row))
    below: list[RenderableType] = []
    for text, arches in _findings(rows).items():
        below.append(Text.assemble((", ".join(arches) + ": ", "bold"), text))
    missing = dict.fromkeys(row.not_assessed for row in rows if row.not_assessed)
    below += [Text(_("Registers and spills were not assessed: {why}.").format(why=why)) for why in missing]
    return Group(table, *below)


def _findings(rows: list[Compilation]) -> dict[str, list[str]]:
    """Each finding once, with the architectures that it holds for."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for finding in row.findings:
            found.setdefault(describe(finding), []).append(row.arch)
    return found


def _state(row: Compilation) -> Text:
    seconds = row.seconds + (row.machine_code.seconds if row.machine_code else 0.0)
    words = _("✓ yes") if row.compiles else _("✗ no")
    return Text(f"{words}\n{seconds:.1f} s", style="green" if row.compiles else "red")


def _shared(row: Compilation) -> str:
    if row.landmarks is None:
        return ""
    return _("{used:.1f} of {limit:.0f} KiB").format(used=row.shared / 1024, limit=row.shared_limit / 1024)


def _registers(row: Compilation) -> str:
    if row.machine_code is None:
        return _("– not assessed") if row.not_assessed else ""
    return _("{registers}, {spills} B").format(
        registers=row.machine_code.registers, spills=row.machine_code.spills
    )


def _blocks(row: Compilation) -> str:
    if row.blocks is None or row.occupancy is None:
        return ""
    text = _("{blocks} ({share:.0%} of threads)\nlimit: {limits}")
    return text.format(blocks=row.blocks, share=row.occupancy, limits=", ".join(row.limits))


def _instructions(row: Compilation) -> str:
    if row.landmarks is None:
        return ""
    lines = [", ".join(f"{name} ×{count}" for name, count in row.landmarks.items())] if row.landmarks else []
    lines += [_access(access) for access in row.accesses]
    if row.machine_code and row.machine_code.landmarks:
        counts = ", ".join(f"{name} ×{count}" for name, count in row.machine_code.landmarks.items())
        lines.append(_("machine code: {counts}").format(counts=counts))
    return printable("\n".join(lines))


def _access(access: GlobalAccess) -> str:
    text = (
        _("writes {tensor}, {bits} bits a thread") if access.writes else _("reads {tensor}, {bits} bits a thread")
    )
    return text.format(tensor=access.tensor, bits=access.bits)
