"""How far the policy has moved since the rollout."""

from torch import Tensor


def policy_ratio(logprob_new: Tensor, logprob_old: Tensor) -> Tensor:
    """r_t(θ) = π_θ(a_t|s_t) / π_old(a_t|s_t); all [n]."""
    return (logprob_new - logprob_old).exp()


def approx_kl(logprob_new: Tensor, logprob_old: Tensor) -> Tensor:
    """KL(π_old ‖ π_θ) per token, estimated as r − 1 − log r: never negative, 0 where nothing moved; all [n]."""
    log_ratio = logprob_new - logprob_old
    return log_ratio.exp() - 1 - log_ratio


def is_clipped(ratio: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """True where the ratio is outside [1 − clip_low, 1 + clip_high]; all [n]."""
    return (ratio < 1 - clip_low) | (ratio > 1 + clip_high)
