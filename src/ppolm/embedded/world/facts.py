"""The facts of a post, and the values that each can take."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from random import Random

from ppolm.embedded.world.grammar import OUTCOME, PROBLEM, QUESTION, TRIED, WHO

SLOTS: dict[str, tuple[str, ...]] = {
    "who": tuple(person for people in WHO.values() for person in people),
    "problem": PROBLEM,
    "tried": TRIED,
    "outcome": OUTCOME,
    "question": QUESTION,
}
"""All values of each key fact."""


@dataclass(frozen=True)
class Facts:
    """The key facts: who it is about, what the problem is, what was tried, how that went, and what is asked."""

    who: str
    problem: str
    tried: str
    outcome: str
    question: str

    @classmethod
    def draw(cls, random: Random) -> Facts:
        """Draw one value per slot, uniformly."""
        return cls(**{slot: random.choice(values) for slot, values in SLOTS.items()})

    def as_dict(self) -> dict[str, str]:
        """Values by slot."""
        return asdict(self)


def other_value(slot: str, value: str, random: Random) -> str:
    """A random value of the slot other than this one."""
    return random.choice([other for other in SLOTS[slot] if other != value])
