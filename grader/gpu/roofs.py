"""What limits a work on a card: by the datasheet, and by what that kind of card was measured to reach."""

from collections.abc import Iterable
from dataclasses import dataclass

from grader.gpu import roofline, targets
from grader.messages import _
from grader.verdict.chart import Roof


@dataclass(frozen=True)
class Limits:
    """In the work's unit: GB/s for a mix of reads and writes, TFLOP/s for matrix products; None: not known."""

    peak: float | None
    ceiling: float | None


def limits(card: str, ceiling: str) -> Limits:
    """Of a work that is bound by ``ceiling`` (``Task.ceiling``) on a card, by the driver's name of it."""
    datasheet, measured = roofline.of_driver(card), targets.ceilings(card)
    peak = None
    if datasheet is not None:
        is_mix = ceiling in targets.MIXES
        peak = datasheet.memory if is_mix else datasheet.tensor.get(roofline.TENSOR_CORES[ceiling])
    return Limits(peak, None if measured is None else measured.of(ceiling))


def of_card(card: str, needed: Iterable[str]) -> tuple[Roof, ...]:
    """The roofs of a card for works that are bound by ``needed``: datasheet's and measured ones."""
    datasheet, measured = roofline.of_driver(card), targets.ceilings(card)
    needed = list(dict.fromkeys(needed))
    mixes = [name for name in needed if name in targets.MIXES]
    products = [name for name in needed if name not in targets.MIXES]
    roofs = [] if datasheet is None else list(roofline.roofs(datasheet, products))
    if measured is not None:
        rates = [rate for mix in mixes or ["copy"] if (rate := measured.of(mix)) is not None]
        if rates:
            roofs.append(Roof(_("memory"), max(rates), memory=True, measured=True))
        for dtype in products:
            if (rate := measured.of(dtype)) is not None:
                roofs.append(Roof(roofline.tensor_name(dtype), rate, measured=True))
    return tuple(roofs)
