"""Per-token KL between the policy and its reference, estimated from the sampled tokens (Schulman 2020)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ppolm.state import Stateless
from ppolm.token_attribution import SAPairs, as_sa_pairs


def estimate_kl(logprob_policy: Tensor, logprob_ref: Tensor, estimator: str = "k1") -> Tensor:
    """With x = log π − log π_ref for a token sampled from π: k1 = x, k2 = x²/2, k3 = e⁻ˣ − 1 + x; all [N].

    k1 and k3 are unbiased, k2 is not; k2 and k3 are never negative and vary less. The gradient of k2 is that of the
    true KL.
    """
    x = logprob_policy - logprob_ref
    if estimator == "k1":
        return x
    if estimator == "k2":
        return x.square() / 2
    if estimator == "k3":
        return (-x).exp() - 1 + x
    raise ValueError(f"estimator is {estimator!r}, expected k1, k2 or k3")


def add_kl_to_sa_pairs(sa_pairs: SAPairs | Sequence[Mapping[str, Any]], estimator: str = "k1") -> SAPairs:
    """Add ``kl``, from ``logprob_policy`` and ``logprob_ref``."""
    pairs = as_sa_pairs(sa_pairs)
    return pairs.with_columns(kl=estimate_kl(pairs.column("logprob_policy"), pairs.column("logprob_ref"), estimator))


@dataclass(frozen=True)
class KLDivergence(Stateless):
    """How far the policy has moved from its reference, token by token."""

    estimator: str = "k1"
    """k1 (log-ratio), k2 (half its square) or k3 (never negative, no bias)."""

    def add_kl_to_sa_pairs(self, sa_pairs: SAPairs | Sequence[Mapping[str, Any]]) -> SAPairs:
        """Add ``kl``, from ``logprob_policy`` and ``logprob_ref``."""
        return add_kl_to_sa_pairs(sa_pairs, self.estimator)
