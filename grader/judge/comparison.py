"""Compares a kernel's output with the reference, and says in the kernel's terms what is wrong."""

from dataclasses import dataclass

import torch

from grader.messages import _

#: One tensor of integers for each dimension of an output; they broadcast against each other.
Index = tuple[torch.Tensor, ...]

#: The bit pattern that outputs are filled with before a launch: a NaN that no arithmetic produces.
POISON = {torch.float32: 0x7FC0DEAD, torch.float16: 0x7E5A, torch.bfloat16: 0x7FDA}
_BITS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}


def poison(tensor: torch.Tensor) -> None:
    """Fills a tensor with POISON."""
    tensor.view(_BITS[tensor.dtype]).fill_(POISON[tensor.dtype])


def is_poison(tensor: torch.Tensor) -> torch.Tensor:
    """True where nothing was written since ``poison``."""
    return tensor.view(_BITS[tensor.dtype]) == POISON[tensor.dtype]


@dataclass(frozen=True)
class Mismatch:
    """Why an output is wrong."""

    message: str
    advice: str = ""
    evidence: tuple[str, ...] = ()


def compare(
    name: str, output: torch.Tensor, reference: torch.Tensor, bound: torch.Tensor, index: Index | None = None
) -> Mismatch | None:
    """None if every element of ``output`` is within ``bound`` of ``reference`` (float64); else what is wrong.

    With an ``index``, reference and bound are those of ``output[index]``. That an element was never written is
    seen everywhere.
    """
    unwritten = is_poison(output)
    if unwritten.any():
        return _unwritten(name, unwritten)
    got = (output if index is None else output[index]).double()
    finite = torch.isfinite(reference)
    if not torch.isfinite(bound[finite]).all():
        raise ValueError("a bound is infinite where the reference is not: it would accept anything")
    # Where the right answer is infinite, nothing else is right.
    wrong = torch.where(finite, ~((got - reference).abs() <= bound), got != reference)
    if not wrong.any():
        return None
    found = _wrong(name, wrong, got, reference, bound, index)
    if output.any():
        return found
    return Mismatch(
        _("'{name}' is 0 everywhere.").format(name=name),
        _("Is the step that computes it missing, or is the result cleared afterwards?"),
        found.evidence,
    )


def _unwritten(name: str, unwritten: torch.Tensor) -> Mismatch:
    if unwritten.all():
        return Mismatch(
            _("'{name}' is never written.").format(name=name),
            _("Is the gap still empty? The kernel's last step stores the result in {name}.").format(name=name),
        )
    count, total = int(unwritten.sum()), unwritten.numel()
    return Mismatch(
        _("{count} of {total} elements of '{name}' are never written: {where}.").format(
            count=count, total=total, name=name, where=region(name, unwritten.nonzero())
        ),
        _("Does each block start at its own tile, rows before columns? Do the blocks cover the whole output?"),
    )


def _wrong(
    name: str,
    wrong: torch.Tensor,
    got: torch.Tensor,
    reference: torch.Tensor,
    bound: torch.Tensor,
    index: Index | None,
) -> Mismatch:
    count, total = int(wrong.sum()), wrong.numel()
    excess = torch.where(wrong, ((got - reference).abs() / bound).nan_to_num(nan=float("inf")), 0.0)
    first = tuple(int(i) for i in wrong.nonzero()[0])
    worst = tuple(int(i) for i in torch.unravel_index(excess.argmax(), excess.shape))
    evidence = []
    for position in dict.fromkeys((first, worst)):
        text = _("{place} is {got:.6g}, should be {want:.6g} ± {bound:.2g}").format(
            place=f"{name}[{', '.join(map(str, _place(position, got.shape, index)))}]",
            got=float(got[position]),
            want=float(reference[position]),
            bound=float(bound[position]),
        )
        evidence.append(text)
    where = _("everywhere") if count == total else region(name, _places(wrong, index))
    if count > 0.9 * total and count != total:
        where = _("almost everywhere")
    text = _("{count} of {total} elements of '{name}' are wrong: {where}.")
    if index is not None:
        text = _("{count} of {total} elements of '{name}' that were looked at are wrong: {where}.")
    return Mismatch(
        text.format(count=count, total=total, name=name, where=where),
        evidence=tuple(evidence),
    )


def _place(position: tuple[int, ...], size: torch.Size, index: Index | None) -> tuple[int, ...]:
    """Where an element of a part, or of the whole, stands in the output."""
    return position if index is None else tuple(int(part.expand(size)[position]) for part in index)


def _places(mask: torch.Tensor, index: Index | None) -> torch.Tensor:
    """Where the elements of a part, or of the whole, at which ``mask`` is true stand in the output: one a row."""
    if index is None:
        return mask.nonzero()
    return torch.stack([part.expand(mask.shape)[mask] for part in index], dim=1).unique(dim=0)


def region(name: str, indices: torch.Tensor) -> str:
    """Where elements are, of which each row of ``indices`` is one: the smallest box, and whether they fill it."""
    low, high = indices.min(dim=0).values.tolist(), (indices.max(dim=0).values + 1).tolist()
    box = ", ".join(f"{a}" if b == a + 1 else f"{a}:{b}" for a, b in zip(low, high, strict=True))
    size = 1
    for a, b in zip(low, high, strict=True):
        size *= b - a
    where = f"{name}[{box}]"
    return where if size == len(indices) else _("inside {where}").format(where=where)
