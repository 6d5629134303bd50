"""A process that is killed or stands still ends the job within a minute, instead of keeping the others waiting."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Protocol

BEAT_SECONDS = 2.0
SILENT_SECONDS = 20.0
"""How long a process may be silent. A machine that is short of everything can take seconds over nothing; on the other
hand torchrun gives a process that stands still 30 s to end, and the whole job is to end within a minute."""
EXIT_CODE = 75
"""sysexits' EX_TEMPFAIL: try again, that is, resume."""


class Store(Protocol):
    """Keys and values that all processes see."""

    def set(self, key: str, value: str) -> object:
        """Set a value."""

    def get(self, key: str) -> bytes:
        """Read a value."""

    def check(self, keys: list[str]) -> bool:
        """Whether keys have values."""


class Heartbeat:
    """Says every few seconds that this process lives, and watches that all others do."""

    def __init__(self, store: Store, rank: int, size: int, silent: float = SILENT_SECONDS) -> None:
        self.store, self.rank, self.size, self.silent = store, rank, size, silent
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="heartbeat")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Say goodbye: from now on this process may be silent."""
        self._ended.set()
        with suppress(Exception):  # the store goes with the process that keeps it
            self.store.set(f"beat/{self.rank}", "ended")

    def _work(self) -> None:
        seen: dict[int, tuple[bytes, float]] = {}
        beat = 0
        while not self._ended.wait(BEAT_SECONDS):
            beat += 1
            try:
                self.store.set(f"beat/{self.rank}", str(beat))
                lost = self._silent(seen)
            except Exception:
                if self._ended.is_set():
                    return
                lost = 0  # the store is kept by the first process, or by the launcher on its machine
            if lost is not None and not self._ended.is_set():
                self._give_up(lost)

    def _silent(self, seen: dict[int, tuple[bytes, float]]) -> int | None:
        """A process that has said nothing new for too long, by this process's own clock."""
        now = time.monotonic()
        for rank in range(self.size):
            if rank == self.rank:
                continue
            said = self.store.get(f"beat/{rank}") if self.store.check([f"beat/{rank}"]) else b""
            before, since = seen.get(rank, (b"", now))
            if said == b"ended" or said != before or rank not in seen:
                seen[rank] = (said, now)
            elif now - since > self.silent:
                return rank
        return None

    def _give_up(self, lost: int) -> None:
        """End this process at once: it may wait in an exchange that cannot be interrupted."""
        told = sys.__stderr__ or sys.stderr  # only the first process of a job has its own standard error
        told.write(
            f"error: process {lost} of {self.size} has not been heard of for {self.silent:.0f} s: killed, stopped, or "
            "cut off. Process "
            f"{self.rank} ends here; nothing that was saved is lost. Start the job again with --resume.\n"
        )
        told.flush()
        os._exit(EXIT_CODE)
