"""A worker of the card's run: compiles, launches and compares one case after another.

It says at each step what it is about to do, so that its end, whatever it was, is put down to a case and a step.
"""

import os
import sys
import tempfile
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

import torch

MARGIN = 4096  # bytes before and after an output that must stay as they are
FILL = 0xA5


def work(connection: Connection, log: str) -> None:
    """Answers each case's name with what became of it, until the parent ends the process."""
    # What TileLang, nvcc and T.print write goes to the log; nothing else may reach the parent's output.
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    from grader.gpu.architectures import architecture
    from grader.gpu.compiler import Compiler

    from . import kernels
    from .registry import CASES

    assert kernels.__all__  # importing them registered the cases
    torch.set_num_threads(1)
    torch.zeros(1, device="cuda")
    # No cache: what is compiled is what is run.
    with Compiler(arch=architecture(torch.cuda.get_device_capability()), workers=1) as compiler:
        connection.send({"kind": "ready", "facts": facts()})
        while True:
            name = connection.recv()
            last, found = _Case(connection, CASES[name], compiler).run()
            sys.stdout.flush()
            connection.send({"kind": "last" if last else "done", **found})
            if last:
                return


def facts() -> dict[str, str]:
    """The card and the versions."""
    import platform

    import pynvml
    import tilelang

    pynvml.nvmlInit()
    return {
        "card": torch.cuda.get_device_name(),
        "driver": str(pynvml.nvmlSystemGetDriverVersion()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tilelang": tilelang.__version__,
    }


class _Case:
    def __init__(self, connection: Connection, case, compiler) -> None:
        self.connection = connection
        self.case = case
        self.compiler = compiler

    def say(self, stage: str) -> None:
        self.connection.send({"kind": "stage", "stage": stage})

    def run(self) -> tuple[bool, dict[str, object]]:
        """Whether this process can't go on, and the result's fields."""
        from .simulated import brief

        try:
            self.say("tracing")
            built = self.case.build()
            self.say("simulating")
            simulated, why = self.simulate(built)
        except Exception as error:
            traceback.print_exc()
            return False, {"status": "failed", "detail": f"not on the card: {brief(error)}"}
        try:
            self.say("compiling")
            launch = self.compile(built)
        except Exception as error:
            traceback.print_exc()
            return False, {"status": "not compiled", "detail": reason(error)}
        try:
            self.say("running")
            outputs, intact = self.launch(launch, built)
        except Exception as error:  # an error of CUDA's stays with the process
            return True, {"status": "failed", "detail": brief(error)}
        return False, judge(built, outputs, intact, simulated, why)

    def simulate(self, built) -> tuple[list[torch.Tensor] | None, str]:
        from grader import ir, simulator

        from .simulated import run

        try:
            ran, results = run(built)
        except (ir.Malformed, simulator.Unsupported, simulator.OverBudget) as error:
            return None, str(error)
        return results, f"the simulator found {ran.faults[0].kind}" if ran.faults else ""

    def compile(self, built):
        from tilelang import tvm

        from grader.gpu.architectures import architecture
        from grader.gpu.compiler import NotBuilt, Source
        from grader.gpu.launch import load

        # Every output is a tensor of ours, those that the kernel would make itself (T.empty) included.
        text = tvm.ir.save_json(built.kernel.without_attr("tilelang_out_idx"))
        source = Source(text, architecture(torch.cuda.get_device_capability()))
        with tempfile.TemporaryDirectory(prefix="tilelab-conformance-") as folder:
            ((_name, result),) = self.compiler.build({self.case.name: source}, Path(folder))
            if isinstance(result, NotBuilt):
                raise RuntimeError(f"{result.kind}: {result.text}")
            return load(result.library)

    def launch(self, launch, built) -> tuple[list[torch.Tensor], bool]:
        """The outputs, on the CPU, and whether nothing was written around them."""
        from .simulated import poisoned

        inputs = [between_margins(tensor)[0] for tensor in built.inputs]
        outputs = [between_margins(poisoned(output)) for output in built.outputs]
        launch(*inputs, *(tensor for tensor, _memory in outputs))
        torch.cuda.synchronize()
        intact = all(
            bool((memory[:MARGIN] == FILL).all() and (memory[-MARGIN:] == FILL).all())
            for _tensor, memory in outputs
        )
        return [tensor.cpu() for tensor, _memory in outputs], intact


def between_margins(tensor: torch.Tensor, device: str = "cuda") -> tuple[torch.Tensor, torch.Tensor]:
    """A copy on the card with the same strides, between margins; and the memory with the margins."""
    size = tensor.untyped_storage().nbytes()
    memory = torch.full((size + 2 * MARGIN,), FILL, dtype=torch.uint8, device=device)
    host = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage(), 0, (size,), (1,))
    memory[MARGIN : MARGIN + size] = host.to(device)
    offset = MARGIN // tensor.element_size() + tensor.storage_offset()
    view = torch.empty(0, dtype=tensor.dtype, device=device)
    return view.set_(memory.untyped_storage(), offset, tensor.size(), tensor.stride()), memory


def untouched(memory: torch.Tensor) -> bool:
    """Are both margins as they were?"""
    return bool((memory[:MARGIN] == FILL).all() and (memory[-MARGIN:] == FILL).all())


def judge(
    built, outputs: list[torch.Tensor], intact: bool, simulated: list[torch.Tensor] | None, why: str
) -> dict[str, object]:
    """The result's fields: beside the float64 reference first, then beside the simulator."""
    from . import simulated as by_simulator
    from .bounded import apart

    status, share, detail = by_simulator.judge(built, outputs, card=True)
    found: dict[str, object] = {"status": status, "share": share, "detail": detail}
    if not intact:
        return found | {"status": "wrong", "detail": "it wrote around an output"}
    if simulated is None:
        return found | {"status": "no simulator" if status == "right" else status, "detail": detail or why}
    worst, same, total = 0.0, 0, 0
    for output, one, other in zip(built.outputs, outputs, simulated, strict=True):
        distance, count = apart(one, other, output.want, output.card)
        worst = max(worst, distance)
        same += int((bits(one) == bits(other)).sum())
        total += one.numel()
        if count and status == "right":
            found |= {
                "status": "apart",
                "detail": f"{count} of {one.numel()} elements differ from the simulator's",
            }
    if found["status"] == "right" and why:
        found |= {"status": "apart", "detail": why}
    return found | {"apart": worst, "identical": same / total if total else 1.0}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(kinds[tensor.element_size()])


def reason(error: Exception) -> str:
    """The line of a compiler's message that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()] or lines[-1:] or [""]
    return f"{type(error).__name__}: {telling[0][:240]}"
