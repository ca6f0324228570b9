"""Writes files of targets. What is there already, comments too, stays, but for the cards that are written anew.

    python -m grader.gpu.target_writer [FILE]

is for maintainers: it takes the rows of FILE (from ``tilelab calibrate -o FILE``) into the package's, and derives
the unmeasured ones anew.
"""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import tomlkit
from tomlkit.items import AoT, Array, InlineTable, Table

from grader.gpu import derived, target_file, targets
from grader.gpu.target_file import TargetRow
from grader.gpu.targets import Ceilings

HEADING = """\
# Targets of tilelab for cards of your own, by 'tilelab calibrate'. Change tiers as you like: from the figure 'at'
# on, the share of the points is earned. 'peer_rate' is what the peer was measured to reach.

"""


def merged(text: str, measured: Iterable[Ceilings], rows: Iterable[TargetRow]) -> str:
    """TOML with these cards' ceilings and rows in place of what ``text`` holds of the same cards."""
    document = tomlkit.parse(text or HEADING)
    for one in measured:
        if "measured" not in document:
            document["measured"] = tomlkit.table(is_super_table=True)
        document["measured"][one.card] = _ceilings(one)
    rows = list(rows)
    written = {row.card for row in rows}
    kept = [table for table in document.get("target", []) if table["card"] not in written]
    document.pop("target", None)
    tables: AoT = tomlkit.aot()
    for table in (*kept, *map(_row, rows)):
        tables.append(table)
    document["target"] = tables
    return re.sub(r"\n{3,}", "\n\n", tomlkit.dumps(document))


def write(path: Path, text: str) -> None:
    """In one step: a reader sees the old file or the new one, and an interrupted writer leaves nothing.

    Of a symbolic link, the file that it points to is written.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(name).chmod(0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _ceilings(one: Ceilings) -> Table:
    table = tomlkit.table()
    table["origin"] = one.origin
    table["bandwidth"] = _inline(one.bandwidth)
    table["matmul"] = _inline(one.matmul)
    for name in ("launch_us", "kernel_us", "event_us"):
        table[name] = getattr(one, name)
    return table


def _row(row: TargetRow) -> Table:
    table = tomlkit.table()
    for name, value in row:
        if name == "tiers":
            table[name] = _tiers(row)
        elif name == "sweep" and row.sweep is not None:
            table[name] = _inline({"rate": row.sweep.rate, "schedule": _inline(row.sweep.schedule)})
        elif value is not None:
            table[name] = value
    return table


def _tiers(row: TargetRow) -> Array:
    array = tomlkit.array()
    for tier in row.tiers:
        array.append(_inline(dict(tier)))
    return array


def _inline(values: dict) -> InlineTable:
    table = tomlkit.inline_table()
    table.update(values)
    return table


def packaged(measured: Iterable[Ceilings], rows: Iterable[TargetRow]) -> str:
    """The package's file with newly measured rows, and the unmeasured ones that follow from them."""
    text = merged(targets.PACKAGED.read_text(), measured, rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "targets.toml")
        path.write_text(text)
        return merged(text, (), derived.from_datasheets(targets.completed(target_file.read(path))))


def _main(arguments: list[str]) -> None:
    found = [target_file.read(Path(name)) for name in arguments]
    measured = [Ceilings(card, **dict(one)) for file in found for card, one in file.measured.items()]
    write(targets.PACKAGED, packaged(measured, [row for file in found for row in file.target]))


if __name__ == "__main__":
    _main(sys.argv[1:])
