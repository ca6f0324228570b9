"""A worker that takes the calibration's place in tests: it reports what the variable SCRIPT holds."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from grader.gpu import lock
from grader.judge.worker_process import receive


def main() -> None:
    report, job = receive()
    for line in json.loads(os.environ["SCRIPT"]):
        match line:
            case {"die": int(status), "saying": str(words)}:
                print(words)
                sys.exit(status)
            case {"sleep": float(seconds)}:
                time.sleep(seconds)
            case {"where": str(file)}:
                facts = {"folder": str(report.folder), "tmp": tempfile.gettempdir(), "job": job}
                facts["lock"] = str(lock.path_for(job["uuid"]))
                facts["visible"] = os.environ["CUDA_VISIBLE_DEVICES"]
                Path(file).write_text(json.dumps(facts))
            case _:
                report.say(**line)


if __name__ == "__main__":
    main()
