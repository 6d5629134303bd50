"""Words, runs of words, and repetition: what every measure of a text counts."""

from __future__ import annotations

import re
from collections.abc import Sequence

CJK = "\u3040-\u30ff\u3400-\u9fff"
WORD = re.compile(rf"[{CJK}]|[^\W_{CJK}]+")
"""A run of letters and digits of any script; in Chinese and Japanese, which have no spaces, a character."""


def words(text: str) -> list[str]:
    """Lower-case words, as ROUGE counts them."""
    return WORD.findall(text.lower())


def ngrams(tokens: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """All runs of n words."""
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def repetition(text: str, n: int = 3) -> float:
    """Share of a text's n-grams that already occurred in it; 0 if it is too short to repeat itself."""
    runs = ngrams(words(text), n)
    return 1 - len(set(runs)) / len(runs) if runs else 0.0
