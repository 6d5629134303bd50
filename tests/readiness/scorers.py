"""Answers of known quality, judgements of them, and scorers with known faults."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

from ppolm.data.examples import Preference
from ppolm.data.prompts import Prompt
from ppolm.measures.words import words
from ppolm.readiness import Readiness

Score = Callable[[Sequence[Any], Sequence[str]], list[float]]
WORDS = ("stone", "river", "lamp", "cloud", "paper", "green", "seven", "quiet", "north", "glass")


def array(*values: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(values, dtype=np.float64)


def text(quality: float, length: int, random: Random) -> str:
    """Random words, and a number that encodes the quality of the answer."""
    return f"{' '.join(random.choices(WORDS, k=length))} q{quality:.4f}."


def quality(answer: str) -> float:
    found = re.search(r"q(-?\d+\.\d{4})", answer)
    assert found is not None
    return float(found[1])


def pairs(count: int, longer: float | None = None, seed: int = 0, **fields: Any) -> list[Preference]:
    """Pairs won according to Bradley-Terry on quality, or by the longer answer with probability ``longer``."""
    random, rows = Random(seed), []
    for number in range(count):
        answers = [text(random.gauss(5.0, 1.5), random.randint(4, 30), random) for _ in range(2)]
        first = 1 / (1 + np.exp(quality(answers[1]) - quality(answers[0])))
        if longer is not None:
            first = longer if len(words(answers[0])) > len(words(answers[1])) else 1 - longer
        chosen, rejected = answers if random.random() < first else answers[::-1]
        rows.append(Preference(Prompt(f"Question {number}?"), chosen, rejected, **fields))
    return rows


def skilled(prompts: Sequence[Any], responses: Sequence[str]) -> list[float]:
    return [quality(response) for response in responses]


def counting(prompts: Sequence[Any], responses: Sequence[str]) -> list[float]:
    return [0.2 * len(words(response)) for response in responses]


def guessing(prompts: Sequence[Any], responses: Sequence[str]) -> list[float]:
    return [Random(response.strip()).gauss(0, 1) for response in responses]


def constant(prompts: Sequence[Any], responses: Sequence[str]) -> list[float]:
    return [0.3] * len(responses)


def topics(readiness: Readiness, status: str = "not ready") -> set[str]:
    return {reason.about for reason in readiness.reasons if reason.status == status}
