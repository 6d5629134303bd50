"""Prompts in, state-action pairs and texts out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ppolm.rollout.generated_text import GeneratedText
from ppolm.rollout.generator import Generator
from ppolm.token_attribution.sa_pairs import SAPairs
from ppolm.token_attribution.token_attribution import TokenAttributor
from ppolm.training.importance_weight import importance_weights, within_sequence_cap

log = logging.getLogger(__name__)


class SequenceGenerator:
    """Generates responses and attributes their tokens.

    ``importance_cap`` adds the column ``importance_weight``, for responses that were sampled elsewhere; beyond
    ``sequence_cap`` the whole response weighs nothing.
    """

    def __init__(
        self,
        generator: Generator,
        attributor: TokenAttributor,
        importance_cap: float | None = None,
        sequence_cap: float | None = None,
    ) -> None:
        self.generator, self.attributor = generator, attributor
        self.importance_cap, self.sequence_cap = importance_cap, sequence_cap
        self._said = False

    def generate_sequences(self, prompts: Sequence[Any]) -> tuple[SAPairs, list[GeneratedText]]:
        """State, action and both log-probabilities of every generated token, and the generated texts."""
        texts, logprobs = self.generator.generate(prompts)
        if self.importance_cap is not None and not self._said and any(bool(one.isnan().any()) for one in logprobs):
            self._said = True
            log.warning(
                "The servers report log-probabilities that are not those of the policy at this temperature, top_k and "
                "top_p: they are recomputed here, and importance weights are all 1. docs/engines-vllm.md says when "
                "they fit."
            )
        return self._weighted(self.attributor.extract_pairs(texts, logprobs)), texts

    def _weighted(self, pairs: SAPairs) -> SAPairs:
        if self.importance_cap is None:
            return pairs
        columns = (pairs.column("logprob_policy"), pairs.column("logprob_sampler"))
        weights = importance_weights(*columns, self.importance_cap)
        if self.sequence_cap is not None:
            weights = weights * within_sequence_cap(*columns, pairs.offsets, self.sequence_cap)
        return pairs.with_columns(importance_weight=weights)
