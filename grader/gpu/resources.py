"""What a kernel takes on a card: compiles CUDA source with nvcc, where there is one, and reads ptxas's figures.

No GPU is needed. Without nvcc there is no answer, and ``NoCompiler`` says how to get one.
"""

import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from grader.gpu import toolchain
from grader.gpu.hardware import look_at_compiler
from grader.gpu.landmarks import sass_landmarks
from grader.messages import _

SECONDS = 120.0
MAX_TEXT = 4_000


@dataclass(frozen=True)
class Resources:
    """ptxas's figures: ``registers`` a thread, static ``shared`` memory in bytes a block.

    ``spill_stores``, ``spill_loads`` and ``stack`` are bytes a thread. ``sass`` are landmarks of the machine code,
    if a disassembler is there.
    """

    registers: int
    shared: int
    spill_stores: int
    spill_loads: int
    stack: int
    seconds: float
    sass: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NotCompiled:
    """nvcc refused the source: its errors, without the warnings around them."""

    text: str
    seconds: float


@dataclass(frozen=True)
class NoCompiler:
    """There is no nvcc that runs: ``why``."""

    why: str


def compile_source(source: str, arch: str, *, fast_math: bool = False) -> Resources | NotCompiled | NoCompiler:
    """Compiles TileLang's CUDA source for ``arch`` ("sm_90a"), with the options that TileLang gives nvcc."""
    compiler = look_at_compiler()
    if compiler is None:
        return NoCompiler(_("there is no nvcc on this machine"))
    if compiler.version is None:
        return NoCompiler(_("nvcc does not run: {why}").format(why=compiler.error))
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tilelab-nvcc-") as name:
        folder = Path(name)
        (folder / "kernel.cu").write_text(source)
        options = toolchain.nvcc_options(arch, {toolchain.FAST_MATH: fast_math})
        command = [compiler.path, *options, "-w", "-Xptxas=-v"]
        command += ["-o", str(folder / "kernel.cubin"), str(folder / "kernel.cu")]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False, cwd=folder
            )
        except subprocess.TimeoutExpired:
            text = _("nvcc did not finish within {seconds:.0f} s").format(seconds=SECONDS)
            return NotCompiled(text, SECONDS)
        seconds = time.monotonic() - start
        if done.returncode != 0:
            return NotCompiled(errors_of(done.stderr + done.stdout), seconds)
        sass = _disassembled(compiler.path, folder / "kernel.cubin")
    return parse(done.stderr + done.stdout, seconds, sass)


def parse(output: str, seconds: float = 0.0, sass: dict[str, int] | None = None) -> Resources:
    """ptxas's figures in what nvcc printed for a source with one kernel. ValueError if they are not there."""
    used = re.search(r"Used (\d+) registers", output)
    frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", output)
    if used is None or frame is None:
        raise ValueError(f"ptxas gave no figures: {output[-MAX_TEXT:]}")
    shared = re.search(r"\b(\d+) bytes smem", output)
    stack, stores, loads = map(int, frame.groups())
    return Resources(int(used[1]), int(shared[1]) if shared else 0, stores, loads, stack, seconds, sass or {})


def errors_of(output: str) -> str:
    """The errors in a compiler's output; all of it, shortened, if none is marked as one."""
    errors = dict.fromkeys(line.strip() for line in output.splitlines() if re.search(r"\b(?:error|fatal)\b", line))
    return ("\n".join(errors) or output.strip())[:MAX_TEXT]


def _disassembled(nvcc: str, cubin: Path) -> dict[str, int]:
    """Landmarks of the machine code; none without a disassembler, which CUDA ships apart from nvcc."""
    beside = Path(nvcc).with_name("nvdisasm")
    tool = str(beside) if beside.exists() else shutil.which("nvdisasm")
    if tool is None:
        return {}
    done = subprocess.run([tool, "-c", str(cubin)], capture_output=True, text=True, timeout=60, check=False)
    return sass_landmarks(done.stdout) if done.returncode == 0 else {}
