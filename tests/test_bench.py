"""``tilelab bench``: what is measured, what is made of a worker's report, and what is shown."""

import dataclasses
import importlib.metadata
import io
import os
from functools import partial
from pathlib import Path

import pytest
import torch
from bench_results import add_row, bench, estimate, wrong_row
from cells import MATMUL, VECTOR_ADD
from kernels import capture_of, matmul, vector_add
from rich.console import Console
from typer.testing import CliRunner

from grader import catalog
from grader.catalog import Group
from grader.classroom.reference import reference_notebook
from grader.cli.app import app
from grader.gpu import hardware, roofs, targets
from grader.gpu.compiler import Built, NotBuilt
from grader.gpu.hardware import Card
from grader.gpu.timing import Clock, Samples
from grader.judge import bench as judge
from grader.judge import bench_worker, peers, tasks
from grader.judge.workbench import Guarded, Workbench
from grader.report import bench as report
from grader.verdict import Unavailable, Unusable
from grader.verdict import bench as verdict
from grader.verdict.bench import CardState, Estimate, Row, Trouble, from_json, to_json

H200 = Card("NVIDIA H200", 141 * 2**30, (9, 0))
ADD, PRODUCT = catalog.find("lab01_vector_add"), catalog.find("lab02_matmul")
no_card = pytest.mark.skipif(hardware.judging_card() is not None, reason="there is a card here")


# The data


def test_a_measurement_survives_json():
    measured = bench(add_row(warnings=("shared",)), wrong_row())
    assert from_json(to_json(measured)) == measured


@pytest.mark.parametrize("text", ["", "{}", '{"rows": 3}', "[]"])
def test_what_is_no_measurement_is_refused(text):
    with pytest.raises(Unusable, match="no measurement"):
        from_json(text)


def test_another_format_is_refused():
    with pytest.raises(Unusable, match="another version"):
        from_json(to_json(dataclasses.replace(bench(add_row()), format="tilelab-bench/0")))


def test_complete_means_that_every_kernel_was_measured():
    assert bench(add_row()).complete
    assert not bench(add_row(), wrong_row()).complete
    assert not bench().complete


def test_a_row_without_figure_needs_a_reason():
    with pytest.raises(ValueError, match="measurement, or"):
        Row("lab", "kernel", "shape", "N = 1", "GB/s", 1, 1, 1.0)


def test_the_best_peer_is_the_fastest():
    assert add_row().measurement.best.name == "torch.add"


# From a worker's report to rows


@pytest.fixture
def scripted(monkeypatch):
    """Libraries whose names say what the worker on the card does with them."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setattr(judge, "MODULE", "scripted_bench_worker")

    def script(**does: str) -> None:
        def build_all(sources):
            for name, source in sources.items():
                assert source.arch == "sm_90a"
                what = does[name.split()[1]]
                if what == "uncompilable":
                    yield name, NotBuilt("InternalError", "Check failed: no layout", 1.0)
                else:
                    yield name, Built(Path(what), 1.0, False)

        monkeypatch.setattr(judge.compiler, "build_all", build_all)

    return script


def works(*labs: catalog.Lab):
    kernels = {ADD.id: vector_add, PRODUCT.id: matmul}
    return [(judge.chosen(lab, ()), capture_of(lab.id, kernels[lab.id])) for lab in labs]


def test_figures_follow_from_times(scripted):
    scripted(vector_add="measured")
    found = judge.run(works(ADD), H200, "here")
    (row,) = found.rows
    assert (row.lab, row.kernel, row.shape, row.unit) == (ADD.id, "vector_add", "large", "GB/s")
    assert (row.bytes, row.operations, row.intensity) == (12 * 2**28, 2**28, 1 / 12)
    measured = row.measurement
    # 12 · 2^28 bytes in 1 ms and in half of that; the datasheet says 4800 GB/s
    assert measured.kernel.rate == pytest.approx(3221.2, rel=1e-4)
    assert measured.kernel.of_peak == pytest.approx(3221.2 / 4800, rel=1e-4)
    add, missing = measured.peers
    assert add.speed.rate == pytest.approx(2 * 3221.2, rel=1e-4)
    assert add.ratio == Estimate(0.5, 0.495, 0.505)
    assert (missing.speed, missing.ratio, missing.note) == (None, None, "no compiler")
    assert (measured.rounds, measured.clock, measured.notes) == (77, "CUPTI", ("a note",))
    assert measured.state == CardState((1, 2), (3, 4), 5.0, (), ("process 7",), ())
    assert measured.warnings == ("the card was shared: process 7",)
    assert found.complete
    assert (found.card, found.source) == ("NVIDIA H200", "here")
    assert {"python", "torch", "tilelang"} <= set(found.versions)
    assert from_json(to_json(found)) == found


def test_versions_are_those_that_are_known(monkeypatch):
    def none(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", none)
    assert "python" in judge.versions()
    assert "torch" not in judge.versions()


@pytest.mark.parametrize(
    ("does", "trouble", "words"),
    [
        ("wrong", Trouble.WRONG, "C is wrong."),
        ("refused", Trouble.FAILED, "can't be launched"),
        ("crash", Trouble.FAILED, "illegal memory access"),
        ("lacking", Trouble.NOT_MEASURED, "too little memory"),
        ("uncompilable", Trouble.FAILED, "no layout"),
    ],
)
def test_trouble_costs_only_its_own_row(scripted, does, trouble, words):
    scripted(vector_add=does, matmul="measured")
    first, second = judge.run(works(ADD, PRODUCT), H200, "").rows
    assert (first.measurement, first.trouble) == (None, trouble)
    assert words in str(first.finding)
    assert second.trouble is None
    # 2 · 4096^3 operations in 1 ms
    assert second.measurement.kernel.rate == pytest.approx(137.4, rel=1e-3)


def test_what_is_not_admitted_is_said_and_never_compiled(scripted):
    scripted()
    capture = dataclasses.replace(capture_of(ADD.id, vector_add), traces=())
    (row,) = judge.run([(judge.chosen(ADD, ()), capture)], H200, "").rows
    assert row.trouble is Trouble.FAILED
    assert "not captured" in row.finding.message


@pytest.mark.parametrize(("does", "words"), [("ours", "ImportError"), ("silent", "without a word")])
def test_our_own_fault_is_no_kernels_and_leaves_the_other_rows(scripted, does, words):
    scripted(vector_add=does, matmul="measured")
    found = judge.run(works(ADD, PRODUCT), H200, "")
    ours, measured = found.rows
    assert (ours.measurement, ours.trouble) == (None, Trouble.OURS)
    assert "our fault" in ours.finding.message
    assert words in str(ours.finding.evidence)
    assert measured.measurement is not None
    assert found.judge_failed
    assert "judge failed" in report.plain(found)


def test_shapes_are_chosen_by_name():
    assert [s.name for s in judge.chosen(PRODUCT, ()).kernels[0].shapes] == ["4096"]
    assert [s.name for s in judge.chosen(PRODUCT, ("tail", "square")).kernels[0].shapes] == ["square", "tail"]
    with pytest.raises(Unusable, match="'long K'"):
        judge.chosen(PRODUCT, ("large",))


def test_sizes_of_ones_own_are_a_shape():
    sizes = {"M": 512, "N": 256, "K": 64}
    (shape,) = judge.chosen(PRODUCT, (sizes,)).kernels[0].shapes
    assert (shape.name, shape.sizes, shape.group) == ("M=512,N=256,K=64", sizes, Group.TIMED)
    for wrong in ({"M": 512}, sizes | {"L": 1}, sizes | {"K": 0}):
        with pytest.raises(Unusable, match=r"lab02_matmul has no shape '.*M=512"):
            judge.chosen(PRODUCT, (wrong,))


def test_of_all_labs_those_are_measured_that_have_such_a_shape():
    def ids(*names: judge.AskedShape) -> set[str]:
        return {lab.id for lab in judge.having(catalog.LABS, names)}

    timed = {lab.id for lab in catalog.LABS if any(kernel.group(Group.TIMED) for kernel in lab.kernels)}
    assert ids() == timed < {lab.id for lab in catalog.LABS}
    assert ids("4096") >= {"lab02_matmul", "lab03_schedules"}
    assert "lab01_vector_add" not in ids("4096")
    assert "lab01_vector_add" in ids({"N": 7})
    assert "lab02_matmul" not in ids({"N": 7})
    with pytest.raises(Unusable, match="No lab has a shape 'nowhere'"):
        ids("nowhere")


# The worker, without its card


@pytest.fixture
def bencher(monkeypatch, tmp_path):
    """A worker whose card is the CPU, and whose clock shows what it is told."""
    said: list[dict] = []

    class Report:
        folder = tmp_path

        def say(self, **line):
            said.append(line)

        def phase(self, name, limit, **more):
            said.append({"phase": name, "limit": limit, **more})

    def interleave(launches, *, prepare, seconds, enough, sets):
        for round_ in range(2 * sets):
            prepare(round_)
            for launch in launches:
                launch(round_)
        ms = tuple([1.0 + i] * 40 for i in range(len(launches)))
        samples = Samples(ms, Clock.EVENTS, 0.001, (0.01,) * len(launches))
        assert enough(samples)
        return samples

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**34, 2**35))
    monkeypatch.setattr(bench_worker, "Workbench", partial(Workbench, device="cpu"))
    monkeypatch.setattr(bench_worker, "Guarded", partial(Guarded, device="cpu"))
    monkeypatch.setattr(bench_worker.timing, "interleave", interleave)

    def run(launch, *named: peers.Peer) -> list[dict]:
        monkeypatch.setattr(bench_worker, "load", lambda library: launch)
        job = {"lab": ADD.id, "kernel": "vector_add", "shape": "odd", "sizes": {"N": 4097}, "group": "tails"}
        worker = bench_worker._Bencher(
            Report(), job | {"library": "x", "seed": "s", "uuid": "GPU-none", "seconds": 1.0}
        )
        worker.task = dataclasses.replace(worker.task, peers=named)
        worker.run()
        assert said.pop() == {"done": True}
        return [line for line in said if "phase" not in line]

    return run


def add(a, b, c):
    torch.add(a, b, out=c)


def test_the_worker_measures_a_right_kernel_beside_every_peer(bencher):
    def none(inputs, output):
        raise peers.Missing("not built")

    slow = peers.eager("slow", lambda a, b: b + a)
    stale = peers.writing("lazy", lambda inputs, output: None)
    (line,) = bencher(add, peers.Peer("none", none), slow, stale)
    measured = line["measured"]
    assert [row["name"] for row in measured["peers"]] == ["none", "slow", "lazy"]
    none_row, slow_row, lazy_row = measured["peers"]
    assert none_row == {"name": "none", "launch": None, "note": "not built"}
    assert slow_row == {"name": "slow", "launch": 1, "note": ""}
    assert lazy_row["launch"] == 2
    assert "'C' is never written" in lazy_row["note"]
    assert measured["ms"][0] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert measured["ratios"][1] == {"value": 2.0, "low": 2.0, "high": 2.0}
    assert measured["ratios"][2]["value"] == 3.0
    assert (measured["rounds"], measured["clock"]) == (40, "CUDA events")
    assert set(line["state"]) >= {"sm_mhz", "celsius", "slowed", "others"}


def test_the_worker_times_no_wrong_kernel(bencher):
    (line,) = bencher(lambda a, b, c: c.copy_(a), peers.eager("torch", torch.add))
    assert "elements of 'C' are wrong" in line["problem"]["message"]
    assert line["ran_wrong"]


def test_a_launchers_refusal_is_the_kernels_failure_and_no_fault_of_ours(bencher):
    def refuse(a, b, c):
        raise RuntimeError("CUDALaunch Error: CUDA_ERROR_INVALID_VALUE")

    (line,) = bencher(refuse, peers.eager("torch", torch.add))
    assert "can't be launched: CUDALaunch Error" in line["problem"]["message"]
    assert not line["ran_wrong"]


def test_a_kernel_that_is_right_only_before_it_is_timed_has_no_figure(bencher):
    calls = []

    def tires(a, b, c):
        calls.append(1)
        if len(calls) < 8:  # three families and three sets before the clock runs
            torch.add(a, b, out=c)

    (line,) = bencher(tires, peers.eager("torch", torch.add))
    assert "'C' is never written" in line["problem"]["message"]


def test_too_little_memory_is_said(bencher, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**20, 2**35))
    (line,) = bencher(add)
    assert "0.0 GiB of free memory" in line["lacking"]


# Roofs


def test_limits_are_of_the_works_kind():
    assert roofs.limits("NVIDIA H200", "add").peak == 4800.0
    assert roofs.limits("NVIDIA H200", "float16").peak == 989.5
    assert roofs.limits("NVIDIA X1", "add") == roofs.Limits(None, None)
    assert roofs.of_card("NVIDIA X1", ["add"]) == ()


def test_measured_ceilings_are_roofs_too(monkeypatch):
    ceilings = targets.Ceilings(
        "NVIDIA H200", "", {"copy": 4200.0, "add": 4300.0, "read": 4500.0}, {"float16": 750.0}, 5, 2, 2
    )
    monkeypatch.setattr(targets, "ceilings", lambda card: ceilings)
    assert roofs.limits("NVIDIA H200", "add").ceiling == 4300.0
    assert roofs.limits("NVIDIA H200", "bfloat16").ceiling is None
    found = roofs.of_card("NVIDIA H200", ["add", "float16", "float16", "bfloat16"])
    assert [(roof.name, roof.rate) for roof in found if roof.measured] == [
        ("memory", 4300.0),
        ("fp16 tensor cores", 750.0),
    ]
    assert [(roof.name, roof.rate) for roof in found if not roof.measured] == [
        ("memory", 4800.0),
        ("fp16 tensor cores", 989.5),
        ("bf16 tensor cores", 989.5),
        ("fp32 units", 67.0),
    ]


def test_every_tasks_ceiling_is_known():
    for found in tasks.TASKS.values():
        for task in found:
            assert roofs.limits("NVIDIA H200", task.ceiling).peak is not None


# What is shown


def test_plain_lines_are_aligned_and_hold_every_figure():
    lines = report.plain(bench(add_row(), wrong_row())).splitlines()
    title, head, work, kernel, fast, slow, _product, wrong = lines[:8]
    assert title == "Kernels beside libraries on NVIDIA H200"
    assert work == "vector_add, large (N = 250), in GB/s"
    assert kernel.split() == ["kernel", "1", "±", "0.2%", "3000", "75.0%", "62.5%"]
    assert fast.endswith("0.750 ± 0.2%")
    assert slow.endswith("1.500 ± 0.2%")
    assert {line.index("kernel") for line in (kernel, wrong)} == {head.index("launch")}
    assert wrong.split() == ["kernel", "wrong"]


def test_words_say_how_it_was_measured_and_with_what():
    said = "\n".join(report.words(bench(add_row(warnings=("the card was shared: process 7",)), wrong_row())))
    assert "400 rounds by CUDA events (less 1.7 µs)" in said
    assert "1700–1980 MHz, 58 °C, 640 W" in said
    assert "the card was shared: process 7" in said
    assert "wrong: 3 of 9 elements of 'C' are wrong." in said
    assert "the labs' solutions; 2026-01-02T03:04:05+00:00; driver 580.1, torch 2.13.0" in said


def test_an_unknown_peak_is_said():
    row = add_row()
    known = row.measurement.kernel
    unknown = dataclasses.replace(row.measurement, kernel=dataclasses.replace(known, of_peak=None))
    assert "Peak unknown" not in report.plain(bench(row))
    assert "Peak unknown (–)" in report.plain(bench(dataclasses.replace(row, measurement=unknown)))


def test_an_interval_that_stayed_wide_is_said():
    row = add_row()
    peer = dataclasses.replace(row.measurement.peers[0], ratio=estimate(0.75, 0.05), note="outside our bounds")
    measured = dataclasses.replace(row.measurement, peers=(peer,))
    assert report.warnings(measured) == [
        "torch.add: outside our bounds",
        "the ratio to torch.add is known to ±5.0% only: time was up",
    ]


@pytest.mark.parametrize(
    "task", [task for found in tasks.TASKS.values() for task in found], ids=lambda task: task.kernel
)
def test_the_table_fits_80_columns_with_every_name_in_one_piece(task):
    speed = verdict.Speed(estimate(0.12345), 1234.5, 1.0, 1.0)
    named = [verdict.Peer(peer.name, speed, estimate(1.2345)) for peer in task.peers]
    row = add_row()
    row = dataclasses.replace(row, measurement=dataclasses.replace(row.measurement, peers=tuple(named)))
    out = io.StringIO()
    report.show(bench(row, wrong_row()), Console(file=out, force_terminal=True, no_color=True, width=80))
    lines = out.getvalue().splitlines()
    for peer in task.peers:
        (line,) = (line for line in lines if line.strip().startswith(peer.name) and "±" in line)
        assert line.rstrip().endswith("1.234 ± 0.2%")


def test_a_notebook_gets_html():
    shown = report.page(bench(add_row(), wrong_row()))
    assert "vector_add, large (N = 250), in GB/s</th>" in shown
    assert "<td>0.750 ± 0.2%</td>" in shown
    assert "3 of 9 elements of &#x27;C&#x27; are wrong." in shown


def test_the_chart_holds_every_launch_at_its_intensity():
    chart = report.chart(bench(add_row(), wrong_row()))
    (work,) = chart.works
    assert [(point.name, point.figure) for point in work.points] == [
        ("kernel", "3000 GB/s"),
        ("torch.add", "4000 GB/s"),
        ("torch.compile", "2000 GB/s"),
    ]
    # 0.25 · 10^9 operations in 1 ms
    assert work.points[0].tflops == pytest.approx(0.25)
    assert {point.intensity for point in work.points} == {1 / 12}
    assert chart.left_out == ("matmul, 4096: wrong.",)


# The command


def command(*arguments: str):
    return CliRunner().invoke(app, ["bench", *arguments], catch_exceptions=False)


@no_card
def test_without_a_card_it_ends_before_anything_is_run(monkeypatch, tmp_path):
    def never(*_arguments):
        raise AssertionError("a notebook was run")

    monkeypatch.setattr("grader.capture.capture_notebook", never)
    with pytest.raises(Unavailable, match="There is no GPU here that could measure"):
        command("--json", str(tmp_path / "x.json"))
    assert not (tmp_path / "x.json").exists()


def test_a_plot_that_cannot_be_written_is_refused_before_anything_is_measured():
    with pytest.raises(Unusable, match="must end in"):
        command("--plot", "x.pdf")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lab", "lab99"], "There is no lab 'lab99'"),
        (["--shape", "huge"], "has no shape|No lab has a shape"),
        (["a.ipynb", "b.ipynb", "--lab", ADD.id], "name one notebook"),
        (["--from", "x.json", "--lab", ADD.id], "--from shows a measurement"),
    ],
)
def test_what_the_command_does_not_know_is_said(monkeypatch, arguments, words):
    monkeypatch.setattr(judge, "must_have_card", lambda: H200)
    with pytest.raises(Unusable, match=words):
        command(*arguments)


def test_without_solutions_it_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(judge, "must_have_card", lambda: H200)
    monkeypatch.setattr("grader.cli.benching.ROOT", tmp_path)
    with pytest.raises(Unavailable) as error:
        command()
    assert "tilelab bench NOTEBOOK" in error.value.finding.advice


def test_a_students_notebook_is_measured_like_a_solution(monkeypatch, notebook, scripted, tmp_path):
    monkeypatch.setattr(judge, "must_have_card", lambda: H200)
    scripted(vector_add="measured", matmul="wrong")
    path, kept, plot = notebook("mine", VECTOR_ADD), tmp_path / "bench.json", tmp_path / "bench.svg"
    shown = command(str(path), "--json", str(kept), "--plot", str(plot))
    assert shown.exit_code == 0, shown.output
    assert " 3221 " in shown.stdout
    measured = verdict.read(kept)
    assert (measured.source, [row.kernel for row in measured.rows]) == ("mine.ipynb", ["vector_add"])
    assert "vector_add, large" in plot.read_text()
    again = command("--from", str(kept), "--plot", str(tmp_path / "again.png"), "--dark")
    assert again.exit_code == 0
    assert " 3221 " in again.stdout
    assert (tmp_path / "again.png").exists()
    assert command(str(path), str(notebook("other", MATMUL))).exit_code == 1


def test_after_a_fault_of_ours_what_was_finished_is_shown_and_written(monkeypatch, notebook, scripted, tmp_path):
    monkeypatch.setattr(judge, "must_have_card", lambda: H200)
    scripted(vector_add="measured", matmul="ours")
    kept = tmp_path / "bench.json"
    shown = command(str(notebook("add", VECTOR_ADD)), str(notebook("product", MATMUL)), "--json", str(kept))
    assert shown.exit_code == 3
    assert " 3221 " in shown.stdout
    assert [row.trouble for row in verdict.read(kept).rows] == [None, Trouble.OURS]


def test_a_capture_is_measured_as_well(monkeypatch, scripted, tmp_path):
    monkeypatch.setattr(judge, "must_have_card", lambda: H200)
    scripted(vector_add="measured")
    capture = capture_of(ADD.id, vector_add)
    (tmp_path / "c.json").write_text(capture.to_json())
    assert " 3221 " in command(str(tmp_path / "c.json")).stdout
    (tmp_path / "old.json").write_text(dataclasses.replace(capture, lab_version=0).to_json())
    with pytest.raises(Unusable, match="version 0"):
        command(str(tmp_path / "old.json"))


def test_solutions_become_notebooks_that_hold_their_kernels(tmp_path):
    from grader.capture import read_notebook

    root = Path(__file__).parents[1]
    for lab in catalog.LABS:
        path = reference_notebook(root, lab, tmp_path)
        text = "\n".join(cell.source for cell in read_notebook(path).cells)
        assert all(f"def {kernel.name}(" in text for kernel in lab.kernels)
        assert "BEGIN SOLUTION" in text


# The student's door


def test_bench_in_a_session_shows_the_figures(monkeypatch, scripted, capsys):
    from grader import bench as door

    monkeypatch.setattr(judge, "must_have_card", lambda: H200)
    scripted(vector_add="measured")
    door(vector_add, block_N=512)
    assert " 3221 " in capsys.readouterr().out
    door(vector_add, shape={"N": 1000})
    assert "own (N = 1000)" in capsys.readouterr().out


@no_card
def test_bench_in_a_session_without_a_card_says_so(capsys):
    from grader import bench as door

    door(vector_add)
    assert "no GPU here that could measure" in capsys.readouterr().out


@pytest.mark.gpu
def test_a_solution_is_measured_beside_its_peers(tmp_path):
    kept = tmp_path / "bench.json"
    shown = command("--lab", PRODUCT.id, "--seconds", "3", "--json", str(kept), "--plot", str(tmp_path / "b.svg"))
    assert shown.exit_code == 0, shown.output
    (row,) = verdict.read(kept).rows
    (peer,) = row.measurement.peers
    assert 0.5 < peer.ratio.value < 1.5
    assert peer.ratio.low <= peer.ratio.value <= peer.ratio.high
    assert 0.1 < row.measurement.kernel.of_peak < 1
