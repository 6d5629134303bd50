"""How many operations a PPO step takes: matrix products only, counted, not measured."""

from __future__ import annotations

from dataclasses import dataclass

from ppolm.estimate.model_shape import ModelShape


@dataclass(frozen=True)
class Work:
    """A PPO step: how many responses to how many prompts, and their lengths."""

    shape: ModelShape
    prompt: float
    """Mean tokens of a prompt."""
    response: float
    """Mean tokens of a response."""
    batch: int
    """Responses."""
    samples: int = 1
    """Responses per prompt; a prompt is computed once for them."""
    epochs: int = 1
    rewards: int = 1
    """Reward models that score the responses."""
    recomputed: bool = True
    """Whether the policy is scored too, instead of believing the sampler."""

    @property
    def prompt_tokens(self) -> float:
        """Prompt tokens of one pass over all sequences."""
        return self.batch / self.samples * self.prompt

    @property
    def response_tokens(self) -> float:
        """Response tokens of one pass over all sequences."""
        return self.batch * self.response

    @property
    def tokens(self) -> float:
        """Tokens of one pass over all sequences."""
        return self.prompt_tokens + self.response_tokens

    def attention(self, prompts: bool = True) -> float:
        """Operations of attention in one block: 4 per token that is seen and channel of the heads."""
        seen = self.response_tokens * (self.prompt + self.response / 2)
        return 4 * self.shape.heads * (seen + (self.prompt_tokens * self.prompt / 2 if prompts else 0))

    def products(self, blocks: float, last: float | None = None) -> float:
        """Operations of the linear layers of some blocks over all tokens, 2 per weight; the adapters' too.

        ``last``: tokens of one more block, in which only keys and values are computed for all tokens.
        """
        adapter = self.shape.adapter / self.shape.trained_layers
        each = 2 * (self.shape.block_weights + adapter)
        kv = 2 * (self.shape.block_weights + adapter) * 2 * self.shape.hidden * self.shape.kv / self.shape.block_weights
        end = 0 if last is None else self.tokens * kv + last * (each - kv)
        return blocks * self.tokens * each + end

    def logits(self) -> float:
        """Operations of the output matrix for all response tokens."""
        return 2 * self.shape.hidden * self.shape.vocab * self.response_tokens

    def generation(self) -> float:
        """Every prompt once, every response token once."""
        return self.products(self.shape.layers) + self.shape.layers * self.attention() + self.logits()

    def scoring(self) -> float:
        """Reference, value, rewards and, if it is recomputed, policy: the layers below the trained ones once for all.

        A reward model needs the last block at the end of each response alone.
        """
        upper, lower = self.shape.trained_layers, self.shape.layers - self.shape.trained_layers
        speakers = 2 if self.recomputed else 1
        read_all = (speakers + 1) * (self.products(upper - 1, self.response_tokens) + self._attention(upper))
        ends = self.rewards * (self.products(upper - 1, self.batch) + (upper - 1) * self.attention())
        return self.products(lower) + lower * self.attention() + read_all + ends + speakers * self.logits()

    def training(self) -> float:
        """Policy and value in every epoch: forward, and backward to the inputs (the weights are frozen).

        What is made again in the backward pass, because it was not kept, does not count as work.
        """
        upper = self.shape.trained_layers
        one = 2 * self.products(upper - 1, self.response_tokens) + 3 * self._attention(upper)
        return self.epochs * (2 * one + 2 * self.logits())

    def _attention(self, blocks: int) -> float:
        """Attention of the top blocks, the last at the responses alone."""
        return (blocks - 1) * self.attention() + self.attention(prompts=False)
