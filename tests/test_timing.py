"""What is made of times: intervals that hold, and when a measurement ends. Clock and card are simulated."""

import math
import random
from types import SimpleNamespace

import pytest

from grader import catalog
from grader.gpu import timing
from grader.gpu.state import State
from grader.gpu.targets import Target, Tier
from grader.gpu.timing import FEWEST, LEAST_ROUNDS, MOST_ROUNDS, Clock, Samples, median_interval
from grader.judge import tasks
from grader.judge.card_worker import decided
from grader.judge.speed import decide, figures_of
from grader.verdict import Outcome


def at_most(heads: int, coins: int) -> float:
    return sum(math.comb(coins, count) for count in range(heads + 1)) / 2**coins


@pytest.mark.parametrize("n", [*range(FEWEST, 60), 99, 100, 500, 2000])
def test_an_interval_errs_on_either_side_at_most_in_one_of_forty_and_is_no_wider_than_that(n):
    low, high = median_interval(range(n))
    assert high == n - 1 - low
    assert at_most(low, n) <= 0.025 < at_most(low + 1, n)


def test_an_interval_holds_the_true_median_of_skewed_times_as_often_as_it_says():
    draw = random.Random(1)
    held = 0
    for _ in range(2000):
        low, high = median_interval(sorted(draw.lognormvariate(0, 0.5) for _ in range(37)))
        held += low <= 1.0 <= high
    assert 0.94 < held / 2000 < 0.985


def test_a_handful_of_values_has_no_interval():
    with pytest.raises(ValueError, match="5 values"):
        median_interval([1.0] * (FEWEST - 1))


class Card:
    """A clock that goes on by what launches take, in seconds; CUPTI loses sight of the card at some batch."""

    def __init__(self, monkeypatch, *seconds: float, looking: float = 0.0, cupti: int | None = None):
        self.now, self.seconds, self.looking, self.left = 0.0, seconds, looking, cupti
        self.by = []
        monkeypatch.setattr(timing, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(timing, "_Flush", lambda: SimpleNamespace(milliseconds=1e9))
        monkeypatch.setattr(
            timing._Loop, "_batch_by_events", lambda loop, rounds: self.run(loop, rounds, "events")
        )
        monkeypatch.setattr(timing._Loop, "_batch_by_cupti", lambda loop, n: self.by_cupti(loop, n))  # noqa: PLW0108  to be bound

    def run(self, loop, rounds, by):
        self.by.append(by)
        for times, own, seconds in zip(loop.ms, loop.host, self.seconds, strict=True):
            times.extend([seconds * 1e3] * rounds)
            own.extend([0.0] * rounds)
            self.now += seconds * rounds
        loop.round += rounds

    def by_cupti(self, loop, rounds):
        if not self.left:
            raise timing._NoCupti("0 of 15 launches were seen")
        self.left -= 1
        self.run(loop, rounds, "CUPTI")

    def time(self, seconds: float, enough=lambda samples: True):
        def look(_rounds):
            self.now += self.looking

        return timing.interleave(
            [lambda r: None] * len(self.seconds), seconds=seconds, enough=enough, after_batch=look
        )


def test_launches_of_seconds_are_run_often_enough_for_an_interval(monkeypatch):
    samples = Card(monkeypatch, 3.0, 0.001).time(8.0)
    assert samples.rounds == FEWEST
    assert samples.ratio(0, 1) == pytest.approx((1 / 3000,) * 3)


def test_it_ends_as_soon_as_it_may_and_with_the_time_at_the_latest(monkeypatch):
    assert LEAST_ROUNDS <= Card(monkeypatch, 0.01, 0.01).time(8.0).rounds < 60
    never = Card(monkeypatch, 0.01, 0.01).time(8.0, enough=lambda samples: False)
    assert 390 <= never.rounds <= 420
    assert Card(monkeypatch, 1e-4, 1e-4).time(8.0, enough=lambda samples: False).rounds >= MOST_ROUNDS


def test_what_the_judge_looks_at_in_between_takes_no_time_from_the_measurement(monkeypatch):
    """A reference in float64 takes seconds on a card that is slow at it."""
    assert Card(monkeypatch, 0.01, 0.01, looking=3.0).time(8.0, enough=lambda samples: False).rounds >= 390


@pytest.mark.parametrize(("seen", "clock"), [(0, Clock.EVENTS), (3, Clock.EVENTS), (10**6, Clock.CUPTI)])
def test_without_cupti_it_goes_on_by_events_and_never_mixes_the_two(monkeypatch, seen, clock):
    card = Card(monkeypatch, 1e-5, 1e-5, cupti=seen)
    samples = card.time(0.6)
    assert samples.clock is clock
    assert len(samples.notes) == (clock is Clock.EVENTS)
    if seen == 3:
        after = len(card.by) - card.by[::-1].index("CUPTI")
        assert 0 < after < len(card.by)
        assert LEAST_ROUNDS <= samples.rounds <= 15 * (len(card.by) - after)


# Who decides


TASK = tasks.find("lab02_matmul", "matmul")
SHAPE = catalog.find("lab02_matmul").kernel("matmul").shape("4096")
TARGET = Target(
    "lab02_matmul", "matmul", "4096", "X", "TFLOP/s", "p", 100.0, 1e9, (Tier(50, 0.5), Tier(80, 1)), "o"
)


@pytest.mark.parametrize("low", [0.4990 + 0.0001 * step for step in range(30)])
@pytest.mark.parametrize("width", [0.0, 0.0005, 0.003])
def test_the_worker_stops_early_only_where_the_judge_can_decide(low, width):
    high = low + width
    timing_ = {"kernel_ms": 2.0, "peer_ms": 1.0, "ratio": (low + high) / 2, "low": low, "high": high, "rounds": 30}
    figures = figures_of(timing_ | {"peer": "p", "clock": "c"}, State(), TASK, SHAPE, TARGET)
    thresholds = [tier.at / TARGET.peer_rate for tier in TARGET.tiers]
    assert decided(thresholds, low, high) is (decide(figures, TARGET).outcome is not Outcome.INCONCLUSIVE)


def test_a_library_that_is_slow_to_launch_does_not_make_the_card_a_busy_one():
    quiet, late = [1.0] * 100, [1.0] * 95 + [2.0] * 5

    def disturbed(*ms: list[float]) -> float:
        return Samples(ms, Clock.EVENTS, 0.0, (0.0,) * len(ms)).disturbed()

    assert disturbed(quiet, late) == disturbed(late, quiet) == 0.0
    assert disturbed(quiet, late, quiet) == 0.0
    assert disturbed(late, late) == disturbed(late, late, late, quiet) == 0.05
    assert disturbed(late) == 0.05
