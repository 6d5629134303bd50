"""bfloat16 on CPUs whose matrix kernels crash.

On some virtual machines the CPU reports instructions on which the matrix library crashes: the process ends with SIGILL
and no message. Trying a small product in a forked child first turns that into a slower but working run.
"""

from __future__ import annotations

import faulthandler
import functools
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable

import torch

log = logging.getLogger(__name__)

SHAPES = ((4, 32, 64), (1, 64, 32), (300, 256, 512))
SAFE_ISA = "AVX512_CORE_FP16"
"""Excludes AMX, the instructions that were seen to crash; the next best kernels are still used."""


@functools.cache
def make_bfloat16_safe() -> bool:
    """Make sure that a bfloat16 product on the CPU cannot crash this process; True if nothing had to be disabled.

    Anything disabled is disabled for the whole process: oneDNN reads its limit once, and torch has one switch for it.
    """
    if not sys.platform.startswith("linux") or products_work():
        return True
    os.environ["ONEDNN_MAX_CPU_ISA"] = SAFE_ISA
    if products_work():  # oneDNN had not been used yet, so it respects the limit
        log.warning(
            "bfloat16 with all of this CPU's instructions crashes; continuing with ONEDNN_MAX_CPU_ISA=%s", SAFE_ISA
        )
        return False
    torch.backends.mkldnn.set_flags(_enabled=False)
    log.warning("bfloat16 crashes on this CPU; continuing without oneDNN, slowly. Set dtype: float32 for speed.")
    return False


def multiplies_bfloat16() -> bool:
    """Whether this CPU has working instructions for bfloat16 products, which are then faster than float32 ones.

    Read from what the CPU reports, never timed: the same command must compute the same numbers every time. Where its
    best instructions crash, the remaining ones were measured to be slower than float32.
    """
    found: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()  # missing before torch 2.11
    announced = any(found.get(name, False) for name in ("avx512_bf16", "amx_bf16", "arm_bf16"))
    return announced and make_bfloat16_safe()


def products_work() -> bool:
    """Whether a process survives bfloat16 products."""

    def trial() -> None:
        for rows, inner, columns in SHAPES:
            left = torch.ones(rows, inner, dtype=torch.bfloat16)
            torch.nn.functional.linear(left, torch.ones(columns, inner, dtype=torch.bfloat16))

    return survives(trial)


def survives(trial: Callable[[], object], timeout: float = 30.0) -> bool:
    """Whether a child process runs a trial without crashing, failing or hanging."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forking with threads: the child uses none
        child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()
            torch.set_num_threads(1)
            trial()
            os._exit(0)
        finally:
            os._exit(1)  # whatever happens, the child must not continue as a second copy of this process
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False
