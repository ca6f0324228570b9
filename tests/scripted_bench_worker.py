"""A worker that does what its library's name says: stands in for the one that measures on the card.

python -m scripted_bench_worker FOLDER PARENT
"""

import sys
from dataclasses import asdict
from pathlib import Path

from grader.gpu.state import State
from grader.judge.worker_process import receive


def estimate(value: float) -> dict[str, float]:
    return {"value": value, "low": value * 0.99, "high": value * 1.01}


def main() -> None:
    report, job = receive()
    report.phase("preparing", 300.0)
    match Path(job["library"]).name:
        case "measured":
            report.phase("timing", 60.0)
            report.say(
                measured={
                    "ms": [estimate(1.0), estimate(0.5)],
                    "ratios": [estimate(1.0), estimate(0.5)],
                    "peers": [
                        {"name": "torch.add", "launch": 1, "note": ""},
                        {"name": "torch.compile", "launch": None, "note": "no compiler"},
                    ],
                    "rounds": 77,
                    "clock": "CUPTI",
                    "overhead_ms": 0.0,
                    "host_ms": 0.02,
                    "disturbed": 0.5,
                    "notes": ["a note"],
                },
                state=asdict(State(sm_mhz=(1, 2), celsius=(3, 4), watts=5.0, samples=6, others=["process 7"])),
            )
        case "wrong":
            report.phase("launching", 10.0)
            found = {"message": "C is wrong.", "advice": "", "where": None, "evidence": ["C[0]"]}
            report.say(problem=found, shape="large", ran_wrong=True)
        case "refused":
            found = {"message": "It can't be launched.", "advice": "", "where": None, "evidence": []}
            report.say(problem=found, shape="large", ran_wrong=False)
        case "crash":
            report.phase("launching", 10.0)
            sys.exit("CUDA error: an illegal memory access was encountered")
        case "lacking":
            report.say(lacking="too little memory", advice="")
        case "ours":
            sys.exit("ImportError")
    report.say(done=True)


if __name__ == "__main__":
    main()
