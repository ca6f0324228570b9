"""How many bytes of global memory a kernel may move: a limit for each lab, held against the simulator's count."""

from dataclasses import dataclass

from grader.catalog import Shape
from grader.messages import _
from grader.verdict import Finding
from grader.verdict.traffic import BufferTraffic, Traffic


@dataclass(frozen=True)
class Allowance:
    """The most bytes that a kernel may ask of global memory at a shape, all blocks together, before any cache.

    ``products``, where a lab limits them, are the most operations of matrix products: 2 M N K for each T.gemm.
    ``rule`` says in a sentence where the limit comes from; ``advice`` what to try if it is exceeded.
    """

    read: int
    written: int
    rule: str
    advice: str
    products: int | None = None


def exceeded(name: str, traffic: Traffic, allowed: Allowance) -> Finding | None:
    """What ``traffic`` is above the limit, with the figures of each parameter; None if it isn't."""
    over = []
    if traffic.read() > allowed.read:
        over.append(_("reads {got:,} bytes, and may read {most:,}").format(got=traffic.read(), most=allowed.read))
    if traffic.written() > allowed.written:
        over.append(
            _("writes {got:,} bytes, and may write {most:,}").format(got=traffic.written(), most=allowed.written)
        )
    if not over:
        return _multiplied(name, traffic, allowed)
    message = _("'{name}' moves more bytes than its work needs: it {what}.").format(
        name=name, what=_(", and ").join(over)
    )
    touched = (_figures(buffer) for buffer in traffic.buffers if buffer.scope == "global")
    return Finding(message, allowed.advice, evidence=(*touched, allowed.rule))


def _multiplied(name: str, traffic: Traffic, allowed: Allowance) -> Finding | None:
    got = sum(traffic.gemm_operations.values())
    if allowed.products is None or got <= allowed.products:
        return None
    message = _("'{name}' multiplies more than its work needs: {got:,} operations in T.gemm, at most {most:,}.")
    return Finding(
        message.format(name=name, got=got, most=allowed.products), allowed.advice, evidence=(allowed.rule,)
    )


def kept(shape: Shape, traffic: Traffic, allowed: Allowance) -> Finding:
    """What a kernel within the limit moves, to be shown beside it."""
    message = _("{read:,} bytes read (at most {most_read:,}), {written:,} written (at most {most_written:,}).")
    return Finding(
        message.format(
            read=traffic.read(),
            most_read=allowed.read,
            written=traffic.written(),
            most_written=allowed.written,
        ),
        evidence=(
            *_products(traffic, allowed),
            _("counted at {shape}").format(shape=shape),
        ),
    )


def _products(traffic: Traffic, allowed: Allowance) -> tuple[str, ...]:
    if allowed.products is None:
        return ()
    text = _("{got:,} operations in T.gemm (at most {most:,})")
    return (text.format(got=sum(traffic.gemm_operations.values()), most=allowed.products),)


def _figures(buffer: BufferTraffic) -> str:
    parts = []
    if buffer.read:
        parts.append(_times(_("read"), buffer.read, buffer.distinct_read))
    if buffer.written:
        parts.append(_times(_("written"), buffer.written, buffer.distinct_written))
    return f"{buffer.name}: " + (", ".join(parts) or _("not touched"))


def _times(verb: str, count: int, distinct: int | None) -> str:
    each = _(", each {times:.3g} times").format(times=count / distinct) if distinct else ""
    return _("{count:,} bytes {verb}").format(count=count, verb=verb) + each
