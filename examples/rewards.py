"""Example rewards: each is a plain function of prompts and responses.

A reward may also name columns of the data (``title`` below) or take ``**columns`` for all of them. It returns one
number per response, or one list per response with a number for each of its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def short_summary(prompts: Sequence[Any], responses: Sequence[str]) -> list[float]:
    """Between 0 and 1: best at 8 to 24 words that end a sentence, and with no word said too often."""
    return [_score(response.split(), response.rstrip()) for response in responses]


def _score(words: list[str], text: str) -> float:
    if not words:
        return 0.0
    length = 1.0 if 8 <= len(words) <= 24 else max(0.0, 1 - min(abs(len(words) - 8), abs(len(words) - 24)) / 16)
    variety = len({word.lower() for word in words}) / len(words)
    return 0.5 * length + 0.3 * variety + 0.2 * text.endswith((".", "!", "?"))


def no_repeated_words(prompts: Sequence[Any], responses: Sequence[Any]) -> list[list[float]]:
    """A number per token: -1 where a token was already said in the same response, else 0: blame where it belongs."""
    scores = []
    for response in responses:
        said: set[str] = set()
        row = []
        for token in response.tokens:  # the text of each sampled token, EOS included
            word = token.strip().lower()
            row.append(-1.0 if len(word) > 2 and word in said else 0.0)
            said.add(word)
        scores.append(row)
    return scores


def mentions_title(prompts: Sequence[Any], responses: Sequence[str], title: Sequence[str | None]) -> list[float]:
    """The share of the title's words that a response uses; ``title`` is a column of the prompts file."""
    return [_overlap(name or "", response) for name, response in zip(title, responses, strict=True)]


def _overlap(title: str, response: str) -> float:
    wanted = {word for word in title.lower().split() if len(word) > 3}
    return len(wanted & set(response.lower().split())) / len(wanted) if wanted else 0.0
