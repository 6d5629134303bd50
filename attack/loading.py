"""Signals to real processes that are still loading: one line, the right exit status, and no file left behind.

python -m attack.loading                         20 processes
python -m attack.loading --count 5 --seed 1
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from attack import table

FLAGS = ("train", "--model-name", "embedded", "--run-name", "run", "--max-steps", "100")
PROGRAM = "import sys; from ppolm.cli.main import main; main(sys.argv[1:])"
FIRST, LAST = 1.0, 6.0
"""Seconds between which the signal is sent: after Python itself has started, before there is a run."""


def stop(number: int, moment: float, place: Path) -> tuple[str, str]:
    """Send a signal to a process: whether it was loading or training, and what went wrong, if anything."""
    command = [sys.executable, "-c", PROGRAM, *FLAGS]
    child = subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(moment)
    child.send_signal(number)
    said = child.communicate()[1]
    begun = (place / "runs" / "run" / "config.yaml").exists()
    wanted = f"{signal.Signals(number).name}: stopped "
    lines = [line for line in said.splitlines() if line]
    right = child.returncode == 128 + number and lines and lines[-1].startswith(wanted)
    if begun:
        return "training", "" if right else said[-300:]
    clean = len(lines) == 1 and not list(place.iterdir())
    return "loading", "" if right and clean else f"exit {child.returncode}: {said[-300:]}"


def run(count: int, seed: int) -> tuple[dict[str, int], list[str]]:
    """How many processes were stopped in each phase, and what went wrong."""
    draw, found, problems = random.Random(seed), {"loading": 0, "training": 0}, []
    for _ in range(count):
        number, moment = draw.choice((signal.SIGINT, signal.SIGTERM)), draw.uniform(FIRST, LAST)
        with tempfile.TemporaryDirectory() as place:
            where, problem = stop(number, moment, Path(place))
        found[where] += 1
        if problem:
            problems.append(f"{signal.Signals(number).name} after {moment:.2f} s: {problem}")
    return found, problems


def main(argv: list[str] | None = None) -> int:
    """Attack, print the findings, and fail if anything went wrong."""
    arguments = table.flags(__doc__, 20, "processes").parse_args(argv)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs may have it ignored
    found, problems = run(arguments.count, arguments.seed)
    print(f"stopped: {found}; ended otherwise than they should: {len(problems)}", *problems, sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
