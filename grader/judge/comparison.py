"""Compares a kernel's output with the reference, and says in the kernel's terms what is wrong."""

from dataclasses import dataclass

import torch

from grader.messages import _

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


def compare(name: str, output: torch.Tensor, reference: torch.Tensor, bound: torch.Tensor) -> Mismatch | None:
    """None if every element of ``output`` is within ``bound`` of ``reference`` (float64); else what is wrong."""
    unwritten = is_poison(output)
    if unwritten.any():
        return _unwritten(name, unwritten)
    got = output.double()
    finite = torch.isfinite(reference)
    if not torch.isfinite(bound[finite]).all():
        raise ValueError("a bound is infinite where the reference is not: it would accept anything")
    # Where the right answer is infinite, nothing else is right.
    wrong = torch.where(finite, ~((got - reference).abs() <= bound), got != reference)
    if not wrong.any():
        return None
    return _wrong(name, wrong, got, reference, bound)


def _unwritten(name: str, unwritten: torch.Tensor) -> Mismatch:
    if unwritten.all():
        return Mismatch(
            _("'{name}' is never written.").format(name=name),
            _("Is the gap still empty? The kernel's last step stores the result in {name}.").format(name=name),
        )
    count, total = int(unwritten.sum()), unwritten.numel()
    return Mismatch(
        _("{count} of {total} elements of '{name}' are never written: {where}.").format(
            count=count, total=total, name=name, where=region(name, unwritten)
        ),
        _("Does each block start at its own tile, rows before columns? Do the blocks cover the whole output?"),
    )


def _wrong(
    name: str, wrong: torch.Tensor, got: torch.Tensor, reference: torch.Tensor, bound: torch.Tensor
) -> Mismatch:
    count, total = int(wrong.sum()), wrong.numel()
    excess = torch.where(wrong, ((got - reference).abs() / bound).nan_to_num(nan=float("inf")), 0.0)
    first = tuple(int(i) for i in wrong.nonzero()[0])
    worst = tuple(int(i) for i in torch.unravel_index(excess.argmax(), excess.shape))
    evidence = [_element(name, index, got, reference, bound) for index in dict.fromkeys((first, worst))]
    where = _("everywhere") if count == total else region(name, wrong)
    if count > 0.9 * total and count != total:
        where = _("almost everywhere")
    if not got.any():
        return Mismatch(
            _("'{name}' is 0 everywhere.").format(name=name),
            _("Is the step that computes it missing, or is the result cleared afterwards?"),
            tuple(evidence),
        )
    return Mismatch(
        _("{count} of {total} elements of '{name}' are wrong: {where}.").format(
            count=count, total=total, name=name, where=where
        ),
        evidence=tuple(evidence),
    )


def _element(
    name: str, index: tuple[int, ...], got: torch.Tensor, reference: torch.Tensor, bound: torch.Tensor
) -> str:
    return _("{name}[{index}] is {got:.6g}, should be {want:.6g} ± {bound:.2g}").format(
        name=name,
        index=", ".join(map(str, index)),
        got=float(got[index]),
        want=float(reference[index]),
        bound=float(bound[index]),
    )


def region(name: str, mask: torch.Tensor) -> str:
    """Where ``mask`` is true: the smallest box around it, and whether it fills that box."""
    indices = mask.nonzero()
    low, high = indices.min(dim=0).values.tolist(), (indices.max(dim=0).values + 1).tolist()
    box = ", ".join(f"{a}" if b == a + 1 else f"{a}:{b}" for a, b in zip(low, high, strict=True))
    size = 1
    for a, b in zip(low, high, strict=True):
        size *= b - a
    where = f"{name}[{box}]"
    return where if size == len(indices) else _("inside {where}").format(where=where)
