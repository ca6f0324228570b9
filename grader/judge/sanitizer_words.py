"""A report of compute-sanitizer in the student's terms."""

from collections.abc import Callable

from grader.gpu.generated import Generated
from grader.gpu.sanitizer import Kind, Report
from grader.ir.nodes import Line
from grader.messages import _
from grader.verdict import Finding, Location

Locate = Callable[[Line | None], Location | None]


def about(tool: str, tiles: bool = True) -> str:
    """What a tool looks for; ``tiles`` says whether initcheck knows of shared memory."""
    if tool == "initcheck" and not tiles:
        return _("reads of what nothing has written, in global memory alone: this version does not look at tiles")
    return {
        "memcheck": _("accesses outside of a tensor or tile, or misaligned"),
        "racecheck": _("threads of a block that touch one element of a shared tile at once"),
        "initcheck": _("reads of what nothing has written"),
        "synccheck": _("barriers that not all threads reach"),
    }[tool]


def finding_of(report: Report, source: Generated | None, locate: Locate) -> Finding:
    """A report as a finding; ``source`` is the generated source that its lines are of, if there is one.

    Where several statements may be meant, the likeliest is where it points and the others are evidence.
    """
    places: list[Location] = []
    name, texts = "", []
    if source is not None:
        for place in report.places:
            found = source.statements(place.line, place.access, report.space)
            places += [where for site in found if (where := locate(site.line)) is not None]
            texts.append(source.text(place.line)[:120])
            name = name or source.touched(place.line, report.space)
    places = list(dict.fromkeys(places))
    joined = _("and {place}: {text}") if report.kind is Kind.RACE else _("or {place}: {text}")
    message, advice = _words(report, name)
    evidence = [_counted(report)]
    evidence += [joined.format(place=place, text=place.text) for place in places[1:]]
    evidence += [_("generated: {text}").format(text=text) for text in dict.fromkeys(filter(None, texts))]
    return Finding(message, advice, places[0] if places else None, tuple(filter(None, evidence)))


def _words(report: Report, name: str) -> tuple[str, str]:
    """Message and advice."""
    space = {"global": _("global memory"), "shared": _("shared memory"), "local": _("local memory")}.get(
        report.space, _("memory")
    )
    what = f"{name} ({space})" if name else space
    match report.kind:
        case Kind.OUT_OF_BOUNDS | Kind.MISALIGNED:
            verb = {"read": _("reads"), "write": _("writes")}.get(report.places[0].access, _("updates"))
            if report.kind is Kind.MISALIGNED:
                return (
                    _(
                        "A thread {verb} {size} bytes of {what} at an address that is no multiple of {size}."
                    ).format(verb=verb, size=report.size, what=what),
                    _("A vector begins at a multiple of its own size: look at the index that it starts from."),
                )
            return (
                _("A thread {verb} {size} bytes outside of {what}.").format(
                    verb=verb, size=report.size, what=what
                ),
                _("Guard the access ('if index < size:'), or make the tile as large as what is put into it."),
            )
        case Kind.RACE:
            accesses = _(" and ").join(
                dict.fromkeys(
                    {"read": _("a read"), "write": _("a write")}.get(p.access, _("an update"))
                    for p in report.places
                )
            )
            return (
                _("Threads of one block touch the same elements of {what} at once: {accesses}.").format(
                    what=what, accesses=accesses
                ),
                _("Let each iteration write elements of its own, or put T.sync_threads() between the two."),
            )
        case Kind.UNINITIALISED:
            return (
                _("A thread reads {size} bytes of {what} that nothing has written.").format(
                    size=report.size, what=what
                ),
                _("An accumulator needs T.clear before the loop; a tile needs T.copy before it is used."),
            )
        case Kind.UNWRITTEN:
            return (
                _("When the kernel has ended, a part of its output was never written."),
                _("Do the blocks cover the whole output? Does a guard leave out too much?"),
            )
        case Kind.BARRIER:
            return (
                _("A barrier is not reached by all threads that it waits for."),
                _("Put T.sync_threads() where all threads of the block come by: not inside of an 'if'."),
            )
    return _("The tool says: {words}").format(words=report.headline[:300]), ""


def _counted(report: Report) -> str:
    if report.kind is Kind.UNWRITTEN:
        return ""
    if report.kind is Kind.RACE:
        return _("{count} pairs of accesses").format(count=report.count)
    place = ""
    if report.thread:
        place = _("first thread {thread} of block {block}").format(
            thread=_tuple(report.thread), block=_tuple(report.block)
        )
    count = _("{count} times, in {blocks} blocks").format(count=report.count, blocks=report.blocks)
    return f"{count}; {place}" if place else count


def _tuple(numbers: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, numbers)) + ")"
