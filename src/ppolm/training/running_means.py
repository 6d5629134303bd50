"""Weighted means of named numbers."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ppolm.ranks import Ranks


class RunningMeans:
    """Collects numbers by name; each mean is over the times its name was given."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._weights: dict[str, float] = {}

    def add(self, values: Mapping[str, float], weight: float = 1.0) -> None:
        """Count each value ``weight`` times."""
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + weight * value
            self._weights[name] = self._weights.get(name, 0.0) + weight

    def mean(self, name: str) -> float:
        """The mean for one name, NaN if it was never given."""
        return self._sums[name] / self._weights[name] if name in self._sums else math.nan

    def means(self) -> dict[str, float]:
        """All means."""
        return {name: self.mean(name) for name in self._sums}


class DeferredMeans:
    """Means and largest values of numbers that are still on a device.

    They are read together when first asked for: reading each would make the host wait and leave the device idle.
    """

    def __init__(self, ranks: Ranks | None = None) -> None:
        """``ranks`` are the processes whose numbers count together: all add theirs, then all read."""
        self.ranks = ranks or Ranks()
        self._unread: list[tuple[float, list[str], Tensor]] = []
        self._rows: list[tuple[float, dict[str, float], list[str]]] = []
        """What was read and not yet counted."""
        self._names: list[str] = []
        """Of whose numbers the largest is kept."""
        self._gathered = False
        self._means, self._largest = RunningMeans(), dict[str, float]()

    def add(self, values: Mapping[str, Tensor], weight: float, largest: Mapping[str, Tensor]) -> None:
        """Count each of ``values`` ``weight`` times; of ``largest``, keep the largest."""
        self._names = list(largest)
        numbers = torch.stack([*values.values(), *largest.values()])
        self._unread.append((weight, [*values, *largest], numbers))

    def means(self) -> dict[str, float]:
        """All means."""
        self._read()
        return self._means.means()

    def largest(self, name: str) -> float:
        """The largest value for one name, at least 0."""
        self._read()
        return self._largest.get(name, 0.0)

    def read_with(self, numbers: Tensor) -> list[float]:
        """Read ``numbers`` [n] of an update, and in the same transfer all that was added and not yet read."""
        read = torch.cat([numbers, *(one for _, _, one in self._unread)]).tolist()
        at = len(numbers)
        for weight, names, held in self._unread:
            self._rows.append((weight, dict(zip(names, read[at : at + len(held)], strict=True)), self._names))
            at += len(held)
        self._unread = []
        return read[: len(numbers)]

    def _read(self) -> None:
        if self._unread:
            self.read_with(self._unread[0][2][:0])
        if self._gathered:
            return
        for weight, found, kept in (one for part in self.ranks.gather(self._rows) for one in part):
            for name in kept:
                self._largest[name] = max(self._largest.get(name, 0.0), found.pop(name))
            self._means.add(found, weight)
        self._rows, self._gathered = [], self.ranks.shares
