"""From IR to a library that can be loaded at once, with no card: what compiles, what doesn't, what that costs."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from broken_kernels import product
from cells import ROOT
from hypothesis import given
from hypothesis import strategies as st
from kernels import json_of, matmul, vector_add

from grader import ir
from grader.gpu import compile_worker, compiler, toolchain
from grader.gpu.architectures import ARCHITECTURES, architecture
from grader.gpu.compile_errors import explain_text
from grader.gpu.compile_worker import DeviceCompiler, Server, array_of
from grader.gpu.compiler import Built, Compiler, NotBuilt, Source, build_all
from grader.gpu.toolchain import NVCC, NVRTC, PRECOMPILED, Headers, Toolchain
from grader.ir import nodes
from grader.verdict import JudgeFailed

needs_nvcc = pytest.mark.skipif(toolchain.find() is None, reason="not assessed: needs nvcc")
needs_nvrtc = pytest.mark.skipif(
    toolchain.find() is None or toolchain.find().nvrtc is None, reason="not assessed: needs nvcc and its NVRTC"
)

HOPPER = "sm_90a"
DEADLY = '{"root_index":0,"nodes":[{"type":"ffi.Array","data":[99999999]}]}'  # TVM's reader runs away


def written(function) -> str:
    return ir.write(ir.read(json_of(function)))


ADD = Source(written(vector_add.get_tir(N=1024)), HOPPER)
PRODUCT = Source(written(matmul.get_tir(M=256, N=128, K=64)), HOPPER)
REFUSED = Source(written(product(out="int32")), HOPPER)  # no tensor core has it: nvcc's static_assert
UNSHARED = Source(written(matmul.get_tir(M=64, N=64, K=64, block_M=16, block_N=16, threads=256)), HOPPER)


def members(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def until(condition) -> bool:
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


# What comes out


@pytest.fixture(scope="module")
def started(tmp_path_factory) -> Iterator[Compiler]:
    """One process for the tests that need none of their own."""
    if toolchain.find() is None:
        pytest.skip("not assessed: needs nvcc")
    with Compiler([ADD, PRODUCT]) as one:
        yield one


LOADS = """
import sys, torch
from pathlib import Path
from grader.gpu.launch import load
launch = load(Path(sys.argv[1]))
a, b, c = (torch.zeros(size, dtype=torch.float16) for size in ((256, 64), (64, 128), (256, 128)))
for given in ((), (a, b), (a, b, c), (a.float(), b, c), (a[:128], b, c), (1, 2, 3), (None, b, c), ("a", b, c)):
    try:
        launch(*given)
    except (RuntimeError, TypeError) as error:
        print(str(error).splitlines()[0])
    else:
        print("launched")
print(*(name for name in ("tvm", "tilelang") if name in sys.modules))
import ctypes
ctypes.CDLL(None).TVMBackendGetFuncFromEnv  # a launcher looks for it in the whole process
"""


def test_a_library_loads_without_tilelang_and_a_wrong_call_is_an_error(started, tmp_path):
    ((name, built),) = started.build({"product": PRODUCT}, tmp_path)
    assert name == "product"
    assert built.library.parent == tmp_path
    done = subprocess.run(
        [sys.executable, "-c", LOADS, str(built.library)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    for line, words in zip(
        said,
        (
            "num_args",
            "num_args",
            "device_type",
            "dtype",
            "shape",
            "expected pointer",
            "non-NULL",
            "expected pointer",
        ),
        strict=False,
    ):
        assert words in line
    assert said[8:] == [""]  # neither TVM's compiler nor TileLang was imported


def test_the_machine_code_is_the_architectures(started, tmp_path):
    sources = {"hopper": ADD, "ampere": replace(ADD, arch="sm_80")}
    for name, built in started.build(sources, tmp_path):
        target = {"hopper": b".target sm_90a", "ampere": b".target sm_80"}[name]
        assert target in built.library.read_bytes()


def test_a_process_compiles_many_kernels_in_turn_and_forgets_those_nobody_waits_for(started, tmp_path):
    left = started.build({"first": ADD, "second": PRODUCT}, tmp_path)
    next(left)
    left.close()
    found = dict(started.build({"third": ADD, "fourth": PRODUCT}, tmp_path))
    assert set(found) == {"third", "fourth"}
    assert all(isinstance(built, Built) for built in found.values())


@needs_nvrtc
@pytest.mark.parametrize("way", [NVCC, NVRTC, PRECOMPILED])
def test_every_way_that_is_asked_for_is_gone(way):
    found = dict(build_all({"add": ADD, "product": PRODUCT}, cache=None, way=way))
    assert {name: (built.by, built.notes) for name, built in found.items()} == {
        "add": (way, ()),
        "product": (way, ()),
    }


@needs_nvcc
def test_without_nvrtc_nvcc_compiles_and_it_is_said_why(monkeypatch, tmp_path):
    tools = replace(toolchain.find(), nvrtc=None)
    monkeypatch.setattr(toolchain, "find", lambda: tools)
    with Compiler([ADD]) as one:
        ((_name, built),) = one.build({"add": ADD}, tmp_path)
        assert built.by == NVCC
        assert "NVRTC is not used" in built.notes[0]
        assert one.notes == built.notes


def test_an_nvrtc_of_another_release_is_not_used(tmp_path):
    if (tools := toolchain.find()) is None or tools.nvrtc is None:
        pytest.skip("not assessed: needs nvcc and its NVRTC")
    device = DeviceCompiler(tmp_path, replace(tools, release="1.2.3"), NVRTC)
    assert device.nvrtc is None
    assert "its release is" in device.notes[0]


def test_without_nvcc_the_judge_fails_and_says_so(monkeypatch):
    monkeypatch.setattr(toolchain, "find", lambda: None)
    with pytest.raises(JudgeFailed, match="no nvcc"):
        list(build_all({"add": ADD}, cache=None))


# What doesn't compile


def test_what_does_not_compile_is_said_in_the_compilers_words(started, tmp_path):
    found = dict(started.build({"refused": REFUSED, "unshared": UNSHARED, "add": ADD}, tmp_path))
    assert isinstance(found["add"], Built)
    assert found["refused"].kind == "nvcc"
    assert found["refused"].final
    explained = explain_text(found["refused"].text, ir.read(REFUSED.json), compiler="nvcc")
    assert "no such product" in explained.message
    assert "No valid warp partition" in found["unshared"].text
    assert "among 8 warps" in explain_text(found["unshared"].text, ir.read(UNSHARED.json)).message


@needs_nvcc
def test_a_kernel_that_hangs_or_kills_the_compiler_costs_itself_alone(tmp_path):
    kernel = ir.read(PRODUCT.json)
    endless = ir.write(replace(kernel, body=nodes.Seq(None, (kernel.body,) * 200)))  # takes minutes
    sources = {"endless": Source(endless, HOPPER), "deadly": Source(DEADLY, HOPPER), "add": ADD}
    found = dict(build_all(sources, cache=tmp_path / "cache", seconds=20, workers=2))
    assert isinstance(found["add"], Built)
    assert found["endless"].kind == "Timeout"
    assert "20 s" in found["endless"].text
    assert found["deadly"].kind == "Crash"
    assert len(list((tmp_path / "cache").iterdir())) == 1  # neither end is kept


# The cache


@needs_nvcc
def test_what_was_compiled_before_needs_no_compiler(tmp_path, monkeypatch):
    sources = {"add": ADD, "refused": REFUSED}
    first = dict(build_all(sources, cache=tmp_path / "cache", into=tmp_path / "one"))

    def never(*_arguments, **_more):
        raise AssertionError("a compiler was started")

    monkeypatch.setattr(compiler, "Compiler", never)
    second = dict(build_all(sources, cache=tmp_path / "cache", into=tmp_path / "two"))
    assert not first["add"].cached
    assert second["add"].cached
    assert second["add"].library.parent == tmp_path / "two"
    assert second["add"].library.read_bytes() == first["add"].library.read_bytes()
    assert second["add"].by == first["add"].by
    assert second["refused"] == replace(first["refused"], cached=True, seconds=second["refused"].seconds)
    with pytest.raises(AssertionError, match="was started"):
        list(build_all({"add": replace(ADD, options={"tl.enable_fast_math": True})}, cache=tmp_path / "cache"))


# The process


@needs_nvcc
def test_the_process_sees_no_card_and_leaves_nothing(tmp_path):
    with Compiler([ADD]) as one:
        environment = psutil.Process(one._process.pid).environ()
        assert environment["CUDA_VISIBLE_DEVICES"] == ""
        assert environment["TILELANG_CACHE_DIR"].startswith(str(one._folder))
        assert environment["TMPDIR"] == str(one._folder)
        list(one.build({"add": ADD}, tmp_path))
    assert not one._folder.exists()
    assert members(one._process.pid) == []


ORPHANS = """
import sys, time
from grader.gpu.compiler import Compiler, Source
one = Compiler([Source(sys.argv[1], "sm_90a")])
print(one._process.pid, one._folder, flush=True)
time.sleep(100)
"""


@needs_nvcc
def test_it_ends_when_its_owner_is_killed():
    owner = subprocess.Popen(
        [sys.executable, "-c", ORPHANS, ADD.json], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    session, folder = owner.stdout.readline().split()
    assert members(int(session))
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert until(lambda: not members(int(session)) and not Path(folder).exists())


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[tuple[int, int]]:
    """A server in a fork that "compiles" by script: descriptors of where its jobs go and its answers come from."""
    monkeypatch.setattr(compile_worker, "build", scripted)
    (ours_in, jobs), (answers, ours_out) = os.pipe(), os.pipe()
    process = os.fork()
    if process == 0:
        with contextlib.suppress(BaseException):
            os.setsid()
            os.dup2(ours_in, 0)
            os.close(jobs)
            Server(tmp_path, None, 2, 1.0, os.fdopen(ours_out, "w", buffering=1)).run()
        os._exit(0)
    os.close(ours_in)
    os.close(ours_out)
    yield jobs, answers
    os.close(jobs)
    os.waitpid(process, 0)
    os.close(answers)


def scripted(job: dict, _device: object) -> dict:
    match job["do"]:
        case "crash":
            os.write(1, b"a last word\n")
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            child = subprocess.Popen(["sleep", "100"])
            Path(job["file"]).write_text(f"{os.getpid()} {child.pid}")
            time.sleep(100)
        case "raise":
            raise ValueError("what was wrong")
        case "lack":
            raise OSError("no space")
        case "exit":
            sys.exit(3)
    return {"built": True}


def ask(server: tuple[int, int], *jobs: dict) -> dict[str, dict]:
    os.write(server[0], b"".join(json.dumps(job | {"name": job["do"]}).encode() + b"\n" for job in jobs))
    with os.fdopen(os.dup(server[1])) as lines:
        answers = [json.loads(lines.readline()) for _job in jobs]
    return {answer.pop("name"): answer for answer in answers}


def test_each_end_of_a_fork_is_told_and_costs_no_other(server, tmp_path):
    file = tmp_path / "processes"
    jobs = [{"do": what} for what in ("crash", "raise", "lack", "exit", "work")]
    found = ask(server, {"do": "hang", "file": str(file)}, *jobs)
    told = {name: (answer.get("error"), answer.get("text"), answer.get("final")) for name, answer in found.items()}
    assert told == {
        "hang": ("Timeout", "", False),
        "crash": ("Crash", "a last word", False),
        "raise": ("ValueError", "what was wrong", True),
        "lack": ("OSError", "no space", False),
        "exit": ("Crash", "SystemExit: 3", False),
        "work": (None, None, None),
    }
    # What the late one had started is gone with it.
    for number in file.read_text().split():
        assert until(lambda number=number: not psutil.pid_exists(int(number)) or _ended(int(number)))


def _ended(number: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(number).status() == psutil.STATUS_ZOMBIE
    return True


# Parts


@pytest.mark.parametrize(
    ("capability", "name"), [((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((12, 0), "sm_120a")]
)
def test_a_cards_architecture(capability, name):
    assert architecture(capability) == name
    assert name in ARCHITECTURES


@given(st.binary(min_size=1, max_size=300))
def test_packed_imports_are_read_as_they_were_written(content):
    rows = [content[start : start + 20] for start in range(0, len(content), 20)]
    lines = "\n".join("  " + "".join(f"0x{byte:02x}," for byte in row) for row in rows)
    text = f"extern const unsigned char name[];\nconst unsigned char name[{len(content)}] = {{\n{lines}\n}};\n"
    assert array_of(text) == ("name", content)
    with pytest.raises(ValueError, match="packed imports"):
        array_of(text.replace(f"[{len(content)}]", f"[{len(content) + 1}]"))
    with pytest.raises(ValueError, match="another form"):
        array_of(text.replace("unsigned", "signed"))


def test_both_compilers_get_the_same_options():
    tools = Toolchain(Path("/usr/bin/nvcc"), Path("/cuda"), "13.0.88", None)
    options = {"tl.enable_fast_math": True, "tl.ptxas_register_usage_level": 3}
    plain = [toolchain.nvcc_options(HOPPER, {}), toolchain.nvrtc_options(tools, HOPPER, {})]
    asked = [toolchain.nvcc_options(HOPPER, options), toolchain.nvrtc_options(tools, HOPPER, options)]
    for one, other in zip(plain, asked, strict=True):
        assert "-lineinfo" in one
        assert "-std=c++20" in one
        assert set(other) - set(one) == {"--use_fast_math", "--ptxas-options=--register-usage-level=3"}
    assert "-I/cuda/include" in plain[1]
    assert tools.version == (13, 0)


def test_the_headers_that_a_kernel_needs_are_told_from_its_ir():
    assert toolchain.headers_for(HOPPER, {}, PRODUCT.json) == Headers(HOPPER, False, wgmma=True)
    assert toolchain.headers_for(HOPPER, {}, ADD.json) == Headers(HOPPER, False, wgmma=False)
    assert toolchain.headers_for("sm_80", {}, PRODUCT.json) == Headers("sm_80", False, wgmma=False)
    assert toolchain.headers_for("sm_80", {"tl.enable_fast_math": True}, ADD.json).fast_math


def test_not_built_is_not_final_if_its_process_ended():
    line = {"error": "Timeout", "text": "", "final": False, "seconds": 3.0}
    assert compiler._result(line, Path("x"), 3) == NotBuilt(
        "Timeout", "TileLang did not finish compiling within 3 s", 3.0, final=False
    )
