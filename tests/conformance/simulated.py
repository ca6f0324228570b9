"""Runs a case on the simulator and says whether it is right: the values, and a run without faults."""

import traceback
from dataclasses import asdict, dataclass

import torch

from grader import ir, simulator

from .bounded import excess
from .registry import Built, Case, Output

RIGHT, WRONG, FAULTY, REFUSED, BROKEN, SKIPPED = "right", "wrong", "faulty", "refused", "broken", "not compilable"


@dataclass(frozen=True)
class Result:
    """What became of a case. ``share``: the largest error as a share of its bound."""

    case: str
    construct: str
    status: str
    share: float = 0.0
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.status in (RIGHT, SKIPPED)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def read(built: Built) -> ir.Kernel:
    from tilelang import tvm  # noqa: F401 (must come first)
    from tvm.ir import save_json

    return ir.read(save_json(built.kernel))


def poisoned(output: Output) -> torch.Tensor:
    """What an output's parameter holds before the kernel runs."""
    if output.start is not None:
        start = output.start
        storage = start.untyped_storage().clone()
        return start.new_empty(0).set_(storage, start.storage_offset(), start.size(), start.stride())
    tensor = torch.empty(output.want.value.shape, dtype=output.dtype)
    tensor.view(torch.uint8).fill_(1 if output.dtype == torch.bool else 0xFF)
    return tensor


def run(built: Built) -> tuple[simulator.Run, list[torch.Tensor]]:
    """Runs the kernel; gives the run and the outputs. Raises what reading and running raise."""
    results = [poisoned(output) for output in built.outputs]
    first = len(built.inputs)
    fresh = [first + n for n, output in enumerate(built.outputs) if output.start is None]
    return simulator.run(read(built), (*built.inputs, *results), outputs=fresh), results


def check(case: Case) -> Result:
    """Builds and runs a case. Never raises: what goes wrong is the result."""

    def result(status: str, share: float = 0.0, detail: str = "") -> Result:
        return Result(case.name, case.construct, status, share, detail)

    if case.uncompilable:
        return result(SKIPPED, detail=case.uncompilable)
    try:
        built = case.build()
    except Exception as error:
        return result(BROKEN, detail=f"not traced: {brief(error)}")
    try:
        ran, results = run(built)
    except ir.Malformed as error:
        return result(REFUSED, detail=f"not read: {error}")
    except simulator.Unsupported as error:
        if case.refused:
            named = case.refused in error.what
            return result(RIGHT if named else WRONG, detail=f"refused as '{error.what}'")
        return result(REFUSED, detail=error.what)
    except simulator.OverBudget as error:
        return result(REFUSED, detail=str(error))
    except Exception as error:
        return result(BROKEN, detail=f"{brief(error)} at {place(error)}")
    if case.refused:
        return result(WRONG, detail=f"not refused: {case.refused}")
    status, share, detail = judge(built, results)
    if status != RIGHT:
        return result(status, share, detail)
    if ran.faults:
        fault = ran.faults[0]
        line = fault.line.number if fault.line else "?"
        return result(FAULTY, share, f"{fault.kind} of {fault.buffer}{list(fault.index)} at line {line}")
    for number, output in enumerate(built.outputs):
        written = ran.written[len(built.inputs) + number]
        if output.start is None and not bool(written.all()):
            return result(FAULTY, share, f"output {number} is not written in all elements, says the run")
    return result(RIGHT, share)


def judge(built: Built, results: list[torch.Tensor], *, card: bool = False) -> tuple[str, float, str]:
    """Status, share and detail of outputs beside the reference."""
    worst = 0.0
    for number, (output, got) in enumerate(zip(built.outputs, results, strict=True)):
        share, count = excess(got, output.on_card if card else output.want)
        if count:
            return WRONG, share, f"output {number}: {count} of {got.numel()} elements, {first_wrong(got, output)}"
        worst = max(worst, share)
    return RIGHT, worst, ""


def first_wrong(got: torch.Tensor, output: Output) -> str:
    want = output.want.value
    same = (got.double() - want.double()).abs() <= output.want.error
    same |= got.double().isnan() & want.double().isnan()
    index = tuple(int(i) for i in (~same).nonzero()[0]) if not bool(same.all()) else ()
    here = f"{float(got[index]):.8g}, should be {float(want[index]):.8g}" if got.numel() else ""
    return f"[{', '.join(map(str, index))}] is {here} ± {float(output.want.error[index]):.2g}"


def brief(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


def place(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename.rsplit('/', 1)[-1]}:{last.lineno}"
