"""Which process computes what: pure functions of sizes and keys, so that all processes come to the same answer."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence


def deal(sizes: Sequence[int], keys: Sequence[bytes], processes: int) -> list[int]:
    """A process for each item: equal loads, and items of one key together as far as that allows.

    Items of one key share a prompt, which is computed once if they stay together. The largest units are dealt first,
    each to the process that has least.
    """
    units = _units(sizes, keys, -(-sum(sizes) // processes))
    loads = [(0, process) for process in range(processes)]
    owner = [0] * len(sizes)
    for unit in sorted(units, key=lambda unit: (-sum(sizes[i] for i in unit), unit[0])):
        load, process = heapq.heappop(loads)
        for i in unit:
            owner[i] = process
        heapq.heappush(loads, (load + sum(sizes[i] for i in unit), process))
    return owner


def deal_by_key(keys: Sequence[bytes], processes: int) -> list[int]:
    """A process for each item by its key alone: the same one whatever else is dealt.

    For items of which a process has kept something: hidden states of the lower blocks, which it would have to compute
    again elsewhere.
    """
    return [int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") % processes for key in keys]


def _units(sizes: Sequence[int], keys: Sequence[bytes], most: int) -> list[list[int]]:
    """Items of one key in units of at most ``most``, or of one item."""
    units: list[list[int]] = []
    newest: dict[bytes, tuple[list[int], int]] = {}
    for i, (size, key) in enumerate(zip(sizes, keys, strict=True)):
        unit, held = newest.get(key, ([], most + 1))
        if held + size > most:
            unit, held = [], 0
            units.append(unit)
        unit.append(i)
        newest[key] = (unit, held + size)
    return units
