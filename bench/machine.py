"""What the machine can do at most, and whether anything else is using it."""

from __future__ import annotations

import os
import time

import psutil
import torch

BUSY = 0.2
"""Share of one core, used by other programs, from which timings are no longer to be trusted."""


def gemm_gflops(dtype: torch.dtype, threads: int, seconds: float = 2.0) -> float:
    """The fastest of repeated large matrix products, in 10⁹ operations per second."""
    torch.set_num_threads(threads)
    rows, inner, columns = 1024, 1024, 3072
    left, right = torch.randn(rows, inner).to(dtype), torch.randn(columns, inner).to(dtype)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        torch.nn.functional.linear(left, right)
        best = min(best, time.perf_counter() - start)
    return 2 * rows * inner * columns / best / 1e9


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
