"""Memory and CPU use of this process and of others."""

from __future__ import annotations

import os
import re
import resource
import time
from pathlib import Path

import psutil

BUSY = 0.2
"""If another program uses more than this share of a core, timings cannot be trusted."""


def peak_gib() -> float:
    """Peak memory of this process.

    Linux has it per program (VmHWM). `getrusage` may report the size of the process that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        assert found is not None
        return int(found[1]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**30  # bytes on macOS


def busy_programs(seconds: float = 1.0) -> dict[str, float]:
    """Other programs that are using the CPU, and how many cores each of them takes."""
    own = os.getpid()
    watched = [process for process in psutil.process_iter(["name"]) if process.pid != own]
    before = {process.pid: _used(process) for process in watched}
    time.sleep(seconds)
    used = {process: (_used(process) - before[process.pid]) / seconds for process in watched}
    return {process.info["name"]: round(share, 2) for process, share in used.items() if share > BUSY}


def _used(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:  # it has ended, or access is denied
        return 0.0
    return float(times.user + times.system)
