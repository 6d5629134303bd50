"""Summaries of known quality, good and bad, as people might write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from ppolm.embedded.world.facts import Facts, other_value
from ppolm.embedded.world.grammar import FLUFF
from ppolm.embedded.world.post import sentence

MIX = {"complete": 0.12, "lazy": 0.5, "missing": 0.25, "wrong": 0.13}
"""Probability of each kind of reference summary."""

PADDED = {"complete": 0.4, "lazy": 0.9, "missing": 0.5, "wrong": 0.4}
"""Probability that a summary of each kind ends in fluff.

Most people are lazy and wordy, so the most likely summary is a bad one: a policy that merely sharpened its
distribution towards the most likely tokens would gain nothing.
"""

OFTEN_MISSING = {"who": 1, "problem": 1, "tried": 4, "outcome": 4, "question": 4}
"""Relative probability that a fact is left out: higher for facts later in the story."""


def summarize(facts: Mapping[str, str]) -> str:
    """A summary that states exactly the given facts, in one to three short sentences."""
    who, problem = facts.get("who"), facts.get("problem")
    tried, outcome, question = facts.get("tried"), facts.get("outcome"), facts.get("question")
    parts = []
    if who and problem:
        parts.append(f"My {who} {problem}.")
    elif who or problem:
        parts.append(f"There is trouble with my {who}." if who else f"Someone {problem}.")
    if tried and outcome:
        parts.append(f"I {tried} but {outcome}.")
    elif tried or outcome:
        parts.append(f"I {tried}." if tried else f"Now {outcome}.")
    if question:
        parts.append(f"{sentence(question)}?")
    return " ".join(parts)


def complete(facts: Mapping[str, str], random: Random) -> str:  # noqa: ARG001
    """All facts and nothing else; its gold score is 1."""
    return summarize(facts)


def lazy(facts: Mapping[str, str], random: Random) -> str:  # noqa: ARG001
    """Only who and what; the rest of the story is left out."""
    return summarize({slot: facts[slot] for slot in ("who", "problem")})


def missing(facts: Mapping[str, str], random: Random) -> str:
    """One or two facts left out."""
    return summarize(without(facts, random.randint(1, 2), random))


def wrong(facts: Mapping[str, str], random: Random) -> str:
    """One fact replaced by another value, and perhaps one left out."""
    return summarize(without(with_errors(facts, 1, random), random.randint(0, 1), random))


def padded(summary: str, random: Random) -> str:
    """The summary with one or two sentences of fluff at the end."""
    return " ".join([summary, *random.sample(FLUFF, k=random.choice((1, 1, 2)))])


KINDS: dict[str, Callable[[Mapping[str, str], Random], str]] = {
    "complete": complete,
    "lazy": lazy,
    "missing": missing,
    "wrong": wrong,
}


def reference_summary(facts: Facts, random: Random) -> str:
    """A summary of a post as a random person might write it."""
    (kind,) = random.choices(list(MIX), weights=list(MIX.values()))
    summary = KINDS[kind](facts.as_dict(), random)
    return padded(summary, random) if random.random() < PADDED[kind] else summary


def without(facts: Mapping[str, str], count: int, random: Random) -> dict[str, str]:
    """The facts without ``count`` of them, drawn at random."""
    left = dict(facts)
    for _ in range(count):
        (dropped,) = random.choices(list(left), weights=[OFTEN_MISSING[slot] for slot in left])
        del left[dropped]
    return left


def with_errors(facts: Mapping[str, str], count: int, random: Random) -> dict[str, str]:
    """The facts with ``count`` of them replaced by another value."""
    changed = random.sample(list(facts), k=count)
    return {slot: other_value(slot, value, random) if slot in changed else value for slot, value in facts.items()}
