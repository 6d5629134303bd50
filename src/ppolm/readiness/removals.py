"""What a score owes to each part of an answer: the change when one sentence, or one token, is left out."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ppolm.batches.sequences import TokenSequences
from ppolm.models import RewardModel
from ppolm.rollout.generated_text import token_texts

Unit = Literal["sentence", "token"]
END = re.compile(r"[.!?]+[\"'”’)\]]*(?=\s)|[。！？]+[」』”’）]*|(?=\n)")
"""Where a sentence ends, or a line: a full stop inside a number ends nothing."""
MOST_REMOVALS = 256
AT_ONCE = 16
"""Shortened answers that are scored together; between two such lots a limit of time is heeded."""


@dataclass(frozen=True)
class Part:
    """A piece of an answer. Pieces in their order make up the whole text."""

    text: str
    change: float | None
    """Score without it − score with it; None: not measured."""


@dataclass(frozen=True)
class Removals:
    """An answer in pieces."""

    parts: Sequence[Part]
    measured: int
    """How many pieces were left out and scored, from the first on."""


def sentences(text: str) -> list[str]:
    """Sentences or lines that together are ``text``, each with the space before it, as tokens have theirs."""
    ends = [match.end() for match in END.finditer(text)]
    found: list[str] = []
    begin = 0
    for end in (*ends, len(text)):
        if text[begin:end].strip():
            found.append(text[begin:end])
            begin = end
    if begin < len(text):  # nothing but space is left
        found = [*found[:-1], "".join(found[-1:]) + text[begin:]]
    return found


def without(pieces: Sequence[str], number: int) -> str:
    """A text without one of its pieces; what comes first then begins as the text did, without a space of its own."""
    rest = "".join([*pieces[:number], *pieces[number + 1 :]])
    indented = "".join(pieces)[:1].isspace()
    return rest if indented or number > 0 else rest.lstrip()


def removals(
    model: RewardModel, prompt: object, answer: str, unit: Unit, seconds: float = 60.0, most: int = MOST_REMOVALS
) -> Removals:
    """Leave out one piece after the other and score what is left: at most ``most``, and no longer than ``seconds``."""
    whole = model.encode(prompt, answer)
    context, ids = whole.prompt, whole.answers[0]
    if unit == "sentence":
        pieces = sentences(answer)
        cases = [model.encode(prompt, without(pieces, number)) for number in range(min(len(pieces), most))]
        shortened = [(case.prompt, case.answers[0]) for case in cases]
    else:
        end = len(ids) - 1 if len(ids) and int(ids[-1]) in model.setup.tokenizer.eos_ids else len(ids)
        pieces = token_texts(model.setup.tokenizer, context.tolist(), ids[:end].tolist()) if end else []
        shortened = [(context, torch.cat([ids[:at], ids[at + 1 :]])) for at in range(min(end, most))]
    base = float(model.scores(TokenSequences([context], [ids]))[0])
    scores = _scores(model, shortened, seconds)
    changes = [score - base for score in scores]
    parts = [Part(text, changes[at] if at < len(changes) else None) for at, text in enumerate(pieces)]
    return Removals(parts, len(changes))


def _scores(model: RewardModel, cases: Sequence[tuple[Tensor, Tensor]], seconds: float) -> list[float]:
    """Scores of as many cases as the time allows, the first lot in any case."""
    until = time.monotonic() + seconds
    scores: list[float] = []
    for start in range(0, len(cases), AT_ONCE):
        if scores and time.monotonic() > until:
            break
        lot = cases[start : start + AT_ONCE]
        scores += model.scores(TokenSequences([context for context, _ in lot], [ids for _, ids in lot])).tolist()
    return scores
