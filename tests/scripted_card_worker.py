"""A worker that does what its job says: stands in for those on the card.

python -m scripted_card_worker FOLDER PARENT
"""

import os
import subprocess
import sys
import time

from grader.judge.worker_process import receive


def main() -> None:
    report, job = receive()
    match job["do"]:
        case "report":
            report.phase("launching", 10, shape="x")
            report.say(ran="x")
            report.say(done=True)
        case "hang":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
            report.say(child=child.pid)
            report.phase("launching", 0.2, shape="x")
            time.sleep(1000)
        case "wait":
            report.phase("waiting", None)
            time.sleep(0.5)
            report.say(done=True)
        case "die":
            print("a last word", flush=True)
            os.abort()
        case "half":
            report._file.write('{"half')
            report._file.flush()
            sys.exit(3)
        case "orphan":
            report.say(pid=os.getpid())
            time.sleep(1000)


if __name__ == "__main__":
    main()
