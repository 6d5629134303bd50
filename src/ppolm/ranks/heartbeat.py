"""A process that is killed, fails or stands still ends the job within a minute, instead of keeping the others waiting.

Every process says every few seconds that it lives and what its main thread does, and hears what the others do.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from ppolm.ranks.activity import ACTS, ENDED, FAILED, WAITS, WORKS, Activity, Moment

BEAT_SECONDS = 2.0
SILENT_SECONDS = 20.0
"""How long a process may be silent. A machine that is short of everything can take seconds over nothing; on the other
hand torchrun gives a process that stands still 30 s to end, and the whole job is to end within a minute."""
STILL_SECONDS = 30.0
"""How long a job may do nothing at all while some of its processes wait for one that neither computes nor moves."""
FAILED_SECONDS = 6.0
"""How long the others may take to end by themselves after one that has ended with an error."""
EXIT_CODE = 75
"""sysexits' EX_TEMPFAIL: try again, that is, resume."""
AGAIN = "nothing that was saved is lost. Start the job again with --resume"


class Store(Protocol):
    """Keys and values that all processes see."""

    def set(self, key: str, value: str) -> object:
        """Set a value."""

    def get(self, key: str) -> bytes:
        """Read a value."""

    def check(self, keys: list[str]) -> bool:
        """Whether keys have values."""

    def add(self, key: str, amount: int) -> int:
        """Add to a number, and return the sum."""


class Heartbeat:
    """Says every few seconds what this process does, and watches that all others live and the job gets on."""

    def __init__(
        self, store: Store, rank: int, size: int, activity: Activity | None = None, silent: float = SILENT_SECONDS
    ) -> None:
        self.store, self.rank, self.size, self.silent = store, rank, size, silent
        self.activity = activity or Activity()
        self._seen: dict[int, tuple[bytes, float]] = {}
        """What each of the others has said last, and when it was new."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="heartbeat")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, failed: bool = False) -> None:
        """Say goodbye: from now on this process may be silent. If it has ``failed``, the others are to end, too."""
        self._ended.set()
        with suppress(Exception):  # the store goes with the process that keeps it
            self.store.set(f"beat/{self.rank}", f"0 {Moment(FAILED if failed else ENDED, 0, 0.0)}")

    def _work(self) -> None:
        beat = 0
        while not self._ended.wait(BEAT_SECONDS):
            beat += 1
            try:
                own = self.activity.look()
                self.store.set(f"beat/{self.rank}", f"{beat} {own}")
                why = self.trouble(own)
            except Exception as error:
                if self._ended.is_set():
                    return
                # The store is kept by the first process, or by the launcher on its machine.
                why = f"process 0 of {self.size} cannot be reached ({type(error).__name__}): killed, or cut off"
            if why and not self._ended.is_set():
                self._give_up(why)

    def trouble(self, own: Moment) -> str | None:
        """Why this job cannot go on, if it cannot; by this process's own clock."""
        now, others = time.monotonic(), dict[int, Moment]()
        for rank in range(self.size):
            if rank == self.rank:
                continue
            said = self.store.get(f"beat/{rank}") if self.store.check([f"beat/{rank}"]) else b""
            if said != self._seen.get(rank, (None, 0.0))[0]:
                self._seen[rank] = (said, now)
            silent = now - self._seen[rank][1]
            moment = Moment.of(said.decode().split(" ", 1)[1]) if said else Moment(WORKS, 0, 0.0)
            if moment.state == FAILED and silent > FAILED_SECONDS:
                return f"process {rank} of {self.size} has ended with an error, which it has printed on its machine"
            if moment.state not in (FAILED, ENDED) and silent > self.silent:
                lost = f"process {rank} of {self.size} has not been heard of for {self.silent:.0f} s"
                return f"{lost}: killed, stopped, or cut off"
            others[rank] = moment if moment.state != ENDED else Moment(ENDED, 0, silent)
        return standstill({**others, self.rank: own})

    def _give_up(self, why: str) -> None:
        """End this process at once: it may wait in an exchange that cannot be interrupted."""
        with suppress(Exception):
            if self.store.add("given up", 1) > 1:  # another process has said so
                os._exit(EXIT_CODE)
        told = sys.__stderr__ or sys.stderr  # only the first process of a job has its own standard error
        told.write(f"error: {why}. Process {self.rank} ends here; {AGAIN}.\n")
        told.flush()
        os._exit(EXIT_CODE)


def standstill(moments: Mapping[int, Moment]) -> str | None:
    """Which processes keep the others waiting, if nothing at all has happened in the whole job for too long.

    As long as one of them computes, or the first one acts for all, everything else may be waiting for it. And if all of
    them are in the same exchange, they are sending, however slowly.
    """
    waiting = [one.exchange for one in moments.values() if one.state == WAITS]
    newest = max(waiting, default=0)
    late = [rank for rank, one in sorted(moments.items()) if one.state != WAITS or one.exchange < newest]
    quiet = all(one.still > STILL_SECONDS and one.state not in (ACTS, FAILED) for one in moments.values())
    if not waiting or not late or not quiet:
        return None
    which = f"processes {', '.join(map(str, late))}" if len(late) > 1 else f"process {late[0]}"
    return (
        f"{which} of {len(moments)} did not come to where the others wait, "
        f"and did not compute or move for {STILL_SECONDS:.0f} s"
    )
