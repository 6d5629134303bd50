"""Examples as token ids: prompts and answers, with the model's end token, and no longer than allowed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from ppolm.base_setup import BaseModelSetup
from ppolm.base_setup.tokenizer_setup import TokenizerSetup
from ppolm.batches.packing import Answers
from ppolm.batches.sequences import cut_middle
from ppolm.config import SupervisedConfig
from ppolm.data.prompts import Prompt
from ppolm.errors import DataError

log = logging.getLogger(__name__)
T = TypeVar("T")


Texts = Callable[[T], tuple[Prompt, tuple[str, ...]]]
"""Gives a row's prompt and answers."""


def encode_rows(
    rows: Sequence[T], texts: Texts[T], setup: BaseModelSetup, config: SupervisedConfig, room: int | None = None
) -> list[tuple[T, Answers]]:
    """The rows that fit, with their token ids; ``room`` is the number of tokens kept of a prompt that is cut."""
    limit = token_limit(setup, config)
    kept, cut, left_out = [], 0, 0
    for number, row in enumerate(rows, 1):
        prompt, answers = texts(row)
        ids = encode_answers(setup.tokenizer, prompt, answers)
        longest = max(map(len, ids.answers))
        over = len(ids.prompt) + longest - limit
        if config.long_rows == "cut" and longest < limit:
            allowed = limit - longest if room is None else min(room, limit - longest)
            cut += len(ids.prompt) > allowed
            kept.append((row, Answers(cut_middle(ids.prompt, allowed), ids.answers)))
        elif over <= 0:
            kept.append((row, ids))
        elif config.long_rows == "error":
            raise DataError(
                f"Row {number} has {limit + over} tokens, more than the {limit} that max_tokens or the model's context "
                f"allow. Set long_rows to cut (the prompt's middle) or to skip. It is {prompt.preview()}"
            )
        else:
            left_out += 1
    if cut or left_out:
        changes = (cut, len(rows), left_out, limit)
        log.warning("%d of %d prompts were cut, and %d rows left out, to stay in %d tokens.", *changes)
    if rows and not kept:
        raise DataError(f"Every row is longer than {limit} tokens. Raise max_tokens, or use a model with more room.")
    return kept


def token_limit(setup: BaseModelSetup, config: SupervisedConfig) -> int:
    """The longest row allowed, in tokens."""
    return min(config.max_tokens or 10**9, setup.context_length or 10**9)


def prompt_room(rows: Sequence[T], texts: Texts[T], setup: BaseModelSetup, config: SupervisedConfig) -> int | None:
    """Tokens that a prompt may keep next to the longest answer, at least half of the limit; None if none is cut.

    The same for every row: if a longer answer shortened its prompt, a reward model could recognise it by that.
    """
    if config.long_rows != "cut":
        return None
    limit = token_limit(setup, config)
    written = ((prompt, text) for row in rows for prompt, answers in [texts(row)] for text in answers)
    longest = max(len(setup.tokenizer.encode_answer(prompt.content, text)) for prompt, text in written)
    return max(limit - longest, limit // 2)


def encode_answers(tokenizer: TokenizerSetup, prompt: Prompt, answers: Sequence[str]) -> Answers:
    """Token ids of a prompt and of its answers with their end token, from which a model learns to stop."""
    ids = torch.tensor(tokenizer.encode(prompt.content))
    return Answers(ids, tuple(torch.tensor(tokenizer.encode_answer(prompt.content, text)) for text in answers))
