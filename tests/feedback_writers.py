"""Many writers to one store, in processes and threads: the concurrency test runs this outside pytest."""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from ppolm.data.examples import Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.feedback.record import Queued, Record
from ppolm.feedback.store import FeedbackStore

PROCESSES, THREADS, JUDGEMENTS = 8, 25, 2


def write(place: str, number: int, thread: int, start: Barrier) -> None:
    """One annotator with a store object of their own; every judgement is sent twice, as after a lost answer."""
    name = f"{number}-{thread}"
    start.wait()
    store = FeedbackStore(place)
    for turn in range(JUDGEMENTS):
        prompt = Prompt(f"prompt {turn}")  # the same for all, so that writers compete for the same rows
        rating = Rating(prompt, f"answer {turn}", float(turn), annotator=name)
        record = Record(rating, id=f"r{number}t{thread}n{turn}")
        shared = Record(Thumb(prompt, f"answer {turn}", True, annotator="all"), id=f"shared{turn}")
        new = store.add([record, shared])
        assert new >= 1
        assert store.add([record]) == 0
        store.ask([Queued(f"prompt {turn}", "unjudged")])
    store.close()


def process(place: str, number: int) -> None:
    """All threads of a process, started at once."""
    start = Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(write, place, number, thread, start) for thread in range(THREADS)]:
            done.result()


def main(place: str) -> None:
    context = multiprocessing.get_context("fork")  # no threads run here yet, and everything is imported only once
    processes = [context.Process(target=process, args=(place, number)) for number in range(PROCESSES)]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    sys.exit(any(one.exitcode for one in processes))


if __name__ == "__main__":
    main(sys.argv[1])
