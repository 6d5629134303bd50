"""Whether a model takes a mask of ours, so that sequences can share a row: tried, not guessed from its name."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ppolm.base_setup.base_setup import BaseModelSetup
from ppolm.data.packing import Answers, pack
from ppolm.data.sequences import Microbatch, TokenSequences


@torch.no_grad()
def takes_packed(setup: BaseModelSetup, longest: int) -> bool:
    """Whether packed rows of up to ``longest`` tokens give the hidden states that each sequence has alone."""
    window = getattr(setup.text_config, "sliding_window", None)
    if window is not None and longest > window:
        return False  # a short trial would not see it: our mask would let tokens look further than the model does
    ids = torch.arange(20) * 7 % setup.text_config.vocab_size
    items = [Answers(ids[:6], (ids[6:10], ids[10:13])), Answers(ids[13:16], (ids[16:],))]
    flat = [(item.prompt, answer) for item in items for answer in item.answers]
    place = (10**6, setup.tokenizer.pad_id, setup.device)
    alone = _states(setup, TokenSequences(*zip(*flat, strict=True)).microbatches(*place))
    try:
        together = _states(setup, pack(items, *place, "actions"))
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):  # each architecture refuses differently
        return False
    return torch.allclose(together, alone, rtol=1e-2, atol=1e-2 * float(alone.abs().max()))


def _states(setup: BaseModelSetup, batches: Iterable[Microbatch]) -> Tensor:
    """Hidden states before every action, in the order of the actions."""
    rows, states = [], []
    for batch in batches:
        rows.append(batch.rows)
        states.append(setup.wanted_states(batch.input_ids, batch).float().cpu())
    return torch.cat(states)[torch.cat(rows).argsort()]
