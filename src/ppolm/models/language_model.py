"""A role that generates text: log-probabilities of tokens, and sampling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from ppolm.batches.sequences import Microbatch, TokenSequences
from ppolm.kernels.token_logprobs import Entropy, token_logprobs
from ppolm.models.base_model import BaseModel
from ppolm.rollout.samplers import sample
from ppolm.rollout.sampling import Sampled, Sampling
from ppolm.rollout.streaming import stream


class LanguageModel(BaseModel):
    """Base class of the policy, its reference, and fully fine-tuned models."""

    def token_logprobs(self, batch: Microbatch, temperature: float, entropy: Entropy = "skip") -> tuple[Tensor, Tensor]:
        """log π(a|s) and entropy [n] of the actions of one microbatch, with gradients if the role is trainable."""
        setup = self.setup
        with self.active(), setup.computing():
            return token_logprobs(
                self.states(batch),
                batch.actions,
                setup.project,
                temperature,
                setup.text_config.vocab_size,
                entropy,
                setup.output_matrix,
                setup.head.scale,
            )

    def logprobs(self, sequences: TokenSequences, temperature: float, token_budget: int) -> Tensor:
        """log π(a|s) of every action, flat, without gradients."""
        return self.score(sequences, token_budget, lambda batch: self.token_logprobs(batch, temperature)[0])

    def entropies(self, sequences: TokenSequences, temperature: float, token_budget: int) -> Tensor:
        """Entropy of the full softmax at every state, flat, without gradients."""
        return self.score(sequences, token_budget, lambda batch: self.token_logprobs(batch, temperature, "measure")[1])

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor) -> list[Sampled]:
        """Sample one response per prompt; ``uniforms`` [prompts, max_new_tokens] decide every draw."""
        longest = max(map(len, prompts), default=0) + sampling.max_new_tokens
        with self.active(), self.setup.whole():
            if not prompts:
                return []
            return sample(self.setup.capabilities.sampler_for(longest), self.setup, prompts, sampling, uniforms)

    def stream(self, prompt: Sequence[int], sampling: Sampling, uniforms: Tensor) -> Iterator[int]:
        """One response, each token as soon as it is drawn; ``uniforms`` [max_new_tokens]. To be read to its end or
        closed before another role computes."""
        kind = self.setup.capabilities.sampler_for(len(prompt) + sampling.max_new_tokens)
        with self.active(), self.setup.whole():
            yield from stream(kind, self.setup, prompt, sampling, uniforms)
