"""The allowed range of a setting: checking a value against it, and describing it in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LARGEST = 2**63 - 1
"""The largest integer that torch and databases can hold."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a number, or of every number in a list. None: no bound on that side."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    not_blank: bool = False
    """For text: it must not be empty or only white space."""

    def hold(self, value: Any) -> bool:
        """Whether a value of the right type is allowed. None means unset, which is always allowed."""
        if isinstance(value, tuple):
            return all(self.hold(item) for item in value)
        if isinstance(value, str):
            return bool(value.strip()) or not self.not_blank
        return value is None or (
            (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def words(self) -> str:
        """The range in words, to follow "expected" in a message; empty if there is no limit."""
        if self.not_blank:
            return "not empty"
        if self.at_least is not None and self.at_most is not None:
            if self.at_least == -self.at_most:
                return f"within ±{_shown(self.at_most)}"
            return f"between {_shown(self.at_least)} and {_shown(self.at_most)}"
        if self.above is not None and self.below is not None:
            return f"between {_shown(self.above)} and {_shown(self.below)}, both excluded"
        if self == Limits(at_least=0):
            return "0 or more"
        bounds = {
            "at least": self.at_least,
            "greater than": self.above,
            "at most": self.at_most,
            "less than": self.below,
        }
        return " and ".join(f"{words} {_shown(bound)}" for words, bound in bounds.items() if bound is not None)


def _shown(number: float) -> str:
    return "2^63 - 1" if number == LARGEST else f"{number:g}"
