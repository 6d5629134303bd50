"""A run that waits for people: how long after the last judgement does it go on?

    python -m bench.human_wait [--steps 20] [--busy 0] [--ask score preference]

A real PPO run of the embedded model with ``--reward human``, and a studio beside it. Somebody judges through the
requests of the judging page; whenever an answer leaves nothing to judge, the seconds are taken from the moment the
studio has said that it is stored until the run has marked its wait as over. Every such delay is counted, those of
evaluations too. ``--busy`` starts so many processes that compute all the time. Nothing leaves the loopback address.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import func, select

from bench.studio_load import Times, Visitor
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.tables import queue
from ppolm.feedback.transactions import transact

WANTED = 2.0
"""Seconds within which a run is to go on."""
LOOK_SECONDS = 0.005
MOST_SECONDS = 900.0
TRAIN = [
    *("--model-name", "embedded", "--reward", "human", "--log-to", "--max-new-tokens", "6"),
    *("--batch-size", "4", "--minibatch-size", "4", "--samples-per-prompt", "2", "--max-eval-prompts", "2"),
    *("--eval-every", "5", "--human-timeout", "240", "--run-name", "live"),
]


def waiting(store: FeedbackStore) -> int:
    """Responses that the run has not gone on from."""
    query = select(func.count()).where(queue.c.waits_until.is_not(None))
    return int(transact(store.engine, lambda connection: connection.execute(query).scalar_one()))


async def judge(port: int, key: str, ask: str, place: Path, run: subprocess.Popen[str]) -> list[float]:
    """Answer whatever the run asks, until it has ended; the delay of each of its waits."""
    visitor, delays = Visitor(port, Times()), list[float]()
    await visitor.open(key)
    until = time.monotonic() + MOST_SECONDS
    while run.poll() is None and time.monotonic() < until:
        body = {"annotator": "me", "ask": ask, "count": 20}
        tasks = json.loads(await visitor.ask("POST", "/api/judge/next", body))["tasks"]
        for task in tasks:
            verdict: object = 5 if task["kind"] == "score" else "first" if task["kind"] == "preference" else "up"
            answers = [{"task": task["id"], "verdict": verdict, "seconds": 1.0}]
            said = await visitor.ask("POST", "/api/judge/answer", {"annotator": "me", "ask": ask, "answers": answers})
            assert not json.loads(said)["refused"], said
        stored = time.monotonic()
        if not tasks:
            await asyncio.sleep(0.05)
            continue
        store = FeedbackStore(str(place), create=False)
        body["count"] = 1
        if json.loads(await visitor.ask("POST", "/api/judge/next", body))["tasks"]:
            continue  # more of the same wait
        while waiting(store) and run.poll() is None and time.monotonic() < until:
            await asyncio.sleep(LOOK_SECONDS)
        delays.append(time.monotonic() - stored)
        store.close()
    return delays


def measure(ask: str, steps: int) -> list[float]:
    """One run from its first wait to its end."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        runs, place = Path(folder) / "runs", Path(folder) / "feedback.db"
        runs.mkdir()
        command = [sys.executable, "-m", "ppolm", "studio", str(runs), "--store", str(place), "--no-open"]
        server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(server.terminate)
        assert server.stdout is not None
        found = next(re.search(r":(\d+)/open\?key=(\S+)", line) for line in server.stdout if line.startswith("Open"))
        assert found
        command = [sys.executable, "-m", "ppolm", "train", *TRAIN, "--max-steps", str(steps)]
        command += ["--feedback-store", str(place), "--output-dir", str(runs)]
        with (Path(folder) / "run.log").open("w+") as output:
            run = stack.enter_context(subprocess.Popen(command, stdout=output, stderr=output, text=True))
            stack.callback(run.kill)  # which does nothing to one that has ended
            delays = asyncio.run(judge(int(found.group(1)), found.group(2), ask, place, run))
            if run.wait() != 0:
                output.seek(0)
                raise RuntimeError(f"the run ended with {run.returncode}: {output.read()[-2000:]}")
    return delays


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that compute all the time."""
    spin = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(spin) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    """Read the flags, within bounds, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--ask", nargs="+", choices=("score", "preference"), default=["score", "preference"])
    arguments = parser.parse_args()
    if not 1 <= arguments.steps <= 1000 or not 0 <= arguments.busy <= 64:
        parser.error("expected 1 to 1000 --steps and at most 64 --busy")
    with busy(arguments.busy):
        for ask in arguments.ask:
            delays = sorted(measure(ask, arguments.steps))
            late = sum(delay > WANTED for delay in delays)
            print(
                f"{ask}: {len(delays)} waits, median {delays[len(delays) // 2]:.2f} s, longest {delays[-1]:.2f} s, "
                f"{late} longer than {WANTED:g} s"
            )


if __name__ == "__main__":
    main()
