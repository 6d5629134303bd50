"""The gold judge of the embedded world, which takes the place of a human: it scores, compares and evaluates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from ppolm.embedded.world.facts import SLOTS
from ppolm.embedded.world.post import Post, parse_post
from ppolm.embedded.world.summaries import summarize
from ppolm.measures.words import repetition, words

WRONG_FACT = 0.2
EXTRA_WORD = 0.03
NO_ENDING = 0.2


@dataclass(frozen=True)
class GoldJudgement:
    """What the judge found in a summary."""

    covered: tuple[str, ...]
    """Facts of the post that the summary states."""
    wrong: tuple[str, ...]
    """Statements that the post does not make."""
    extra_words: int
    """Words beyond those needed for the facts it states."""
    repetition: float
    """Fraction of its 3-grams that repeat an earlier one."""
    ended: bool
    """Whether its last sentence is complete."""

    @property
    def score(self) -> float:
        """coverage − 0.2 · wrong facts − 0.03 · extra words − repetition − 0.2 if unfinished, clipped to [0, 1]."""
        coverage = len(self.covered) / len(SLOTS)
        faults = WRONG_FACT * len(self.wrong) + EXTRA_WORD * self.extra_words + self.repetition
        return min(1.0, max(0.0, coverage - faults - (0.0 if self.ended else NO_ENDING)))


def judge_summary(post: str | Post, summary: str) -> GoldJudgement:
    """Compare a summary with the facts of a post."""
    facts = (parse_post(post) if isinstance(post, str) else post).facts.as_dict()
    said = f" {' '.join(words(summary))} "
    phrases = phrases_by_slot()
    stated = {(slot, value) for slot in phrases for value, phrase in phrases[slot] if phrase in said}
    return GoldJudgement(
        covered=tuple(slot for slot, value in facts.items() if (slot, value) in stated),
        wrong=tuple(sorted(value for slot, value in stated if facts[slot] != value)),
        extra_words=max(0, len(words(summary)) - len(words(summarize(dict(sorted(stated)))))),
        repetition=repetition(summary),
        ended=summary.rstrip().endswith((".", "?", "!")),
    )


@lru_cache
def phrases_by_slot() -> dict[str, list[tuple[str, str]]]:
    """Each value with the words that state it; a person needs "my", so that the bare word does not count."""
    return {
        slot: [(value, f" {'my ' if slot == 'who' else ''}{' '.join(words(value))} ") for value in values]
        for slot, values in SLOTS.items()
    }


def gold(post: str | Post, summary: str) -> float:
    """How good a summary of a post is, in [0, 1]."""
    return judge_summary(post, summary).score


def gold_reward(prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
    """``gold`` as a reward function: one score per response."""
    return [gold(prompt, response) for prompt, response in zip(prompts, responses, strict=True)]


def prefers_first(post: str | Post, first: str, second: str, noise: float, random: Random) -> bool:
    """Whether the judge prefers the first summary; like a person, it is wrong with probability ``noise``.

    Summaries with equal scores are decided at random.
    """
    difference = gold(post, first) - gold(post, second)
    if math.isclose(difference, 0.0, abs_tol=1e-9):
        return random.random() < 0.5
    return (difference > 0) != (random.random() < noise)


def preference_row(post: Post, pair: tuple[str, str], noise: float, random: Random) -> dict[str, str]:
    """A data row (prompt, chosen, rejected) with the judge's preference."""
    first, second = pair if prefers_first(post, *pair, noise, random) else pair[::-1]
    return {"prompt": post.text, "chosen": f" {first}", "rejected": f" {second}"}
