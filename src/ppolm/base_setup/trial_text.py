"""A short text to try a loaded model on, and the unmodified model's own results for it.

Every fast path has to give these numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ppolm.batches.packing import Answers, pack
from ppolm.batches.sequences import Microbatch, TokenSequences
from ppolm.errors import ModelError

if TYPE_CHECKING:
    from ppolm.base_setup.base_setup import BaseModelSetup

PROMPT_LENGTHS = (13, 6)
ANSWER_LENGTHS = ((9, 5), (12,))
LONGEST = 22
"""Tokens of the longest sequence of a trial."""


@dataclass(frozen=True)
class Trial:
    """Prompts with answers, and the model's own logits and states before every token of every answer."""

    items: tuple[Answers, ...]
    logits: Tensor  # [n, V]
    states: Tensor  # [n, d]

    @property
    def sequences(self) -> TokenSequences:
        """Each answer with its prompt."""
        pairs = [(item.prompt, answer) for item in self.items for answer in item.answers]
        return TokenSequences(*zip(*pairs, strict=True))

    def padded(self, setup: BaseModelSetup) -> list[Microbatch]:
        """The sequences as rows of one batch, padded on the right."""
        return list(self.sequences.microbatches(10**6, setup.tokenizer.pad_id, setup.device))

    def packed(self, setup: BaseModelSetup) -> list[Microbatch]:
        """The sequences packed, with every prompt only once."""
        return list(pack(self.items, 10**6, setup.tokenizer.pad_id, setup.device, "actions"))


def trial_items(vocab_size: int) -> tuple[Answers, ...]:
    """Prompts with answers of random tokens, the same every time."""
    random = torch.Generator().manual_seed(0)

    def tokens(count: int) -> Tensor:
        return torch.randint(vocab_size, (count,), generator=random)

    pairs = zip(PROMPT_LENGTHS, ANSWER_LENGTHS, strict=True)
    return tuple(Answers(tokens(prompt), tuple(map(tokens, answers))) for prompt, answers in pairs)


@torch.no_grad()
def run_plain(setup: BaseModelSetup) -> Trial:
    """The trial with the model's own forward pass: one whole sequence at a time, no cache, no padding, no mask."""
    items, states = trial_items(setup.text_config.vocab_size), []
    for ids, before in _texts(items, setup.device):
        with _blaming_the_text(setup, ids):
            hidden = setup.transformer(input_ids=ids, use_cache=False).last_hidden_state
        states.append(hidden[0, before].float().cpu())
    return Trial(items, plain_logits(setup, items), torch.cat(states))


@torch.no_grad()
def plain_logits(setup: BaseModelSetup, items: Iterable[Answers]) -> Tensor:
    """Logits [n, V] before every token of every answer, by the model's own forward pass."""
    logits = []
    for ids, before in _texts(items, setup.device):
        with _blaming_the_text(setup, ids):
            made = setup.causal_lm(input_ids=ids, use_cache=False).logits
        logits.append(made[0, before].float().cpu())
    return torch.cat(logits)


def _texts(items: Iterable[Answers], device: torch.device) -> Iterator[tuple[Tensor, slice]]:
    """Each answer after its prompt [1, T], and the positions before its tokens."""
    for item in items:
        for answer in item.answers:
            ids = torch.cat([item.prompt, answer]).to(device)[None]
            yield ids, slice(len(item.prompt) - 1, ids.shape[1] - 1)


@contextmanager
def _blaming_the_text(setup: BaseModelSetup, ids: Tensor) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ModelError(
            f"Model {setup.name} ({type(setup.causal_lm).__name__}) does not read a plain text of "
            f"{ids.shape[1]} tokens: {reason}"
        ) from error


@torch.no_grad()
def states_of(setup: BaseModelSetup, batches: Iterable[Microbatch]) -> Tensor:
    """Hidden states [n, d] before every token of every answer, in the order of the tokens."""
    rows, states = [], []
    for batch in batches:
        rows.append(batch.rows)
        states.append(setup.wanted_states(batch.input_ids, batch).float().cpu())
    return torch.cat(states)[torch.cat(rows).argsort()]
