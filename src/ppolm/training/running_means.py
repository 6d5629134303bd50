"""Means of named numbers, weighted."""

import math
from collections.abc import Mapping


class RunningMeans:
    """Collects numbers by name; a name's mean is over the times it was given."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._weights: dict[str, float] = {}

    def add(self, values: Mapping[str, float], weight: float = 1.0) -> None:
        """Count each value ``weight`` times."""
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + weight * value
            self._weights[name] = self._weights.get(name, 0.0) + weight

    def mean(self, name: str) -> float:
        """The mean of one name, NaN if it never came."""
        return self._sums[name] / self._weights[name] if name in self._sums else math.nan

    def means(self) -> dict[str, float]:
        """All means."""
        return {name: self.mean(name) for name in self._sums}
