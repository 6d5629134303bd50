"""Placing scores on tokens and subtracting the KL penalty from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ppolm.errors import RewardError
from ppolm.reward_kl.whitening import whiten
from ppolm.state import Stateless
from ppolm.token_attribution import SAPairs, as_sa_pairs

Score = float | Sequence[float]
"""One number for a response, or one for each of its tokens."""


def place_scores(scores: Sequence[Score], offsets: Tensor) -> Tensor:
    """[N]: a response's score on its last action token (EOS when there is one), per-token scores on their tokens."""
    placed = torch.zeros(int(offsets[-1]))
    if len(scores) != len(offsets) - 1:
        raise RewardError(f"{len(scores)} rewards for {len(offsets) - 1} responses: give one per response.")
    if all(isinstance(score, (int, float)) for score in scores):
        placed[offsets[1:] - 1] = torch.tensor(scores, dtype=torch.float32)
        return placed
    for score, start, end in zip(scores, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        if isinstance(score, (int, float)):
            placed[end - 1] = score
        elif len(score) == end - start:
            placed[start:end] = torch.as_tensor(score, dtype=torch.float32)
        else:
            raise RewardError(f"{len(score)} token rewards for a response of {end - start} tokens: give one per token.")
    return placed


def adjust_rewards_with_kl(
    sa_pairs: SAPairs | Sequence[Mapping[str, Any]],
    rewards: Sequence[Score],
    kl_coef: float,
    whiten_rewards: bool = False,
) -> SAPairs:
    """Add ``score`` and ``reward``: r_t = score_t − β · kl_t, from ``kl``; whitened rewards keep their mean."""
    pairs = as_sa_pairs(sa_pairs)
    score = place_scores(rewards, pairs.offsets)
    reward = score - kl_coef * pairs.column("kl")
    return pairs.with_columns(score=score, reward=whiten(reward, keep_mean=True) if whiten_rewards else reward)


@dataclass(frozen=True)
class RewardAdjuster(Stateless):
    """Subtracts the KL penalty from the rewards, so that the policy stays near its reference."""

    whiten_rewards: bool = False
    """Whether the token rewards of a batch are scaled to deviation 1."""

    def adjust_rewards_with_kl(
        self, sa_pairs: SAPairs | Sequence[Mapping[str, Any]], rewards: Sequence[Score], kl_coef: float
    ) -> SAPairs:
        """Add ``score`` and ``reward``: r_t = score_t − β · kl_t, from ``kl``."""
        return adjust_rewards_with_kl(sa_pairs, rewards, kl_coef, self.whiten_rewards)
