"""The disposable process that compiles: it imports TileLang once and forks itself for every kernel.

    python -m grader.gpu.compile_worker FOLDER

Reads FOLDER/setup.json, then a line of JSON on stdin for each kernel; answers on stdout, a line for each, as they
get ready. A kernel that crashes or hangs its process, or uses up its memory, costs that kernel alone. When stdin
ends, this process and all that it started end.

Headers are parsed (toolchain.Headers) in further forks while TileLang is imported. They come first, before there
is anything else in this process: a precompiled header fits only where NVRTC's heap lies at the same address.
"""

import contextlib
import json
import os
import re
import select
import selectors
import shutil
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.gpu import disposable, toolchain
from grader.gpu.lowering import MAX_SOURCE
from grader.gpu.lowering_worker import MAX_TEXT, lowered
from grader.gpu.nvrtc import Nvrtc, Refused
from grader.gpu.resources import errors_of
from grader.gpu.toolchain import NVCC, Headers, Toolchain

HEADERS_SECONDS = 45.0  # that a kernel waits for its headers


class RefusedByCompiler(Exception):
    """nvcc did not compile a source: its errors."""


class NotLinked(Exception):
    """The host's compiler did not make a library. That is no kernel's fault."""


def main() -> None:
    # What TileLang and compilers print goes to the console; stdout is for answers alone.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    folder = Path(sys.argv[1])
    setup = json.loads((folder / "setup.json").read_text())
    nvrtc = setup["nvrtc"] and Path(setup["nvrtc"])
    tools = Toolchain(Path(setup["nvcc"]), Path(setup["home"]), setup["release"], nvrtc)
    device = DeviceCompiler(folder, tools, setup["way"])
    for headers in setup["headers"]:
        device.begin(Headers(**headers))
    start = time.monotonic()
    import tilelang  # noqa: F401
    import tvm_ffi

    tvm_ffi.register_global_func("tilelang_callback_cuda_compile", device, override=True)
    server = Server(folder, device, setup["workers"], setup["seconds"], answers)
    with contextlib.suppress(BrokenPipeError):  # nobody listens any more
        server.say(ready=time.monotonic() - start, notes=device.notes)
        server.run()
    # Whoever asked was killed, or would have ended this process: what still runs is nobody's, nor are the files.
    disposable.kill_children()
    shutil.rmtree(folder, ignore_errors=True)
    # The libraries' threads and handlers have nothing left to do.
    os._exit(0)


# -- CUDA source to machine code ----------------------------------------------------------------------------


class DeviceCompiler:
    """Compiles TileLang's CUDA source, by the ``way`` that was asked for or the next that works here.

    ``notes`` say why a faster way was left. After a call, ``by`` is the way that it went and ``seconds`` its time.
    """

    def __init__(self, folder: Path, tools: Toolchain, way: str) -> None:
        self.folder = folder
        self.tools = tools
        self.way = way
        self.notes: list[str] = []
        self.by = ""
        self.seconds = 0.0
        self.refused = ""
        self.options: dict[str, bool | int] = {}
        self.arch = ""
        self.making: dict[Headers, int] = {}  # pipes that end when the headers are parsed
        self.nvrtc: Nvrtc | None = None
        if way == NVCC:
            return
        try:
            self.nvrtc = self._load(tools)
            if way == toolchain.PRECOMPILED:
                self.nvrtc.reserve(folder)
        except (OSError, RuntimeError, Refused) as error:
            # Without a compiler as a library there is still the one that is a program.
            self.nvrtc = None
            self.notes.append(f"NVRTC is not used: {error}")

    @staticmethod
    def _load(tools: Toolchain) -> Nvrtc:
        if tools.nvrtc is None:
            raise OSError(f"there is none of release {tools.release}")
        nvrtc = Nvrtc(tools.nvrtc)
        if nvrtc.version != tools.version:
            raise OSError(f"its release is {nvrtc.version}, nvcc's is {tools.version}")
        return nvrtc

    def begin(self, headers: Headers) -> None:
        """Has the headers parsed in a fork, which ends with a file of them, or of the reason why there is none."""
        if self.nvrtc is None or self.way != toolchain.PRECOMPILED:
            return
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                options = toolchain.nvrtc_options(self.tools, headers.arch, self._options_of(headers))
                made = self.folder / f"{headers.name}.new"
                self.nvrtc.precompile(headers.text, made, options)
                made.rename(self._file(headers))
            except BaseException as error:
                (self.folder / f"{headers.name}.failed").write_text(str(error)[-MAX_TEXT:])
            finally:
                os._exit(0)
        os.close(writing)
        self.making[headers] = reading

    def _file(self, headers: Headers) -> Path:
        return self.folder / f"{headers.name}.pch"

    @staticmethod
    def _options_of(headers: Headers) -> dict[str, bool | int]:
        return {toolchain.FAST_MATH: headers.fast_math}

    def __call__(self, source: str, _target: Any, _options: Any = None) -> bytearray:
        """TileLang's hook: a cubin of ``source``. Raises RefusedByCompiler."""
        start = time.monotonic()
        if len(source) > MAX_SOURCE:
            raise ValueError(f"the lowered kernel is unusable: {len(source)} bytes of source")
        try:
            return bytearray(self._compiled(source))
        finally:
            self.seconds = time.monotonic() - start

    def _compiled(self, source: str) -> bytes:
        if self.nvrtc is not None:
            try:
                return self._by_nvrtc(self.nvrtc, source)
            except Refused as error:
                # NVRTC lacks a host's headers. What nvcc says of the source decides, and its words are known.
                self.notes.append(f"NVRTC refused the source: {errors_of(str(error))[:500]}")
        self.by = NVCC
        return self._by_nvcc(source)

    def _by_nvrtc(self, nvrtc: Nvrtc, source: str) -> bytes:
        options = toolchain.nvrtc_options(self.tools, self.arch, self.options)
        headers = self._fitting(toolchain.headers_for(self.arch, self.options, source))
        file = None if headers is None else self._ready(headers)
        if headers is not None and file is not None:
            self.by = toolchain.PRECOMPILED
            return nvrtc.compile(headers.text + source, options, file)
        self.by = toolchain.NVRTC
        return nvrtc.compile(toolchain.without_headers(source), options)

    def _fitting(self, wanted: Headers) -> Headers | None:
        """The headers that were begun for such a source; or others, which spare most of the work, too."""
        if toolchain.REGISTER_LEVEL in self.options:
            return None  # it changes what headers are parsed for, and nobody has asked for it so far
        same = [one for one in self.making if (one.arch, one.fast_math) == (wanted.arch, wanted.fast_math)]
        return wanted if wanted in same else next(iter(same), None)

    def _ready(self, headers: Headers) -> Path | None:
        """The file of the parsed headers, waited for if they are being parsed; None if they can't be."""
        # The pipe ends when the fork does, whatever its end.
        select.select([self.making[headers]], [], [], HEADERS_SECONDS)
        if self._file(headers).exists():
            return self._file(headers)
        failed = self.folder / f"{headers.name}.failed"
        why = failed.read_text()[:500] if failed.exists() else "the process that parsed them ended or hangs"
        self.notes.append(f"headers were not precompiled: {why}")
        return None

    def _by_nvcc(self, source: str) -> bytes:
        folder = self.folder / f"nvcc-{os.getpid()}"
        folder.mkdir()
        (folder / "kernel.cu").write_text(source)
        command = [str(self.tools.nvcc), *toolchain.nvcc_options(self.arch, self.options), "-w"]
        done = subprocess.run(
            [*command, "-o", "kernel.cubin", "kernel.cu"],  # so named, an error is the same from run to run
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            cwd=folder,
        )
        if done.returncode != 0:
            self.refused = errors_of(done.stdout) or f"nvcc ended with status {done.returncode}"
            raise RefusedByCompiler(self.refused)
        return (folder / "kernel.cubin").read_bytes()


# -- a kernel, in a process of its own ----------------------------------------------------------------------


def build(job: dict[str, Any], device: DeviceCompiler) -> dict[str, Any]:
    """IR to a shared object at job["library"]. Returns what is reported of it."""
    device.arch, device.options = job["arch"], job["options"]
    start = time.monotonic()
    try:
        artifact = lowered(job, enable_host_codegen=True, enable_device_compile=True)
    except Exception:
        # It went through TVM's C++ and may have lost its type and its text.
        if device.refused:
            raise RefusedByCompiler(device.refused) from None
        raise
    lowering = time.monotonic() - start - device.seconds
    start = time.monotonic()
    link(artifact.rt_mod, Path(job["library"]))
    phases = {"lowering": lowering, "device": device.seconds, "linking": time.monotonic() - start}
    return {"built": True, "by": device.by, "phases": phases, "notes": device.notes}


def link(module: Any, library: Path) -> None:
    """The launcher and the machine code as one shared object.

    TVM hands the machine code over as the text of a C array, which takes a compiler longer than all else; the
    assembler takes bytes as they are.
    """
    from tilelang.contrib.cc import get_cplus_compiler
    from tvm.contrib import cc

    def packed(packing: Any, is_system_lib: bool, prefix: str, folder: str) -> str:
        from tvm.runtime import _ffi_api

        text = _ffi_api.ModulePackImportsToC(packing, is_system_lib, prefix)
        name, content = array_of(text)
        binary, assembly = Path(folder, "device.bin"), Path(folder, "device.s")
        binary.write_bytes(content)
        assembly.write_text(
            f'.section .rodata\n.balign 16\n.globl {name}\n.type {name}, @object\n{name}:\n.incbin "{binary}"\n'
            f".size {name}, {len(content)}\n"
            '.section .note.GNU-stack,"",@progbits\n'
        )
        return str(assembly)

    def compiled(output: str, files: list[str], **options: Any) -> None:
        # The launcher is C, whatever its compiler is for.
        given: list[str] = []
        for file in files:
            given += ["-x", "assembler" if file.endswith(".s") else "c", file]
        includes = [option for option in options.get("options", []) if option.startswith("-I")]
        command = [get_cplus_compiler() or cc.get_cc(), "-shared", "-fPIC", "-O1", *includes, "-o", output, *given]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode != 0:
            raise NotLinked(f"the launcher was not compiled: {errors_of(done.stderr)}")

    module.export_library(str(library), fcompile=compiled, fpack_imports=packed)


def array_of(text: str) -> tuple[str, bytes]:
    """Name and content of the one array of bytes in TVM's C source. ValueError if it isn't there whole."""
    found = re.search(r"const unsigned char (\w+)\[(\d+)\] = \{", text)
    if found is None:
        raise ValueError("TVM's packed imports have another form than was expected")
    digits = text[found.end() : text.index("};", found.end())]
    content = bytes.fromhex(digits.replace("0x", "").replace(",", " "))
    if len(content) != int(found[2]):
        raise ValueError(f"{len(content)} bytes of packed imports where {found[2]} were said")
    return found[1], content


# -- the server ---------------------------------------------------------------------------------------------


@dataclass
class Kernel:
    """A kernel that is being compiled: its process, until when, and what it answered so far."""

    name: str
    process: int
    console: Path
    start: float
    late: bool = False
    answer: bytearray = field(default_factory=bytearray)


class Server:
    """Takes jobs from stdin, keeps so many forks at work, and says what comes of them."""

    def __init__(self, folder: Path, device: DeviceCompiler, workers: int, seconds: float, answers: Any) -> None:
        self.folder = folder
        self.device = device
        self.workers = workers
        self.seconds = seconds
        self.answers = answers
        self.waiting: list[dict[str, Any]] = []
        self.running: dict[int, Kernel] = {}  # by the pipe of its answer
        self.selector = selectors.DefaultSelector()
        self.given = bytearray()

    def say(self, **line: object) -> None:
        self.answers.write(json.dumps(line) + "\n")

    def run(self) -> None:
        """Until stdin ends."""
        self.selector.register(0, selectors.EVENT_READ)
        while True:
            for key, _events in self.selector.select(self._patience()):
                if key.fd != 0:
                    self._listen(key.fd)
                elif not self._read_jobs():
                    return
            self._end_late()
            while self.waiting and len(self.running) < self.workers:
                self._start(self.waiting.pop(0))

    def _patience(self) -> float | None:
        ends = [kernel.start + self.seconds for kernel in self.running.values() if not kernel.late]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _read_jobs(self) -> bool:
        """False if there is nobody left who asks."""
        data = os.read(0, 2**20)
        self.given += data
        *lines, rest = self.given.split(b"\n")
        self.given = rest
        self.waiting += [json.loads(line) for line in lines if line]
        return bool(data)

    def _start(self, job: dict[str, Any]) -> None:
        reading, writing = os.pipe()
        number = len(list(self.folder.glob("console-*")))
        console = self.folder / f"console-{number}"
        console.touch()
        process = os.fork()
        if process == 0:
            os.close(reading)
            _work(job, self.device, writing, console)
        os.close(writing)
        self.running[reading] = Kernel(job["name"], process, console, time.monotonic())
        self.selector.register(reading, selectors.EVENT_READ)

    def _end_late(self) -> None:
        for kernel in self.running.values():
            if not kernel.late and time.monotonic() - kernel.start >= self.seconds:
                kernel.late = True
                disposable.kill_family(kernel.process)

    def _listen(self, pipe: int) -> None:
        kernel = self.running[pipe]
        data = os.read(pipe, 2**16)
        kernel.answer += data
        if data:
            return
        self.selector.unregister(pipe)
        os.close(pipe)
        del self.running[pipe]
        _pid, status = os.waitpid(kernel.process, 0)
        self.say(name=kernel.name, seconds=time.monotonic() - kernel.start, **self._outcome(kernel, status))
        kernel.console.write_bytes(b"")

    def _outcome(self, kernel: Kernel, status: int) -> dict[str, Any]:
        if kernel.late:
            return {"error": "Timeout", "text": "", "final": False}
        if status == 0 and kernel.answer:
            return json.loads(kernel.answer)
        printed = kernel.console.read_bytes()[-MAX_TEXT:].decode(errors="replace")
        last = [line.strip() for line in printed.splitlines() if line.strip()][-1:]
        code = os.waitstatus_to_exitcode(status)
        text = last[0] if last else f"it ended with status {code}"
        return {"error": "Crash", "text": text[:MAX_TEXT], "final": False}


def _work(job: dict[str, Any], device: DeviceCompiler, pipe: int, console: Path) -> None:
    """A fork's whole life. Its answer is short enough for a pipe to hold."""
    status = 1
    try:
        with console.open("ab") as file, open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        try:
            answer = build(job, device)
        except RefusedByCompiler as error:
            # An error at a line of the source is there the next time, too; a full disk need not be.
            final = re.search(r"\(\d+\): error", str(error)) is not None
            answer = {"error": NVCC, "text": str(error)[:MAX_TEXT], "final": final}
        except Exception as error:
            final = not isinstance(error, OSError | MemoryError | NotLinked | subprocess.SubprocessError)
            answer = {"error": type(error).__name__, "text": str(error).strip()[:MAX_TEXT], "final": final}
        os.write(pipe, json.dumps(answer).encode())
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        # No handler of the libraries runs twice.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
