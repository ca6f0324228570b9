"""What people read: four words, causes told once, nothing of a student's shown as markup."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from grader import verdict
from grader.report import notebook, roofline, terminal, words
from grader.report.text import describe
from grader.verdict import Assessment, Check, Figures, Finding, Location, Outcome, Verdict, traffic
from grader.verdict.traffic import (
    Bound,
    BufferTraffic,
    CardBounds,
    Copies,
    Counted,
    Kind,
    Operations,
    Traffic,
)

WHERE = Location("code cell 2", 9, "C[i] = A[i] # [bold]<b>")
FINDING = Finding("It is [red]wrong[/red] & <i>so</i>.", "Try again.", WHERE, ("C[0] is 1, should be 2",))
FIGURES = Figures("N = 1", "GB/s", 4382.0, 0.735, "torch.add", 4370.0, 1.0027, 1.001, 1.004, 25, 4362.0, 3900.0)


def check(outcome: Outcome, points: float = 0.0, *findings: Finding, figures: tuple[Figures, ...] = ()) -> Check:
    return Check(f"test_{outcome}", f"Title of {outcome}", "k-right", outcome, points, 10.0, findings, figures)


JUDGED = Verdict(
    lab="lab02_matmul",
    device="simulator",
    checks=(
        check(Outcome.PASSED, 10.0, figures=(FIGURES,)),
        check(Outcome.FAILED, 0.0, FINDING),
        check(Outcome.FAILED, 0.0, FINDING),
        check(Outcome.INCONCLUSIVE),
        check(Outcome.NOT_ASSESSED),
    ),
    notes=(Finding("A cell raised."),),
)


def shown(judged: Verdict) -> str:
    out = io.StringIO()
    terminal.show(judged, Console(file=out, width=120))
    return out.getvalue()


def test_only_passed_earns_and_the_undecided_waits():
    assert (JUDGED.points, JUDGED.max_points, JUDGED.waiting, JUDGED.assessed_max) == (10.0, 50.0, 20.0, 30.0)
    assert not JUDGED.passed
    assert not Verdict("x", "simulator", ()).passed
    assert not Verdict("x", "simulator", (check(Outcome.NOT_ASSESSED),)).passed
    free = replace(check(Outcome.PASSED, 10.0), free=True)
    assert not Verdict("x", "simulator", (free, check(Outcome.NOT_ASSESSED))).passed
    assert Verdict("x", "simulator", (free, check(Outcome.PASSED, 10.0))).passed


def test_what_was_measured_too_noisily_does_not_wait_for_a_gpu():
    judged = replace(
        JUDGED, device="NVIDIA H200", checks=(check(Outcome.PASSED, 10.0), check(Outcome.INCONCLUSIVE))
    )
    assert words.summary(judged) == "10 of 10 assessed points; 10 are still open."
    assert words.summary(replace(judged, checks=judged.checks[1:])).endswith("of the points, 10 are still open.")
    assert words.summary(JUDGED) == "10 of 30 assessed points; 20 wait for a GPU."


def test_a_verdict_survives_json():
    assert verdict.from_json(verdict.to_json(JUDGED)) == JUDGED


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_of_points_lies_between_0_and_1(share):
    with pytest.raises(ValueError, match="share"):
        Assessment(Outcome.PASSED, share=share)


def test_each_outcome_has_its_word_and_its_mark():
    page, text = notebook.render(JUDGED), shown(JUDGED)
    for outcome in Outcome:
        assert f"{words.MARK[outcome]} {outcome}" in page
        assert f"{words.MARK[outcome]} {outcome}" in text


def test_a_cause_is_told_once():
    for page in (notebook.render(JUDGED), shown(JUDGED)):
        assert page.count("Try again.") == 1
        assert page.count("For the same reason as above.") == 1


def test_a_cause_of_another_kernel_is_told_with_its_name():
    def failed(cell: str) -> Check:
        return replace(check(Outcome.FAILED, 0.0, FINDING), cell=cell)

    cells = ("attention-right", "causal_attention-right", "causal_attention-fast")
    judged = replace(JUDGED, checks=tuple(map(failed, cells)))
    told = [[finding.message for finding in findings] for _check, findings in words.told(judged)]
    assert told == [
        [FINDING.message],
        ["causal_attention: for the same reason as attention above."],
        ["causal_attention: for the same reason as attention above."],
    ]


def test_a_students_text_is_no_markup():
    assert "<i>" not in notebook.render(JUDGED)
    assert "&lt;i&gt;so&lt;/i&gt;" in notebook.render(JUDGED)
    assert "[red]wrong[/red]" in shown(JUDGED)
    assert "C[i] = A[i] # [bold]<b>" in shown(JUDGED)


def test_control_characters_do_not_reach_the_terminal():
    evil = Finding("\x1b[2J70 of 70", "\x1b]52;c;eA==\x07", Location("code cell 1", 1, "x = '\x9b31m'"), ("\r0",))
    for text in (describe(evil), shown(replace(JUDGED, notes=(evil,)))):
        assert not [c for c in text if not c.isprintable() and c != "\n"]


def test_figures_stand_beside_their_peer_and_target():
    line = words.figures(FIGURES)
    assert line == (
        "4382 GB/s in 0.735 ms; torch.add 4370; ratio 1.003 (1.001–1.004, 25 runs); counts as 4362, target 3900"
    )


def test_a_finding_as_text_says_what_where_and_what_to_try():
    assert describe(FINDING).splitlines() == [
        "It is [red]wrong[/red] & <i>so</i>.",
        "  code cell 2, line 9: C[i] = A[i] # [bold]<b>",
        "  C[0] is 1, should be 2",
        "  → Try again.",
    ]


COUNTED = Counted(
    lab="lab02_matmul",
    kernel="matmul",
    shape="M = 64",
    traffic=Traffic(
        buffers=(
            BufferTraffic("A[red]<i>\x1b", "global", 1024, 3072, 0, 768, 0),
            BufferTraffic("tile", "shared", 512, 2048, 1536),
        ),
        operations=(Operations(Kind.GEMM, "float16", 1_234_567), Operations(Kind.FUNCTION, "float32", 89)),
        copies=(Copies("global", "shared", 3072),),
        blocks=4,
        threads=128,
        shared=512,
        staged=1536,
        guarded=0,
    ),
    cards=(
        CardBounds(
            "Good", Bound("Good", 2.5e-6, "memory", 1.0, 800.0), Bound("Good", 5e-4, "tensor cores", 1009.3, 3.0)
        ),
        CardBounds("Old", None, None, "no tensor cores for float16"),
    ),
)


def test_traffic_and_its_bounds_are_told_in_the_terminal_and_as_a_page():
    said = (
        "1 KiB",
        "3 KiB",
        "1.5 KiB",
        "1,234,567",
        "89",
        "global → shared",
        "2.5 µs (800 GB/s)",
        "500 µs (1009 TFLOP/s)",
    )
    said += (
        "tensor cores",
        "no tensor cores for float16",
        "4 blocks of 128 threads",
        "512 B, up to 1.5 KiB",
        "401.9 FLOP",
    )
    for text in (roofline.plain(COUNTED), roofline.page(COUNTED)):
        for part in said:
            assert part in text
        assert "\x1b" not in text
    assert "A[red]<i>?" in roofline.plain(COUNTED)
    assert "A[red]&lt;i&gt;?" in roofline.page(COUNTED)
    (row,) = [line for line in roofline.plain(COUNTED).splitlines() if "A[red]" in line]
    assert row.split("│")[-2].strip() == "4"  # 3072 bytes read, 768 of them distinct


def test_counts_survive_json():
    assert traffic.from_json(traffic.to_json(COUNTED)) == COUNTED


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.0, "2 s"), (0.012, "12 ms"), (3.456e-6, "3.46 µs"), (7e-9, "7 ns"), (2e-11, "0.02 ns")],
)
def test_durations_have_their_unit(seconds, text):
    assert roofline.duration(seconds) == text
