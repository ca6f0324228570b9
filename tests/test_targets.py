"""Targets: what labs ask, what follows for cards, and a teacher's own file."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader import catalog
from grader.catalog import Group
from grader.gpu import derived, target_file, target_writer, targets
from grader.gpu.targets import Ceilings, Tier
from grader.judge.tasks import TASKS
from grader.verdict import Unavailable

ADD = ("lab01_vector_add", "vector_add", "large")
MATMUL = ("lab02_matmul", "matmul", "4096")
(ADD_ASKED,) = (one for one in targets.asked() if one.key == ADD)

SWEEP = target_file.Sweep(rate=480.04, schedule={"block_M": 128})

ROW = """
[[target]]
lab = "lab01_vector_add"
kernel = "vector_add"
shape = "large"
card = "NVIDIA L4"
unit = "GB/s"
peer = "torch.compile"
peer_rate = 250.0
tiers = [{at = 100.0, share = 0.25}, {at = 200.0, share = 1.0}]
origin = "by hand"
"""
MEASURED = """
[measured."NVIDIA L4"]
origin = "by hand"
bandwidth = {read = 270.0, fill = 280.0, copy = 250.0, add = 260.0}
matmul = {float16 = 90.0}
launch_us = 4.0
kernel_us = 1.5
event_us = 3.0
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Writes a teacher's file, named by the variable."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def write(text: str):
        path = tmp_path / "mine.toml"
        path.write_text(text)
        monkeypatch.setenv(targets.FILE_VARIABLE, str(path))
        return path

    return write


# The package's rows


def test_what_is_asked_is_what_the_tasks_are():
    asked = {one.key: one for one in targets.asked()}
    timed = [
        (lab.id, kernel.name, shape.name)
        for lab in catalog.LABS
        for kernel in lab.kernels
        for shape in kernel.group(Group.TIMED)
    ]
    assert list(asked) == timed
    for lab, tasks in TASKS.items():
        for task in tasks:
            for one in (one for one in targets.asked() if one.key[:2] == (lab, task.kernel)):
                assert one.unit == task.unit
                assert one.ceiling == task.ceiling
                assert one.peers == tuple(peer.name for peer in task.peers)


def test_the_unmeasured_rows_are_what_the_datasheets_give():
    unmeasured = [row for row in target_file.read(targets.PACKAGED).target if row.origin == derived.UNMEASURED]
    assert tuple(unmeasured) == derived.from_datasheets()
    assert {row.card for row in unmeasured} == set(derived.CARDS)


def test_every_row_of_the_package_is_the_labs_shares_of_its_peers_rate():
    asked = {one.key: one for one in targets.asked()}
    for row in target_file.read(targets.PACKAGED).target:
        one = asked[row.lab, row.kernel, row.shape]
        assert row == derived.row(one, row.card, row.peer, row.peer_rate, row.origin, row.sweep)
        assert row.peer in one.peers


def test_the_measured_card_has_measured_rows_of_all_that_is_asked():
    """A new lab's rows come from 'tilelab calibrate' on that card, and grader.gpu.target_writer."""
    assert [row.key for row in targets.of_card(derived.MEASURED_CARD)] == [one.key for one in targets.asked()]
    assert all(row.origin.startswith("measured") for row in targets.of_card(derived.MEASURED_CARD))


def test_a_datasheets_row_takes_the_same_share_of_the_peak():
    measured, t4 = targets.find(*ADD, "NVIDIA H200"), targets.find(*ADD, "Tesla T4")
    assert (measured.peak, t4.peak) == (4800.0, 320.0)
    assert t4.peer_rate == pytest.approx(measured.peer_rate / 4800 * 320, rel=1e-3)


@given(st.floats(1.0, 1e5))
def test_tiers_are_rounded_down_and_never_by_more_than_a_hundredth(rate):
    row = derived.row(ADD_ASKED, "card", "torch.add", rate, "test")
    for tier, (of_peer, share) in zip(row.tiers, ADD_ASKED.tiers, strict=True):
        assert tier.share == share
        assert 0.99 * of_peer * row.peer_rate < tier.at <= of_peer * row.peer_rate * (1 + 1e-12)


def test_a_share_that_is_exact_is_not_rounded_past():
    assert [tier.at for tier in derived.row(ADD_ASKED, "card", "torch.add", 4350.0, "test").tiers] == [
        2610.0,
        3910.0,
    ]


# A teacher's file


def test_a_teachers_row_goes_before_the_packages_and_leaves_the_others(own):
    own(ROW + MEASURED)
    row = targets.find(*ADD, "NVIDIA L4")
    assert (row.peer, row.peer_rate, row.full, row.origin) == ("torch.compile", 250.0, 200.0, "by hand")
    assert (row.peak, row.ceiling) == (300.0, 260.0)
    assert row.tiers == (Tier(100.0, 0.25), Tier(200.0, 1.0))
    other = targets.find(*MATMUL, "NVIDIA L4")
    assert other.origin == derived.UNMEASURED
    assert other.ceiling == 90.0
    assert targets.ceilings("NVIDIA L4").of("copy") == 250.0
    assert targets.find(*ADD, "NVIDIA H200").origin.startswith("measured")


def test_the_teachers_file_is_found_in_the_configuration(tmp_path, monkeypatch):
    monkeypatch.delenv(targets.FILE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert targets.find(*ADD, "NVIDIA L4").origin == derived.UNMEASURED
    path = tmp_path / "tilelab" / "targets.toml"
    path.parent.mkdir()
    path.write_text(ROW)
    assert targets.find(*ADD, "NVIDIA L4").origin == "by hand"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert str(targets.teachers_file()) == "/home/ada/.config/tilelab/targets.toml"


def test_a_card_that_nobody_knows_has_neither_row_nor_ceiling_and_no_peak(own):
    assert targets.find(*ADD, "NVIDIA H100 80GB HBM3 MIG 1g.10gb") is None
    assert targets.ceilings("GeForce 256") is None
    own(ROW.replace("NVIDIA L4", "GeForce 256"))
    row = targets.find(*ADD, "GeForce 256")
    assert (row.peak, row.ceiling) == (None, None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[target]", "Expected ']]'"),
        (
            ROW.replace("peer_rate = 250.0\n", ""),
            "target 1 (lab01_vector_add, NVIDIA L4), peer_rate: Field required",
        ),
        (ROW.replace("250.0", '"fast"'), "peer_rate: Input should be a valid number"),
        (ROW.replace("250.0", "nan"), "peer_rate: Input should be"),
        (ROW.replace("250.0", "-1.0"), "peer_rate: Input should be greater than 0"),
        (ROW + "color = 1\n", "color: Extra inputs are not permitted"),
        (ROW.replace("GB/s", "MB/s"), "unit: Input should be"),
        (ROW.replace("GB/s", "TFLOP/s"), "unit: it must be GB/s"),
        (ROW.replace("torch.compile", "numpy"), "peer: it must be one of: torch.add, torch.compile"),
        (ROW.replace('"large"', '"huge"'), "no kernel is timed under these names"),
        (ROW.replace("at = 200.0", "at = 90.0"), "tiers: they must rise, to a share of 1"),
        (ROW.replace("share = 1.0", "share = 0.9"), "tiers: they must rise, to a share of 1"),
        (ROW.replace("share = 1.0", "share = 1.5"), "tiers 2, share: Input should be less than or equal to 1"),
        (ROW + ROW, "there are two rows for this"),
        (MEASURED.replace("fill", "write"), "measured, NVIDIA L4, bandwidth"),
        ("target = 3\n", "target: Input should be a valid tuple"),
        ("target = [3]\n", "target 1: Input should be"),
        (targets.PACKAGED.read_text(), "asked: what the labs ask stands in the package only"),
    ],
)
def test_a_slip_in_a_teachers_file_is_said_with_its_place(own, text, says):
    path = own(text)
    with pytest.raises(Unavailable) as error:
        targets.find(*ADD, "NVIDIA L4")
    assert str(path) in error.value.finding.message
    assert says in error.value.finding.message
    assert error.value.finding.advice


def test_a_named_file_must_be_there(monkeypatch, tmp_path):
    monkeypatch.setenv(targets.FILE_VARIABLE, str(tmp_path / "none.toml"))
    with pytest.raises(Unavailable, match=r"none\.toml: No such file"):
        targets.find(*ADD, "NVIDIA L4")


# Writing


def test_what_is_written_can_be_read_and_leaves_other_cards_and_comments(own):
    row = derived.row(ADD_ASKED, "NVIDIA A40", "torch.add", 600.0, "measured today")
    ceilings = Ceilings("NVIDIA A40", "measured today", {"add": 610.0}, {"float16": 120.0}, 4.0, 1.5, 3.0)
    text = target_writer.merged("# mine\n" + ROW + MEASURED, [ceilings], [row])
    assert text.startswith("# mine\n")
    own(text)
    assert targets.find(*ADD, "NVIDIA L4").origin == "by hand"
    assert targets.ceilings("NVIDIA L4").origin == "by hand"
    assert targets.find(*ADD, "NVIDIA A40").tiers == (Tier(360.0, 0.5), Tier(540.0, 1.0))
    assert targets.find(*ADD, "NVIDIA A40").ceiling == 610.0
    assert targets.ceilings("NVIDIA A40") == ceilings
    again = target_writer.merged(text, [ceilings], [derived.row(ADD_ASKED, "NVIDIA A40", "torch.add", 700.0, "x")])
    own(again)
    assert targets.find(*ADD, "NVIDIA A40").peer_rate == 700.0
    assert again.count("NVIDIA A40") == text.count("NVIDIA A40") == 2


def test_a_new_file_is_whole(own):
    own(target_writer.merged("", [], [derived.row(ADD_ASKED, "NVIDIA A40", "torch.add", 600.0, "x")]))
    assert targets.find(*ADD, "NVIDIA A40").peer_rate == 600.0


def test_the_packages_file_is_written_as_it_stands_if_nothing_is_new():
    assert target_writer.packaged([], []) == targets.PACKAGED.read_text()


def test_newly_measured_rows_change_the_unmeasured_ones():
    row = derived.row(ADD_ASKED, derived.MEASURED_CARD, "torch.add", 2400.0, "measured anew")
    others = [
        derived.row(
            one, derived.MEASURED_CARD, one.peers[0], 500.0, "measured anew", SWEEP if one.of_sweep else None
        )
        for one in targets.asked()
        if one.key != ADD
    ]
    found = tomllib.loads(target_writer.packaged([], [row, *others]))["target"]
    rates = {(entry["card"], entry["lab"]): entry["peer_rate"] for entry in found}
    assert rates["NVIDIA H200", ADD[0]] == 2400.0
    assert rates["NVIDIA L4", ADD[0]] == 150.0  # half of the peak, as there
    # Which schedule is the best is in no datasheet: shares of a sweep are asked where one was measured.
    swept = [entry for entry in found if "sweep" in entry]
    assert {entry["card"] for entry in swept} == {derived.MEASURED_CARD}
    assert [entry["lab"] for entry in swept] == [one.lab for one in targets.asked() if one.of_sweep]
    for entry in swept:
        assert entry["sweep"] == {"rate": 480.0, "schedule": {"block_M": 128}}
        assert [tier["at"] for tier in entry["tiers"]] == [336.0, 446.0]


def test_of_a_link_the_file_that_it_points_to_is_written(tmp_path):
    kept, link = tmp_path / "dotfiles" / "targets.toml", tmp_path / "targets.toml"
    link.symlink_to(Path("dotfiles", "targets.toml"))
    for text in ("new", "newer"):  # the first time it points to nothing yet
        target_writer.write(link, text)
        assert link.is_symlink()
        assert kept.read_text() == text
    assert [file.name for file in kept.parent.iterdir()] == ["targets.toml"]


def test_an_interrupted_writer_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "targets.toml"
    path.write_text("old")

    def interrupted(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(target_writer.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        target_writer.write(path, "new")
    assert [file.name for file in tmp_path.iterdir()] == ["targets.toml"]
    assert path.read_text() == "old"
    monkeypatch.undo()
    target_writer.write(tmp_path / "new folder" / "targets.toml", "new")
    assert (tmp_path / "new folder" / "targets.toml").read_text() == "new"
