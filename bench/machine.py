"""Whether anything else is using the machine."""

from __future__ import annotations

import os
import time

import psutil

BUSY = 0.2
"""Share of one core, used by other programs, from which timings are no longer to be trusted."""


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
