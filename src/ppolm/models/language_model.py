"""A role that speaks: log-probabilities of tokens, and sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from ppolm.data.sequences import Microbatch, TokenSequences
from ppolm.models.base_model import BaseModel
from ppolm.models.token_logprobs import token_logprobs
from ppolm.rollout.kv_sampler import sample_sequences
from ppolm.rollout.sampling import Sampled, Sampling
from ppolm.rollout.slot_sampler import SlotSampler, takes_slots


class LanguageModel(BaseModel):
    """The policy and its reference."""

    _takes_slots: bool | None = None
    """Whether the fast sampler works with this model, once it is known."""

    def token_logprobs(
        self, batch: Microbatch, temperature: float, entropy: Literal["skip", "measure", "train"] = "skip"
    ) -> tuple[Tensor, Tensor]:
        """log π(a|s) and entropy [n] of the actions of one microbatch, with gradients if the role is trainable."""
        vocab_size, states = self.setup.text_config.vocab_size, self.states(batch)
        project, matrix = self.setup.project, self.setup.output_matrix
        return token_logprobs(states, batch.actions, project, temperature, vocab_size, entropy, matrix)

    def logprobs(self, sequences: TokenSequences, temperature: float, token_budget: int) -> Tensor:
        """log π(a|s) of every action, flat, without gradients."""
        return self.score(sequences, token_budget, lambda batch: self.token_logprobs(batch, temperature)[0])

    def entropies(self, sequences: TokenSequences, temperature: float, token_budget: int) -> Tensor:
        """Entropy of the full softmax at every state, flat, without gradients."""
        return self.score(sequences, token_budget, lambda batch: self.token_logprobs(batch, temperature, "measure")[1])

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor) -> list[Sampled]:
        """Sample one response per prompt; ``uniforms`` [prompts, max_new_tokens] decide every draw."""
        if self._takes_slots is None:
            longest = max(map(len, prompts)) + sampling.max_new_tokens
            self.adapters.activate(None)
            self._takes_slots = takes_slots(self.setup, max(longest, self.setup.context_length or 0))
        self.activate()
        if self._takes_slots:
            return SlotSampler(self.setup, prompts, sampling, uniforms).sample()
        return sample_sequences(self.setup, prompts, sampling, uniforms)
