"""How the record of a block is told: the words that page and terminal share."""

from grader.messages import _
from grader.verdict.trace import BlockTrace, Number, Step, Touch, TracedBuffer


def title(trace: BlockTrace) -> str:
    count = len(trace.steps)
    return _("{kernel}: block ({block}) of a grid of {grid}, {steps}").format(
        kernel=trace.kernel,
        block=", ".join(map(str, trace.block)),
        grid=" × ".join(map(str, trace.grid)),
        steps=_("1 step") if count == 1 else _("{count} steps").format(count=count),
    )


def line(step: Step) -> str:
    """The student's line, or, if it isn't known, the statement as TileLang has it."""
    return step.where.text if step.where is not None and step.where.text else step.text


def place(step: Step) -> str:
    return "" if step.where is None else str(step.where)


def variables(step: Step) -> str:
    """``k = 2, by = 0``, and the loops whose iterations are done at once."""
    values = [f"{name} = {number(value)}" for name, value in step.variables]
    if step.parallel:
        loops = ", ".join(f"{name} < {extent}" for name, extent in step.parallel)
        values.append(_("all {loops} at once").format(loops=loops))
    return ", ".join(values)


def region(buffer: TracedBuffer, touch: Touch) -> str:
    """``A[0:128, 32]``, and how many elements of that, if not all."""
    if buffer.shape == (1,):
        return buffer.name
    inside = ", ".join(f"{low}" if high == low + 1 else f"{low}:{high}" for low, high in touch.box)
    text = f"{buffer.name}[{inside}]"
    if touch.elements is None:
        return text
    return _("{count} elements of {region}").format(count=touch.count, region=text)


def number(value: Number) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
