"""A reward one can see: a story is about its word, says nothing twice, and ends with a full sentence."""

from __future__ import annotations

from collections.abc import Sequence


def story(prompts: Sequence[str], responses: Sequence[str], word: Sequence[str]) -> list[float]:
    """From 0 to 2; ``word`` is a column of the prompts."""
    return [_score(response, wanted) for response, wanted in zip(responses, word, strict=True)]


def _score(text: str, wanted: str) -> float:
    words = text.lower().translate(str.maketrans(".,!", "   ")).split()
    about = min(words.count(wanted), 2) / 2
    triples = list(zip(words, words[1:], words[2:], strict=False))
    fresh = len(set(triples)) / len(triples) if triples else 0.0
    ends = text.rstrip().endswith((".", "!", "?", '"'))
    return about + 0.5 * fresh + 0.5 * ends
