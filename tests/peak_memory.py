"""How much memory torch allocates at most while something runs: every allocation and release, from torch's profiler.

Unlike the size of the process, this neither contains the program nor depends on what the allocator keeps for later; and
unlike hooks on saved tensors it contains what operations need only while they run.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak_memory(act: Callable[[], object]) -> int:
    """The largest number of bytes on the CPU that were allocated during ``act`` and not yet released."""
    gc.collect()
    gc.disable()  # what was allocated before must not be released during it: the peak would seem smaller
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            act()
    finally:
        gc.enable()
    results = profiler.profiler.kineto_results
    changes = [event for event in results.events() if event.name() == "[memory]"]
    assert changes, "the profiler has recorded no allocation"
    size = peak = 0
    for event in sorted(changes, key=lambda event: event.start_ns()):
        size += event.nbytes()
        peak = max(peak, size)
    return peak
