"""Thousands of bad inputs, mutated from good ones: none may end in a traceback, hang, flood a terminal or harm a file.

    python -m attack bad-inputs --count 20000 --seed 0
    python -m attack bad-inputs --seed 0 --only data:17

Each input is tried in a worker process through the entry point of the command line. A case depends only on the seed,
its part and its number, so that it can be repeated by name.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter, deque
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

from attack import cases, reward_cases
from attack.samples import Samples, make
from attack.sandbox import HANG_SECONDS, Case, Sandbox, Verdict, judge

PARTS: dict[str, tuple[cases.Maker, float]] = {
    "settings": (cases.settings, 0.22),
    "flags": (cases.flags, 0.16),
    "data": (cases.data, 0.26),
    "stores": (cases.stores, 0.1),
    "functions": (reward_cases.functions, 0.08),
    "answers": (reward_cases.answers, 0.06),
    "environment": (cases.environment, 0.03),
    "adapters": (cases.adapters, 0.03),
    "models": (cases.models, 0.03),
    "runs": (cases.runs, 0.03),
}
"""Kinds of input, and their shares, small for those that load a model: they take a hundred times as long."""
MEMORY = 6 * 2**30
"""Bytes that a worker may allocate beyond its size at the start: more counts as a memory bomb."""
Name = tuple[str, int]


class Worker:
    """A process that tries one case after another; if it dies or hangs, that is a fault of the case."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.folder = folder
        self.connection, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=work, args=(theirs, seed, folder), daemon=True)
        self.process.start()
        theirs.close()
        self.case: Name | None = None
        self.until = 0.0

    def give(self, case: Name) -> None:
        """Send a case to the process."""
        self.case, self.until = case, time.monotonic() + 3 * HANG_SECONDS
        self.connection.send(case)

    def take(self) -> Verdict | None:
        """The verdict on the case; None while it is still running."""
        try:
            if self.connection.poll():
                found: Verdict = self.connection.recv()
                return found
        except (EOFError, OSError):
            self.process.join()
            return Verdict(f"killed the process (exit code {self.process.exitcode})", "dead")
        if time.monotonic() > self.until:
            self.process.kill()
            self.process.join()
            return Verdict("hang that no alarm ends", "dead")
        return None


def work(connection: Connection, seed: int, folder: Path) -> None:
    """Try the cases received over the connection."""
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"  # as the command line sets it, before transformers is imported
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    samples, box = make(folder / "good"), Sandbox(folder / "case")
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    while True:
        try:
            part, number = connection.recv()
        except EOFError:
            return
        box.clear()
        connection.send(judge(case((part, number), seed, samples, box), box))


def case(name: Name, seed: int, samples: Samples, box: Sandbox) -> Case:
    """The bad input of that name, with its files written into the sandbox."""
    part, number = name
    return PARTS[part][0](Random(f"{seed}:{part}:{number}"), samples, box)


def run(names: list[Name], seed: int, workers: int, say: bool = True) -> list[tuple[Name, Verdict]]:
    """Try all cases; returns the verdict on each."""
    left, found = deque(names), []
    with tempfile.TemporaryDirectory(prefix="ppolm-attack-", ignore_cleanup_errors=True) as folder:
        places = [Path(folder) / str(number) for number in range(workers)]
        team = [_start(seed, place) for place in places]
        while left or any(worker.case for worker in team):
            for place, worker in enumerate(team):
                if worker.case is None and left:
                    worker.give(left.popleft())
                verdict = worker.take() if worker.case else None
                if verdict is None or worker.case is None:
                    continue
                found.append((worker.case, verdict))
                worker.case = None
                if verdict.status == "dead":
                    team[place] = _start(seed, places[place])
                if say and (verdict.fault or len(found) % 1000 == 0):
                    _report(found[-1], len(found), len(names))
            wait([worker.connection for worker in team if worker.case], timeout=0.2)
        for worker in team:
            worker.connection.close()
            worker.process.join(10)
            worker.process.kill()
    return found


def _start(seed: int, place: Path) -> Worker:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return Worker(seed, place)


def _report(one: tuple[Name, Verdict], done: int, total: int) -> None:
    (part, number), verdict = one
    if verdict.fault:
        print(f"{part}:{number}  {verdict.fault}\n    {verdict.details[:1500]!r}", flush=True)
    else:
        print(f"{done:,} of {total:,}", flush=True)


def chosen(count: int) -> list[Name]:
    """Cases of every part, in their shares, shuffled."""
    names = [(part, number) for part, (_, share) in PARTS.items() for number in range(max(1, round(share * count)))]
    Random(0).shuffle(names)
    return names


def summary(found: list[tuple[Name, Verdict]], seconds: float) -> str:
    """A table: number of inputs per part, how they ended, and the faults."""
    lines = ["| part | inputs | taken | refused | usage | faults |", "|---|---:|---:|---:|---:|---:|"]
    for part in PARTS:
        mine = [verdict for (name, _), verdict in found if name == part]
        ends = Counter(verdict.status for verdict in mine)
        faults = sum(verdict.fault is not None for verdict in mine)
        lines.append(f"| {part} | {len(mine):,} | {ends['0']:,} | {ends['1']:,} | {ends['2']:,} | {faults} |")
    kinds = Counter(verdict.fault for _, verdict in found if verdict.fault)
    lines += [f"{number} x {fault}" for fault, number in kinds.most_common()]
    return "\n".join([*lines, f"{len(found):,} inputs, {kinds.total()} faults, {seconds / 60:.1f} minutes"])


def main(argv: list[str] | None = None) -> int:
    """Try ``--count`` inputs; returns 1 if there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m attack bad-inputs", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="inputs in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--only", nargs="*", default=[], help="single cases, as part:number, or whole parts")
    given: Any = parser.parse_args(argv)
    names = chosen(given.count)
    if given.only:
        wanted = {one for one in given.only if ":" not in one}
        single = [one.partition(":") for one in given.only if ":" in one]
        names = [name for name in names if name[0] in wanted] + [(part, int(number)) for part, _, number in single]
    start = time.monotonic()
    found = run(names, given.seed, max(1, given.workers))
    print(summary(found, time.monotonic() - start))
    return int(any(verdict.fault for _, verdict in found))


if __name__ == "__main__":
    sys.exit(main())
