"""Examples as token ids: prompts with their answers, ended as the model ends them, and no longer than asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from ppolm.base_setup import BaseModelSetup
from ppolm.base_setup.tokenizer_setup import TokenizerSetup
from ppolm.config import SupervisedConfig
from ppolm.data.packing import Answers
from ppolm.data.prompts import Prompt
from ppolm.data.sequences import cut_middle
from ppolm.errors import DataError

log = logging.getLogger(__name__)
T = TypeVar("T")


def encode_rows(
    rows: Sequence[T],
    texts: Callable[[T], tuple[Prompt, tuple[str, ...]]],
    setup: BaseModelSetup,
    config: SupervisedConfig,
) -> list[tuple[T, Answers]]:
    """The rows that fit, with their token ids; ``texts`` says what a row's prompt and answers are."""
    limit = min(config.max_tokens or 10**9, setup.context_length or 10**9)
    kept, cut, left_out = [], 0, 0
    for number, row in enumerate(rows, 1):
        prompt, answers = texts(row)
        ids = encode_answers(setup.tokenizer, prompt, answers)
        longest = max(map(len, ids.answers))
        over = len(ids.prompt) + longest - limit
        if over > 0 and config.long_rows == "cut" and len(ids.prompt) > over:
            cut += 1
            ids = Answers(cut_middle(ids.prompt, limit - longest), ids.answers)
        elif over > 0 and config.long_rows == "error":
            raise DataError(
                f"Row {number} has {limit + over} tokens, more than the {limit} that max_tokens or the model's context "
                f"allow. Set long_rows to cut (the prompt's middle) or to skip. It is {prompt.preview()}"
            )
        elif over > 0:
            left_out += 1
            continue
        kept.append((row, ids))
    if cut or left_out:
        log.warning(
            "%d of %d rows are longer than %d tokens: %d were cut, %d left out.",
            cut + left_out,
            len(rows),
            limit,
            cut,
            left_out,
        )
    if rows and not kept:
        raise DataError(f"Every row is longer than {limit} tokens. Raise max_tokens, or use a model with more room.")
    return kept


def encode_answers(tokenizer: TokenizerSetup, prompt: Prompt, answers: Sequence[str]) -> Answers:
    """Token ids of a prompt and of answers with their end: a model that is to stop must see where answers end."""
    ids = torch.tensor(tokenizer.encode(prompt.content))
    return Answers(ids, tuple(torch.tensor(tokenizer.encode_answer(prompt.content, text)) for text in answers))
