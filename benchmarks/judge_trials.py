"""How far the judge's verdict on speed can be trusted: one right kernel, judged again and again on this card.

    python benchmarks/judge_trials.py CAPTURE [--trials 50] [--load] [--json FILE]

First the kernel's ratio to its peer is measured a few times; then it is judged at a target some per cent under
that (no verdict may be "failed") and some above (none may be "passed"). Each trial is a whole judgement at the
timed shape, with worker processes and repetitions of its own. With ``--load`` another process keeps the card busy
meanwhile, in three ways by turns: matrix products, copies, and bursts of products.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from grader import catalog
from grader.capture.format import read_capture
from grader.catalog import Group
from grader.gpu import hardware, targets
from grader.judge import on_card, tasks
from grader.judge.submission import Submission
from grader.verdict import Outcome

LOADER = """
import sys, time, torch
x = torch.randn(8192, 8192, device="cuda").half()
y, z = torch.randn(2**28, device="cuda"), torch.empty(2**28, device="cuda")
print("loads", flush=True)
while True:
    start = time.monotonic()
    while time.monotonic() - start < 0.3:
        for _ in range(10):
            z.copy_(y) if sys.argv[1] == "copies" else x @ x
        torch.cuda.synchronize()
    time.sleep(0.3 if sys.argv[1] == "bursts" else 0)
"""


class Trials:
    def __init__(self, capture: Path, at_once: int) -> None:
        captured = read_capture(capture)
        self.lab = catalog.find(captured.lab)
        (self.kernel,) = self.lab.kernels
        self.task = tasks.find(self.lab.id, self.kernel.name)
        (self.shape,) = self.kernel.group(Group.TIMED)
        self.card = hardware.judging_card()
        self.admitted = Submission(captured, self.lab, self.card, "trials").admitted(self.kernel.name, self.shape)
        self.target = targets.find(self.lab.id, self.kernel.name, self.shape.name, self.card.name)
        self.at_once = at_once

    def judge(self, seed: str, target: targets.Target) -> dict:
        start = time.monotonic()
        session = on_card.launch(
            self.lab,
            self.task,
            {self.shape.name: self.admitted},
            seed,
            self.card,
            {self.shape.name: target},
            lambda line: None,
        )
        verdict = on_card.fast(session, self.task, self.shape, target)
        timing = session.timings.get(self.shape.name)
        return {
            "outcome": verdict.outcome,
            "findings": [(finding.message, finding.evidence) for finding in verdict.findings],
            "timing": None if timing is None else timing.report,
            "state": None if timing is None else timing.state.__dict__,
            "tries": 1 if timing is None else timing.tries,
            "seconds": time.monotonic() - start,
        }

    def at(self, rate: float, count: int, name: str) -> list[dict]:
        """``count`` judgements with all points from ``rate`` on."""
        target = replace(self.target, tiers=(targets.Tier(rate, 1.0),))
        with ThreadPoolExecutor(self.at_once) as pool:
            return list(pool.map(lambda number: self.judge(f"{name} {number}", target), range(count)))


@contextlib.contextmanager
def load(kind: str):
    process = subprocess.Popen([sys.executable, "-c", LOADER, kind], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.wait()


def row(name: str, found: list[dict]) -> str:
    outcomes = Counter(trial["outcome"] for trial in found)
    ratios = [trial["timing"]["ratio"] for trial in found if trial["timing"]]
    cells = [
        name,
        len(found),
        *(outcomes[word] for word in (Outcome.PASSED, Outcome.FAILED, Outcome.INCONCLUSIVE)),
    ]
    cells += [f"{min(ratios):.4f}–{max(ratios):.4f}", f"{statistics.median(ratios):.4f}"]
    cells += [
        f"{statistics.stdev(ratios) / statistics.mean(ratios):.2%}" if len(ratios) > 1 else "",
        f"{statistics.median(trial['tries'] for trial in found):.0f}",
        f"{statistics.median(trial['timing']['rounds'] for trial in found if trial['timing']):.0f}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("capture", type=Path)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--margin", type=float, default=0.03)
    parser.add_argument("--at-once", type=int, default=6, help="trials whose processes are alive together")
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--ratio", type=float, help="the kernel's, from an earlier run; else it is measured first")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    trials = Trials(asked.capture, asked.at_once)
    found = {}
    ratio = asked.ratio
    if ratio is None:
        found["first"] = trials.at(trials.target.peer_rate / 2, 6, "median")
        ratio = statistics.median(trial["timing"]["ratio"] for trial in found["first"])
    rate = ratio * trials.target.peer_rate
    print(f"{trials.card.name}; {trials.lab.id}, {trials.shape}; ratio {ratio:.4f} to {trials.target.peer}")
    print("| target | trials | passed | failed | inconclusive | ratios | median | sigma | tries | rounds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    loads = ("products", "copies", "bursts") if asked.load else (None,)
    for number, kind in enumerate(loads):
        with load(kind) if kind else contextlib.nullcontext():
            share = asked.trials // len(loads) + (number < asked.trials % len(loads))
            for sign, word in ((-1, "under"), (1, "above")):
                name = f"{asked.margin:.0%} {word}" + (f", {kind}" if kind else "")
                found[name] = trials.at(rate * (1 + sign * asked.margin), share, name)
                print(row(name, found[name]), flush=True)
                if asked.json:
                    asked.json.write_text(json.dumps(found))
    seconds = [trial["seconds"] for rows in found.values() for trial in rows]
    print(f"a judgement took {statistics.median(seconds):.1f} s (median, {asked.at_once} at once)")


if __name__ == "__main__":
    main()
