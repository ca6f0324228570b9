"""Plain data: what may leave the student's process beside IR.

True and False, whole numbers, finite numbers, texts, None, and lists and dicts of these. ``plain`` makes it of an
object of the student's, ``check`` holds what arrived against the same limits. Nothing here is ever executed, and
nothing is pickled.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grader.messages import _

MAX_DEPTH = 4  # lists and dicts within each other
MAX_ITEMS = 1_000  # in all lists and dicts together
MAX_TEXT = 2_000  # characters of a text
MAX_WHOLE = 2**53  # what every reader of JSON keeps exactly


class NotPlain(Exception):
    """The message says what in the object is no plain data, or too much of it."""


@dataclass
class _Room:
    items: int = MAX_ITEMS


def plain(value: object) -> Any:
    """``value`` as plain data. Tuples and sets become lists, numbers of NumPy and torch plain ones.

    Raises NotPlain.
    """
    return _plain(value, 0, _Room())


def _plain(value: object, depth: int, room: _Room) -> Any:
    if value is None or value is Ellipsis:
        return None
    if type(value).__module__.partition(".")[0] in ("numpy", "torch") and hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return _within(abs(value) <= MAX_WHOLE, int(value), _("a whole number beyond 2^53"))
    if isinstance(value, float):
        return _within(math.isfinite(value), float(value), _("a number that isn't finite"))
    if isinstance(value, str):
        text = _("a text of more than {limit} characters").format(limit=MAX_TEXT)
        return _within(len(value) <= MAX_TEXT, str(value), text)
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple | Mapping):
        room.items -= len(value)
        _within(room.items >= 0, None, _("more than {limit} values").format(limit=MAX_ITEMS))
        _within(depth < MAX_DEPTH, None, _("lists or dicts more than {limit} deep").format(limit=MAX_DEPTH))
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1, room) for item in value]
    if isinstance(value, Mapping):
        names = list(value)
        _within(all(isinstance(name, str) for name in names), None, _("a dict whose names are no texts"))
        return {_plain(name, depth + 1, room): _plain(value[name], depth + 1, room) for name in names}
    raise NotPlain(_("a {kind}").format(kind=type(value).__name__[:60]))


def _within(holds: bool, value: Any, otherwise: str) -> Any:
    if not holds:
        raise NotPlain(otherwise)
    return value


def check(value: object) -> Any:
    """``value``, read from JSON, if it is what ``plain`` writes. Raises NotPlain otherwise."""
    made = plain(value)
    if json.dumps(made) != json.dumps(value):
        raise NotPlain(_("something else than plain data"))
    return made
