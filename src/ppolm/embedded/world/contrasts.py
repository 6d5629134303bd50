"""Pairs of summaries of one post: as two people might write them, or identical except for one fault."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ppolm.embedded.world.facts import Facts
from ppolm.embedded.world.grammar import FLUFF
from ppolm.embedded.world.summaries import reference_summary, summarize, with_errors, without

Pair = tuple[str, str]


def wrong_fact(facts: dict[str, str], random: Random) -> Pair:
    """The second summary has one wrong fact."""
    return summarize(facts), summarize(with_errors(facts, 1, random))


def missing_fact(facts: dict[str, str], random: Random) -> Pair:
    """The second summary leaves out one fact."""
    left_out = random.choice(list(facts))
    return summarize(facts), summarize({slot: value for slot, value in facts.items() if slot != left_out})


def fluff(facts: dict[str, str], random: Random) -> Pair:
    """The second summary adds a sentence without content."""
    return summarize(facts), f"{summarize(facts)} {random.choice(FLUFF)}"


def repeated(facts: dict[str, str], random: Random) -> Pair:
    """The second summary repeats a sentence."""
    said = summarize(facts)
    sentences = said.replace("? ", "?|").replace(". ", ".|").split("|")
    return said, f"{said} {random.choice(sentences)}"


def cut_off(facts: dict[str, str], random: Random) -> Pair:
    """The second summary is cut off before its end."""
    said = summarize(facts)
    return said, " ".join(said.split()[: -random.randint(1, 3)])


CONTRASTS: tuple[Callable[[dict[str, str], Random], Pair], ...] = (
    *[wrong_fact] * 8,  # the hardest fault to learn: it does not show on the surface of the text
    *(missing_fact, fluff, repeated, cut_off),
)


def contrast(facts: Facts, random: Random) -> Pair:
    """A better and a worse summary of a post, which differ in one respect only."""
    stated = without(facts.as_dict(), random.choice((0, 0, 1, 2)), random)
    return random.choice(CONTRASTS)(stated, random)


def two_references(facts: Facts, random: Random) -> Pair:
    """Two different reference summaries, in no particular order."""
    first, second = reference_summary(facts, random), reference_summary(facts, random)
    return (first, second) if first != second else two_references(facts, random)
