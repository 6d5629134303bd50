"""Token tables as runs store them, made without a model: small ones with known numbers, and large ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ppolm.config import PPOConfig
from ppolm.explain.settings import StepSettings
from ppolm.explain.what_if import recompute
from ppolm.token_attribution import SAPairs
from ppolm.token_attribution.sa_pairs_io import to_parquet

WORDS = ["<|end|>", " good", " bad", " cats", " sleep", " at", " noon", "."]
SETTINGS = StepSettings(0.99, 0.95, 0.1, "k1", whiten_rewards=False, whiten_advantages=True)


class Words:
    """A tokenizer for tables: ids are places in a list of words."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """The words of some ids, whatever stands before them."""
        return "".join(self.words[token] for token in ids)

    def decode_prompt(self, ids: Sequence[int]) -> str:
        """The words of a prompt."""
        return self.decode(ids)


def make_table(
    actions: Sequence[Sequence[int]],
    owners: Sequence[int],
    prompts: Sequence[Sequence[int]],
    words: Sequence[str],
    ended: Sequence[bool] | None = None,
    **columns: Tensor,
) -> SAPairs:
    """A finished table of some responses; numbers are random unless they are given."""
    lengths = torch.tensor([len(tokens) for tokens in actions])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    count = int(offsets[-1])
    random = torch.Generator().manual_seed(count)
    score = torch.zeros(count)
    score[offsets[1:] - 1] = torch.randn(len(lengths), generator=random)
    made = {
        "prompt_idx": torch.repeat_interleave(torch.tensor(owners), lengths),
        "step": torch.arange(count) - torch.repeat_interleave(offsets[:-1], lengths),
        "action_id": torch.tensor([token for tokens in actions for token in tokens]),
        "logprob_policy": -torch.rand(count, generator=random) * 4,
        "logprob_ref": -torch.rand(count, generator=random) * 4,
        "score": score,
        "value": torch.randn(count, generator=random) / 4,
        **columns,
    }
    tokenizer: Any = Words(words)
    flags = torch.tensor(list(ended) if ended is not None else [True] * len(lengths))
    return recompute(SAPairs(made, offsets, flags, prompts, tokenizer), SETTINGS)


def store(pairs: SAPairs, run: Path, step: int, **notes: Any) -> Path:
    """Write a table where a run would, with a configuration beside it."""
    for folder in ("table", "checkpoints"):
        (run / folder).mkdir(parents=True, exist_ok=True)
    if not (run / "config.yaml").exists():
        PPOConfig(model_name=str(run / "no-model")).to_yaml(run / "config.yaml")
    path = run / "table" / f"step-{step:06d}.parquet"
    to_parquet(pairs, path, step=step, **({"kl_coef": 0.1, "reward_coef": 0.1} | notes))
    return path


def large_table(tokens: int, per_response: int = 100, samples: int = 4) -> SAPairs:
    """A step of many tokens."""
    words = [f" w{number}" for number in range(1000)]
    responses = tokens // per_response
    actions = [[(7 * i + 13 * j) % 1000 for j in range(per_response)] for i in range(responses)]
    owners = [i // samples for i in range(responses)]
    prompts = [[(i + j) % 1000 for j in range(60)] for i in range(owners[-1] + 1)]
    return make_table(actions, owners, prompts, words)
