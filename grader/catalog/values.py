"""Plain values that a lab asks for beside its kernels: what each must look like, and how it is read.

A kind is built from the classes here; ``read`` holds a value against it. What it gives back is plain data of the
kind's own making, so that whoever judges it needs no further checks::

    Value("best", Record({"block_M": Whole(16, 256), "num_stages": Whole(0, 8)}))
    Value("schedules", ListOf(Record(...), least=3, most=8, distinct=True))
"""

import json
import math
from dataclasses import dataclass
from typing import Any

from grader.messages import _


class WrongValue(Exception):
    """The value is not of its kind. The message says which part of it isn't, and what it has to be."""


@dataclass(frozen=True)
class Whole:
    """A whole number from ``low`` to ``high``; with ``among``, one of these."""

    low: int = -(2**53)
    high: int = 2**53
    among: tuple[int, ...] = ()


@dataclass(frozen=True)
class Real:
    """A finite number from ``low`` to ``high``, in ``unit`` (for the message only). Whole ones will do."""

    low: float = -math.inf
    high: float = math.inf
    unit: str = ""


@dataclass(frozen=True)
class Flag:
    """True or False."""


@dataclass(frozen=True)
class Choice:
    """One of these words."""

    options: tuple[str, ...]


@dataclass(frozen=True)
class Text:
    """Words, of so many characters at most."""

    most: int = 200


@dataclass(frozen=True)
class Record:
    """A dict with exactly these names as keys."""

    fields: "dict[str, Kind]"


@dataclass(frozen=True)
class ListOf:
    """A list of ``least`` to ``most`` values of one kind; if ``distinct``, no two alike."""

    item: "Kind"
    least: int = 1
    most: int = 8
    distinct: bool = False


Kind = Whole | Real | Flag | Choice | Text | Record | ListOf


@dataclass(frozen=True)
class Value:
    """A value that a lab hands in under the name of a variable in the notebook. No two labs share a name."""

    name: str
    kind: Kind


def read(value: object, kind: Kind, name: str) -> Any:
    """``value`` as data of ``kind``. Raises WrongValue, whose message names it: ``best["threads"]``."""
    if value is None or value is Ellipsis:
        raise WrongValue(_("{name} is not filled in yet: it has to be {want}").format(name=name, want=said(kind)))
    match kind:
        case Whole(low, high, among):
            if type(value) is int and low <= value <= high and (not among or value in among):
                return value
        case Real(low, high):
            if type(value) in (int, float) and math.isfinite(value) and low <= value <= high:
                return float(value)
        case Flag():
            if type(value) is bool:
                return value
        case Choice(options):
            if type(value) is str and value in options:
                return value
        case Text(most):
            if type(value) is str and len(value.strip()) > 0 and len(value) <= most:
                return value.strip()
        case Record(fields):
            if type(value) is dict:
                return _record(value, fields, name)
        case ListOf():
            if type(value) in (list, tuple):
                return _list(value, kind, name)
    raise WrongValue(
        _("{name} is {got}; it has to be {want}").format(name=name, got=_shown(value), want=said(kind))
    )


def _record(value: dict, fields: dict[str, Kind], name: str) -> dict[str, Any]:
    missing = [field for field in fields if field not in value]
    unknown = [field for field in value if field not in fields]
    if missing:
        raise WrongValue(
            _("{name} lacks '{field}'; its names are {names}").format(
                name=name, field=missing[0], names=", ".join(fields)
            )
        )
    if unknown:
        raise WrongValue(
            _("{name} has the name {field}, which isn't asked for; its names are {names}").format(
                name=name, field=_shown(unknown[0]), names=", ".join(fields)
            )
        )
    return {field: read(value[field], kind, f'{name}["{field}"]') for field, kind in fields.items()}


def _list(value: list | tuple, kind: ListOf, name: str) -> list[Any]:
    if not kind.least <= len(value) <= kind.most:
        raise WrongValue(
            _("{name} holds {count}; it has to be {want}").format(name=name, count=len(value), want=said(kind))
        )
    items = [read(item, kind.item, f"{name}[{number}]") for number, item in enumerate(value)]
    if kind.distinct:
        for number, item in enumerate(items):
            if item in items[:number]:
                first = items.index(item)
                raise WrongValue(
                    _("{name}[{number}] is the same as {name}[{first}]; each has to be another one").format(
                        name=name, number=number, first=first
                    )
                )
    return items


def said(kind: Kind) -> str:
    """A kind in words, as they follow "it has to be"."""
    match kind:
        case Whole(low, high, among):
            if among:
                return _("one of {options}").format(options=", ".join(map(str, among)))
            if (low, high) == (Whole.low, Whole.high):
                return _("a whole number")
            return _("a whole number from {low} to {high}").format(low=low, high=high)
        case Real(low, high, unit):
            text = _("a number")
            if math.isfinite(low) and math.isfinite(high):
                text = _("a number from {low:g} to {high:g}").format(low=low, high=high)
            elif math.isfinite(low):
                text = _("a number of at least {low:g}").format(low=low)
            return f"{text} ({unit})" if unit else text
        case Flag():
            return _("True or False")
        case Choice(options):
            return _("one of {options}").format(options=", ".join(map(repr, options)))
        case Text(most):
            return _("a text of at most {most} characters").format(most=most)
        case Record(fields):
            return _("a dict with the names {names}").format(names=", ".join(fields))
        case ListOf(item, least, most):
            count = str(least) if least == most else _("{least} to {most}").format(least=least, most=most)
            text = _("a list of {count} values, each {item}")
            return text.format(count=count, item=said(item))
    raise TypeError(f"no kind: {kind!r}")


def _shown(value: object) -> str:
    """A plain value, short."""
    text = json.dumps(value, ensure_ascii=False, default=lambda other: type(other).__name__)
    text = "True" if value is True else "False" if value is False else text
    return text if len(text) <= 60 else text[:57] + "..."
