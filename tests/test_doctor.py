"""The doctor on machines that aren't there: each test changes one fact of a fit machine."""

import importlib.metadata
import json
from dataclasses import replace

import pynvml
import pytest
import typer
from typer.testing import CliRunner

from grader import doctor
from grader.doctor import command, machine
from grader.doctor.machine import Machine, Package, Sandbox, Targets
from grader.doctor.report import Finding, Status
from grader.gpu import derived, hardware, targets
from grader.gpu.hardware import Card, Compiler, Driver, Gpu
from grader.gpu.unfit import COMPILER_PACKAGES

H200 = Card("NVIDIA H200", 140 * 2**30, (9, 0))
OLD_CARD = Card("Tesla V100", 16 * 2**30, (7, 0))
DRIVER = Driver(version="580.65.06", cuda=(13, 0), cards=(H200,))

FIT = Machine(
    python="3.11.2",
    executable="/venv/bin/python",
    requires_python=">=3.11,<3.14",
    packages=(
        Package("torch", "2.13.0+cu130", ">=2.11", "2.13.0", for_judging=True),
        Package("tilelang", "0.1.15", "==0.1.15", "0.1.15", for_judging=True),
        Package("jupyterlab", "4.6.6", ">=4.4", "4.6.6", for_judging=False),
        Package("nbgrader", "0.9.6", "<0.10,>=0.9.6", "0.9.6", for_judging=False),
    ),
    gpu=Gpu(driver=DRIVER, torch_cuda=(13, 0), compiler=Compiler("/cuda/bin/nvcc", (13, 0))),
    sandbox=Sandbox("/usr/bin/bwrap"),
    memory_free=16 * 2**30,
    folder="/home/ada/labs",
    disk_free=100 * 2**30,
    port_free=True,
    targets=Targets(origins=("measured 2026-11-29",)),
)
BARE = replace(FIT, gpu=Gpu(driver=None, torch_cuda=None, compiler=None))


def found(facts: Machine, name: str) -> Finding:
    (finding,) = [finding for finding in doctor.examine(facts).findings if finding.name == name]
    return finding


def with_gpu(**changes: object) -> Machine:
    return replace(FIT, gpu=replace(FIT.gpu, **changes))


def with_package(name: str, **changes: object) -> Machine:
    packages = tuple(replace(p, **changes) if p.name == name else p for p in FIT.packages)
    return replace(FIT, packages=packages)


def test_a_fit_machine_has_nothing_but_ok_and_its_card_judges() -> None:
    report = doctor.examine(FIT)
    assert {finding.status for finding in report.findings} == {Status.OK}
    assert report.device == "NVIDIA H200"
    assert report.fit


def test_without_a_gpu_the_machine_is_fit_and_the_simulator_judges() -> None:
    report = doctor.examine(BARE)
    assert report.fit
    assert report.device == "simulator"
    assert found(BARE, "gpu").status is Status.NOTE
    assert "run on the simulator" in found(BARE, "gpu").message
    assert found(BARE, "nvcc").status is Status.NOTE  # nothing waits for it


@pytest.mark.parametrize(
    ("facts", "status", "says"),
    [
        (with_gpu(driver=Driver(cuda=(13, 0), version="580")), Status.NOTE, "No NVIDIA GPU"),
        (with_gpu(driver=Driver(error="Driver Not Loaded")), Status.NOTE, "Driver Not Loaded"),
        (with_gpu(hidden=True), Status.NOTE, "CUDA_VISIBLE_DEVICES hides the NVIDIA H200"),
        (with_gpu(driver=replace(DRIVER, cards=(OLD_CARD,))), Status.NOTE, "compute capability 7.0"),
        (with_gpu(torch_cuda=None), Status.NOTE, "built without CUDA"),
        (
            with_gpu(driver=replace(DRIVER, cuda=(12, 4), version="550")),
            Status.PROBLEM,
            "The NVIDIA driver 550 supports CUDA 12.4; torch was built for CUDA 13.0. Update the driver to 580",
        ),
        (with_gpu(torch_cuda=(14, 0)), Status.PROBLEM, "Update the driver to one for CUDA 14"),
    ],
)
def test_a_card_that_cannot_judge_is_explained(facts: Machine, status: Status, says: str) -> None:
    finding = found(facts, "gpu")
    assert finding.status is status
    assert says in finding.message
    assert doctor.examine(facts).device == "simulator"


def test_a_driver_runs_older_builds_and_newer_minor_versions_of_its_own_cuda() -> None:
    assert found(with_gpu(driver=replace(DRIVER, cuda=(14, 0))), "gpu").status is Status.OK
    assert found(with_gpu(torch_cuda=(13, 4)), "gpu").status is Status.OK


def test_beside_an_old_card_the_new_one_judges() -> None:
    assert doctor.examine(with_gpu(driver=replace(DRIVER, cards=(OLD_CARD, H200)))).device == "NVIDIA H200"


@pytest.mark.parametrize(
    ("compiler", "says"),
    [
        (None, COMPILER_PACKAGES),
        (Compiler("/cuda/bin/nvcc", None, "No such file or directory"), "No such file or directory"),
        (
            Compiler("/cuda/bin/nvcc", (14, 1)),
            "nvcc 14.1 makes kernels that the driver 580.65.06 can't run: it supports CUDA 13.0",
        ),
    ],
)
def test_a_card_without_a_fitting_compiler_is_a_problem(compiler: Compiler | None, says: str) -> None:
    facts = with_gpu(compiler=compiler)
    assert found(facts, "nvcc").status is Status.PROBLEM
    assert says in found(facts, "nvcc").message
    assert doctor.examine(facts).device == "simulator"


@pytest.mark.parametrize(
    ("facts", "name", "status", "says"),
    [
        (with_package("torch", installed=None), "torch", Status.PROBLEM, "/venv/bin/python -m pip install -r"),
        (with_package("nbgrader", installed=None), "nbgrader", Status.NOTE, "can judge kernels, but"),
        (with_package("tilelang", installed="0.1.14"), "tilelang", Status.PROBLEM, "the labs need ==0.1.15"),
        (with_package("torch", installed="2.12.1+cu130"), "torch", Status.NOTE, "tested with 2.13.0"),
        (with_package("torch", installed="2.9.0", locked=""), "torch", Status.PROBLEM, "the labs need >=2.11"),
        (replace(FIT, python="3.14.0"), "python", Status.PROBLEM, "This is Python 3.14.0"),
        (replace(FIT, requires_python=""), "python", Status.PROBLEM, "make setup"),
        (replace(FIT, memory_free=2**30), "memory", Status.PROBLEM, "Only 1.0 GiB of memory"),
        (replace(FIT, memory_free=3 * 2**30), "memory", Status.NOTE, "one notebook at a time"),
        (replace(FIT, disk_free=10**8), "disk", Status.PROBLEM, "/home/ada/labs"),
        (replace(FIT, disk_free=2**30), "disk", Status.NOTE, "make room"),
        (replace(FIT, port_free=False), "port", Status.NOTE, "next free one"),
        (replace(FIT, sandbox=Sandbox(None)), "sandbox", Status.NOTE, "apt-get install bubblewrap"),
        (replace(FIT, sandbox=Sandbox("/usr/bin/bwrap", "denied")), "sandbox", Status.NOTE, "(denied)"),
        (replace(FIT, sandbox=Sandbox(None, in_container=True)), "sandbox", Status.NOTE, "container"),
    ],
)
def test_what_is_amiss_is_said_with_what_to_do(facts: Machine, name: str, status: Status, says: str) -> None:
    finding = found(facts, name)
    assert finding.status is status
    assert says in finding.message
    assert doctor.examine(facts).fit is (status is not Status.PROBLEM)


@pytest.mark.parametrize(
    ("known", "status", "says"),
    [
        (Targets(origins=("measured 2026-11-29",)), Status.OK, "measured 2026-11-29"),
        (Targets(origins=(derived.UNMEASURED,)), Status.NOTE, "'tilelab calibrate --keep' measures them"),
        (
            Targets(missing=("matmul",)),
            Status.NOTE,
            "no target for the NVIDIA H200 and matmul: run 'tilelab calib",
        ),
        (Targets(error="Targets: /x.toml: it is wrong."), Status.PROBLEM, "/x.toml"),
    ],
)
def test_where_the_cards_targets_are_from(known: Targets, status: Status, says: str) -> None:
    finding = found(replace(FIT, targets=known), "targets")
    assert finding.status is status
    assert says in finding.message


def test_a_card_whose_peak_is_unknown_is_named() -> None:
    def said(name: str) -> str:
        driver = replace(FIT.gpu.driver, cards=(replace(FIT.gpu.driver.cards[0], name=name),))
        return found(replace(FIT, gpu=replace(FIT.gpu, driver=driver)), "targets").message

    assert "peak is unknown" in said("NVIDIA H200 MIG 1g.18gb")
    assert "unknown" not in said("NVIDIA H200")


def test_without_a_card_targets_are_not_spoken_of() -> None:
    assert "targets" not in {finding.name for finding in doctor.examine(BARE).findings}


def test_the_targets_of_a_card_are_looked_up(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(targets.FILE_VARIABLE, raising=False)
    assert machine.look_at_targets(None) == Targets()
    measured = machine.look_at_targets(H200)
    (origin,) = measured.origins
    assert origin.startswith("measured")
    assert not measured.missing
    t4 = machine.look_at_targets(Card("Tesla T4", 16 * 2**30, (7, 5)))
    assert t4.origins == (derived.UNMEASURED,)
    # A share of the judge's own sweep follows from no datasheet.
    assert t4.missing == tuple(one.kernel for one in targets.asked() if one.of_sweep)
    unknown = machine.look_at_targets(replace(H200, name="NVIDIA H200 MIG 1g.18gb"))
    assert unknown.missing == tuple(one.kernel for one in targets.asked())
    monkeypatch.setenv(targets.FILE_VARIABLE, str(tmp_path / "none.toml"))
    assert "none.toml" in machine.look_at_targets(H200).error


# -- looking at the machine ---------------------------------------------------------------------------------


def nvml_fails_with(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)


def test_no_driver_library_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml_fails_with(monkeypatch, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    assert hardware.look_at_driver() is None
    assert doctor.device() == "simulator"


def test_a_driver_that_does_not_answer_is_kept_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml_fails_with(monkeypatch, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    assert hardware.look_at_driver() == Driver(error="Driver Not Loaded")


def test_a_missing_package_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "nbgrader":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    seen = {package.name: package for package in machine.look_at_packages()}
    assert seen["nbgrader"].installed is None
    assert not seen["nbgrader"].for_judging
    assert seen["tilelang"].installed == real("tilelang")
    assert seen["tilelang"].for_judging
    assert seen["tilelang"].wanted
    assert seen["tilelang"].locked


def test_a_compiler_that_does_not_run_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "bin").mkdir()
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'wrong architecture' >&2\nexit 3\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert hardware.look_at_compiler() == Compiler(str(nvcc), None, "wrong architecture")
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    assert hardware.look_at_compiler() == Compiler(str(nvcc), (13, 0))
    nvcc.unlink()
    assert hardware.look_at_compiler() is None


# -- the command --------------------------------------------------------------------------------------------


def invoke(monkeypatch: pytest.MonkeyPatch, facts: Machine, *arguments: str):
    monkeypatch.setattr(doctor, "inspect", lambda: facts)
    app = typer.Typer()
    app.command()(command.doctor)
    return CliRunner().invoke(app, arguments)


def test_exit_status_is_1_only_for_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke(monkeypatch, FIT).exit_code == 0
    assert invoke(monkeypatch, BARE).exit_code == 0
    assert invoke(monkeypatch, replace(FIT, memory_free=0)).exit_code == 1


def test_the_page_shows_every_finding_and_brackets_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = invoke(monkeypatch, replace(FIT, folder="/tmp/[red]x")).output
    for finding in doctor.examine(FIT).findings:
        assert finding.name in shown
    assert "/tmp/[red]x" in shown
    assert "Kernels are judged on the NVIDIA H200" in shown


def test_json_holds_all_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke(monkeypatch, replace(BARE, memory_free=0), "--json")
    assert result.exit_code == 1
    report = json.loads(result.output)
    assert report["fit"] is False
    assert report["device"] == "simulator"
    statuses = {finding["name"]: finding["status"] for finding in report["findings"]}
    assert statuses["memory"] == "problem"
    assert statuses["gpu"] == "note"


def test_this_machine_can_be_examined() -> None:
    report = doctor.run()
    assert {finding.name for finding in report.findings} >= {"python", "torch", "gpu", "nvcc", "sandbox", "memory"}
    assert all(finding.message for finding in report.findings)
