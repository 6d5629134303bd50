"""Many people at one studio, on this machine: is every judgement stored once, and how long does a request take?

    python -m bench.studio_load [--annotators 100] [--judgements 50] [--pause 1.0] [--runs 100] [--steps 2000]

A studio is started as a user would start it, with a personal key per annotator. Each annotator opens their link, keeps
some tasks loaded ahead as the page does, and answers with a pause of 0.5 to 1.5 times ``--pause`` seconds: faster than
people judge. Then the store is counted, runs with many steps are listed, and a step of 100,000 tokens is looked at, by
the requests that its page makes. Nothing leaves the loopback address.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Item, Study, create_study
from tests.studio.stored_tables import large_table
from tests.studio.stored_tables import store as store_table

FIRST, AHEAD, FEW = 3, 10, 5
"""As many tasks as the page loads at first and later, and how few make it ask for more."""
MOST_SECONDS = 600.0
TOKENS = 100_000


@dataclass
class Times:
    """Seconds of requests, by what they ask for."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def line(self, name: str) -> str:
        """Median, 95th percentile and maximum."""
        all_ = sorted(self.seconds.get(name, []))
        if not all_:
            return f"{name}: no request"
        late = all_[min(len(all_) - 1, int(0.95 * len(all_)))]
        middle = statistics.median(all_)
        return f"{name}: {len(all_)} requests, median {_ms(middle)}, 95 % within {_ms(late)}, longest {_ms(all_[-1])}"


class Visitor:
    """One annotator's connection: HTTP/1.1, kept open, with cookie and CSRF token."""

    def __init__(self, port: int, times: Times) -> None:
        self.port, self.times = port, times
        self.headers = {"Host": f"127.0.0.1:{port}"}
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, body: Any = None, name: str | None = None) -> bytes:
        """One request; the body of its answer."""
        payload = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", *(f"{key}: {value}" for key, value in self.headers.items())]
        head = "\r\n".join([*lines, f"Content-Length: {len(payload)}", "", ""]).encode()
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        began = time.perf_counter()
        self.writer.write(head + payload)
        await self.writer.drain()
        answer = await self._answer()
        if name is not None:
            self.times.seconds.setdefault(name, []).append(time.perf_counter() - began)
        return answer

    async def _answer(self) -> bytes:
        assert self.reader is not None
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = int(head.split(" ", 2)[1])
        length = re.search(r"(?i)content-length: (\d+)", head)
        body = await self.reader.readexactly(int(length.group(1)) if length else 0)
        cookie = re.search(r"(?i)set-cookie: ([^;\r]+)", head)
        if cookie:
            self.headers["Cookie"] = cookie.group(1)
        if status != 200:
            raise RuntimeError(f"status {status}: {body[:200]!r}")
        return body

    async def open(self, key: str) -> None:
        """Come by a personal link."""
        await self.ask("GET", f"/open?key={key}")
        found = re.search(rb'name="csrf" content="([0-9a-f]+)"', await self.ask("GET", "/judge"))
        assert found
        self.headers["X-CSRF-Token"] = found.group(1).decode()

    async def judge(self, count: int, pause: float, chance: random.Random) -> None:
        """Answer so many tasks, with others loaded ahead."""
        ahead: list[str] = []
        for _ in range(count):
            if len(ahead) < FEW:
                body = {"count": AHEAD if ahead else FIRST, "exclude": ahead, "progress": not ahead}
                found = json.loads(await self.ask("POST", "/api/judge/next", body, "next tasks"))
                ahead += [task["id"] for task in found["tasks"]]
            await asyncio.sleep(pause * chance.uniform(0.5, 1.5))
            answers = [{"task": ahead.pop(0), "verdict": chance.choice(("first", "second", "tie")), "seconds": 1.0}]
            said = json.loads(await self.ask("POST", "/api/judge/answer", {"answers": answers}, "store an answer"))
            assert not said["refused"], said
        assert self.writer is not None
        self.writer.close()


async def crowd(port: int, keys: list[str], count: int, pause: float, times: Times) -> float:
    """All annotators at once; how many seconds it took."""
    visitors = [Visitor(port, times) for _ in keys]
    for visitor, key in zip(visitors, keys, strict=True):
        await visitor.open(key)
    began = time.perf_counter()
    chances = [random.Random(number) for number in range(len(keys))]
    work = (visitor.judge(count, pause, chance) for visitor, chance in zip(visitors, chances, strict=True))
    await asyncio.wait_for(asyncio.gather(*work), MOST_SECONDS)
    return time.perf_counter() - began


async def list_runs(port: int, key: str, times: Times) -> int:
    """The list of runs, the first time and then again."""
    owner = Visitor(port, times)
    await owner.ask("GET", f"/open?key={key}")
    found = 0
    for name in ("list of runs, first", *["list of runs, again"] * 5):
        found = len(json.loads(await owner.ask("GET", "/api/runs", name=name))["runs"])
        await asyncio.sleep(1.1)
    return found


async def see_tokens(port: int, key: str, times: Times) -> None:
    """What the page of tokens asks for before its first view of a step, and then for another response."""
    owner, base = Visitor(port, times), "/api/run/tokens/tokens"
    await owner.ask("GET", f"/open?key={key}")
    began = time.perf_counter()
    for path in (base, f"{base}/1", f"{base}/1/responses", f"{base}/1/response/0"):
        await owner.ask("GET", path)
    times.seconds[f"first view of a step of {TOKENS:,} tokens"] = [time.perf_counter() - began]
    for response in range(1, 21):
        await owner.ask("GET", f"{base}/1/response/{response}", name="another response of it")


def make_runs(folder: Path, runs: int, steps: int) -> None:
    """Run folders as training leaves them, with only what a list reads."""
    chance = random.Random(0)
    for number in range(runs):
        run = folder / f"run-{number:03d}"
        run.mkdir(parents=True)
        (run / "config.yaml").write_text("model_name: embedded\n")
        with (run / "metrics.jsonl").open("w") as file:
            for step in range(1, steps + 1):
                row: dict[str, Any] = {f"metric_{i}": chance.random() for i in range(30)}
                row |= {"kind": "train", "step": step, "avg_reward": chance.random(), "kl": 0.1, "seconds/rollout": 1.0}
                file.write(json.dumps(row) + "\n")


def count_stored(place: Path, annotators: int, judgements: int) -> str:
    """Whether each annotator's judgements are there, each once."""
    records = FeedbackStore(str(place)).records()
    by_person = Counter(record.judgement.annotator for record in records)
    questions = {(record.judgement.annotator, record.details.item, record.details.repetition) for record in records}
    expected = annotators * judgements
    lost = sum(max(0, judgements - by_person[name]) for name in by_person) + judgements * (annotators - len(by_person))
    doubled = len(records) - len(questions)
    verdict = "none lost, none doubled" if lost == doubled == 0 and len(records) == expected else "NOT as expected"
    return f"{len(records)} of {expected} judgements stored, {lost} lost, {doubled} doubled: {verdict}"


def measure(folder: Path, arguments: argparse.Namespace) -> None:
    """Everything, in one folder that is removed afterwards."""
    runs, place, people = folder / "runs", folder / "feedback.db", folder / "people"
    runs.mkdir()
    make_runs(runs, arguments.runs, arguments.steps)
    store_table(large_table(TOKENS), runs / "tokens", 1)
    items = [Item(f"Question {i}? " + "words " * 100, (f"Answer a {i}", f"Answer b {i}")) for i in range(2000)]
    create_study(FeedbackStore(str(place)), Study("Load", wanted=arguments.annotators), items)
    keys = [secrets.token_urlsafe(18) for _ in range(arguments.annotators)]
    people.write_text("".join(f"annotator {number} {key}\n" for number, key in enumerate(keys)))
    command = [sys.executable, "-m", "ppolm", "studio", str(runs), "--store", str(place), "--annotators", str(people)]
    with subprocess.Popen([*command, "--no-open"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            own = next(line for line in server.stdout if line.startswith("Open"))
            for line in server.stdout:
                if line.startswith("Ctrl-C"):
                    break
            found = re.search(r":(\d+)/open\?key=(\S+)", own)
            assert found
            port, times = int(found.group(1)), Times()
            took = asyncio.run(crowd(port, keys, arguments.judgements, arguments.pause, times))
            rate = arguments.annotators * arguments.judgements / took
            print(f"{arguments.annotators} annotators, {arguments.judgements} judgements each: {rate:.0f} per second")
            print(count_stored(place, arguments.annotators, arguments.judgements))
            times.seconds["both"] = [second for all_ in list(times.seconds.values()) for second in all_]
            listed = asyncio.run(list_runs(port, found.group(2), times))
            asyncio.run(see_tokens(port, found.group(2), times))
            print(f"{listed} runs of {arguments.steps} steps listed")
            for name in times.seconds:
                print(times.line(name))
        finally:
            server.terminate()


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"


def main() -> None:
    """Read the flags, within bounds, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, default in (("annotators", 100), ("judgements", 50), ("runs", 100), ("steps", 2000)):
        parser.add_argument(f"--{flag}", type=int, default=default)
    parser.add_argument("--pause", type=float, default=1.0)
    arguments = parser.parse_args()
    bounds = {"annotators": 1000, "judgements": 1000, "runs": 1000, "steps": 10_000, "pause": 60}
    for flag, highest in bounds.items():
        if not 0 < getattr(arguments, flag) <= highest:
            parser.error(f"--{flag} is {getattr(arguments, flag)}, expected more than 0 and at most {highest}")
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), arguments)


if __name__ == "__main__":
    main()
