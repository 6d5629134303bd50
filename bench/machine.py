"""What this program, and others, use of the machine."""

from __future__ import annotations

import os
import re
import resource
import time
from pathlib import Path

import psutil

BUSY = 0.2
"""Share of one core, used by other programs, from which timings are no longer to be trusted."""


def peak_gib() -> float:
    """The most memory that this program has held.

    Linux keeps it by program (VmHWM). What `getrusage` says may be the size of the program that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        assert found is not None
        return int(found[1]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**30  # bytes on macOS


def busy_programs(seconds: float = 1.0) -> dict[str, float]:
    """Other programs that use the processor now, and how many cores each of them takes."""
    own = os.getpid()
    watched = [process for process in psutil.process_iter(["name"]) if process.pid != own]
    before = {process.pid: _used(process) for process in watched}
    time.sleep(seconds)
    used = {process: (_used(process) - before[process.pid]) / seconds for process in watched}
    return {process.info["name"]: round(share, 2) for process, share in used.items() if share > BUSY}


def _used(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:  # it has ended, or is not ours to look at
        return 0.0
    return float(times.user + times.system)
