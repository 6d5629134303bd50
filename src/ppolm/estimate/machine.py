"""The matrix multiplication speed of this machine."""

from __future__ import annotations

import time

import torch

ROWS, INNER, COLUMNS = 1024, 1024, 3072


def gemm_gflops(dtype: torch.dtype, device: torch.device, seconds: float = 0.5) -> float:
    """Speed of the fastest of repeated large matrix products, in 10⁹ operations per second."""
    left, right = (torch.randn(rows, INNER, device=device).to(dtype) for rows in (ROWS, COLUMNS))
    wait = getattr(torch, device.type).synchronize if device.type != "cpu" else (lambda: None)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        wait()
        start = time.perf_counter()
        torch.nn.functional.linear(left, right)
        wait()
        best = min(best, time.perf_counter() - start)
    return 2 * ROWS * INNER * COLUMNS / best / 1e9
