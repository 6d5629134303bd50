"""How long threads spin while they wait for each other: long on an idle machine, briefly beside busy programs.

Spinning is the fastest way to wait while every thread has a core of its own. Beside another busy program, a thread may
wait for one that has no core at the moment, and its spinning occupies the core that the other one needs: a step takes
several times as long. So a watcher asks the system how long our threads are runnable but have no core. When that time
grows, OpenMP is made to spin only briefly; when it falls, to spin as before. Results do not depend on it: the threads,
and what each of them computes, stay the same.

libgomp, which torch uses on Linux, spins only briefly while it has more threads than there are cores (GOMP_SPINCOUNT
in its manual). So all it takes is a crowd of sleeping threads, which can be dismissed again.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
import time
from pathlib import Path

import torch

SECONDS_BETWEEN_LOOKS = 0.2
CROWDED, QUIET = 0.15, 0.08
"""Seconds per second that our threads, all together, wait for a core. Measured on two cores: 0.00 to 0.04 when nothing
else runs, 0.3 to 0.95 beside one busy program, whichever way we wait."""
TASKS = Path("/proc/self/task")
MAPS = Path("/proc/self/maps")
LARGEST_CROWD = 32
"""With this many more cores than threads, one busy program takes no core that we need."""
DECIDED = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
"""A user who has set one of these has already decided how threads wait."""


class Delays:
    """How long the threads of this process are runnable but wait for a core."""

    def __init__(self) -> None:
        self._before, self._when = self._read(), time.monotonic()

    def share(self) -> float:
        """Seconds waited per second, over all threads, since the last call."""
        now, when = self._read(), time.monotonic()
        waited = sum(delay - self._before.get(task, delay) for task, delay in now.items())
        elapsed = when - self._when
        self._before, self._when = now, when
        return waited / 1e9 / elapsed

    @staticmethod
    def _read() -> dict[str, int]:
        """Nanoseconds waited, by thread."""
        found = {}
        for task in TASKS.iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
                found[task.name] = int((task / "schedstat").read_text().split()[1])
        return found


class Crowd:
    """Sleeping libgomp threads. While libgomp has more threads than there are cores, waiting ones hardly spin."""

    def __init__(self, library: str, size: int) -> None:
        self._library, self._size = library, size
        self._gathered, self._go_home = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._stay, name="ppolm-crowd", daemon=True)
        self._thread.start()
        self._gathered.wait()

    def disperse(self) -> None:
        """Dismiss the crowd: libgomp ends a team together with the thread that owns it."""
        self._go_home.set()
        self._thread.join()

    def _stay(self) -> None:
        openmp = ctypes.CDLL(self._library)
        # Each thread of the team calls a function once. Any function without arguments and side effects will do.
        openmp.GOMP_parallel(openmp.omp_get_thread_num, None, self._size, 0)
        self._gathered.set()
        self._go_home.wait()


def gather(library: str) -> Crowd | None:
    """A crowd that, with torch's threads, exceeds the cores; None if it would be too large or cannot be started."""
    size = max(2, len(os.sched_getaffinity(0)) + 2 - torch.get_num_threads())  # a team's first thread is not extra
    return Crowd(library, size) if size <= LARGEST_CROWD and can_start(size) else None


def can_start(threads: int) -> bool:
    """Whether the system lets us start this many more threads. If not, libgomp would terminate the whole program."""
    done, started = threading.Event(), list[threading.Thread]()
    try:
        for _ in range(threads):
            thread = threading.Thread(target=done.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        return False
    finally:
        done.set()
        for thread in started:
            thread.join()
    return True


@functools.cache
def watch_neighbours() -> bool:
    """From now on, spin only briefly while other programs are busy. False if that is impossible or already decided."""
    library = loaded_libgomp()
    if library is None or not (TASKS.parent / "schedstat").exists() or any(name in os.environ for name in DECIDED):
        return False
    threading.Thread(target=_watch, args=(library,), name="ppolm-neighbours", daemon=True).start()
    return True


def loaded_libgomp() -> str | None:
    """Path of the libgomp that torch uses; None where torch uses another library, as on macOS and Windows."""
    if not MAPS.exists():
        return None
    mapped = {
        fields[5] for fields in (line.split(maxsplit=5) for line in MAPS.read_text().splitlines()) if len(fields) > 5
    }
    paths = sorted(path for path in mapped if Path(path).name.startswith("libgomp"))
    own = [path for path in paths if Path(torch.__file__).parent in Path(path).parents]
    return next(iter([*own, *paths]), None)


def crowded(share: float, before: bool) -> bool:
    """Whether other programs need our cores, judged by how long our threads wait for one, with hysteresis."""
    return share > (QUIET if before else CROWDED)


def _watch(library: str) -> None:
    delays, crowd = Delays(), None
    while True:
        time.sleep(SECONDS_BETWEEN_LOOKS)
        if not crowded(delays.share(), crowd is not None):
            if crowd is not None:
                crowd.disperse()
            crowd = None
        elif crowd is None:
            crowd = gather(library)
