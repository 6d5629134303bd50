"""How the next token is chosen (temperature, top-k, top-p), and its log-probability, which PPO needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ppolm.errors import TrainingDivergedError
from ppolm.kernels.fused_ops import log_sum_exp

if TYPE_CHECKING:
    from ppolm.config import PPOConfig


@dataclass(frozen=True)
class Sampling:
    """Settings of a rollout. ``greedy`` takes the most likely token and ignores top-k and top-p."""

    max_new_tokens: int
    """Longest response."""
    temperature: float = 1.0
    """Divides the logits: below 1 sharper, above 1 flatter."""
    top_k: int = 0
    """Only the k most likely tokens; 0: all."""
    top_p: float = 1.0
    """Only the most likely tokens that together have this probability; 1: all."""
    greedy: bool = False
    """Always the most likely token."""
    batch_tokens: int = 32768
    """Tokens of prompts and responses that are sampled at once."""

    @classmethod
    def of(cls, config: PPOConfig) -> Sampling:
        """From the settings of a configuration."""
        limits = (config.temperature, config.top_k, config.top_p)
        return cls(config.max_new_tokens, *limits, batch_tokens=config.rollout_tokens)


@dataclass(frozen=True)
class Sampled:
    """One response: token ids up to and including the first EOS, their log-probabilities, and whether it ended."""

    token_ids: list[int]  # [A]
    logprobs: list[float]  # [A]
    ended: bool


def exact_dtype(device: torch.device) -> torch.dtype:
    """The most precise float type that a device supports."""
    return torch.float32 if device.type == "mps" else torch.float64


def choose_tokens(logits: Tensor, uniforms: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """One token per row by inverse transform sampling, and log π(a|s) under the full temperature-scaled softmax.

    ``logits`` [B, V], ``uniforms`` [B] in [0, 1). Top-k and top-p restrict what can be drawn, never the
    log-probability: the update sees the full softmax too.
    """
    tokens, logprobs = choose_unchecked(logits, uniforms, sampling)
    refuse_non_finite(bool(logprobs.isfinite().all()))
    return tokens, logprobs


def choose_unchecked(logits: Tensor, uniforms: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """The same without the check, for callers that check later: non-finite logits give non-finite log-probabilities."""
    scaled = logits.float() / sampling.temperature
    tokens = scaled.argmax(-1) if sampling.greedy else draw(scaled, uniforms, sampling.top_k, sampling.top_p)
    return tokens, scaled.gather(-1, tokens[:, None]).squeeze(-1) - log_sum_exp(scaled)


def refuse_non_finite(finite: bool) -> None:
    """Raise unless all log-probabilities are finite."""
    if not finite:
        raise TrainingDivergedError(
            "The model's logits are not finite: training has diverged or its weights are damaged."
        )


def draw(scaled: Tensor, uniforms: Tensor, top_k: int, top_p: float) -> Tensor:
    """Tokens [B]: the first candidate whose cumulative probability exceeds the row's uniform number."""
    if 0 < top_k < scaled.shape[-1]:
        candidates, ids = scaled.topk(top_k, dim=-1)
    elif top_p < 1:
        candidates, ids = scaled.sort(dim=-1, descending=True)
    else:
        candidates, ids = scaled, None
    cumulative = candidates.softmax(-1).to(exact_dtype(scaled.device)).cumsum(-1)
    if top_p < 1:
        # Keep a token while the probability before it is below top_p: the one that crosses the line stays.
        kept = (torch.nn.functional.pad(cumulative[:, :-1], (1, 0)) < top_p).sum(-1, keepdim=True)
        total = cumulative.gather(-1, kept - 1)
    else:
        total = cumulative[:, -1:].contiguous()
    position = torch.searchsorted(cumulative, uniforms.to(cumulative)[:, None] * total, right=True)
    # Rounding may put a draw at the very end; the last token with any probability takes it.
    last = torch.searchsorted(cumulative, total, right=False)
    position = torch.minimum(position, last).clamp_(max=candidates.shape[-1] - 1)  # not finite: any token will do
    return (position if ids is None else ids.gather(-1, position)).squeeze(-1)
