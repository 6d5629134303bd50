"""Operations of a PPO step: matrix products only, counted rather than measured."""

from __future__ import annotations

from dataclasses import dataclass

from ppolm.estimate.model_shape import ModelShape


@dataclass(frozen=True)
class Work:
    """The workload of a PPO step: numbers and lengths of prompts and responses."""

    shape: ModelShape
    prompt: float
    """Mean prompt length in tokens."""
    response: float
    """Mean response length in tokens."""
    batch: int
    """Number of responses."""
    samples: int = 1
    """Responses per prompt, which is computed once for all of them."""
    epochs: int = 1
    rewards: int = 1
    """Reward models that score the responses."""
    recomputed: bool = True
    """Whether the policy's log-probabilities are recomputed instead of taken from the sampler."""
    recomputes: bool = False
    """Whether blocks are computed once more in the backward pass (gradient checkpointing)."""

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
        """Operations of attention in one block: 4 per attended token and head channel."""
        seen = self.response_tokens * (self.prompt + self.response / 2)
        return 4 * self.shape.heads * (seen + (self.prompt_tokens * self.prompt / 2 if prompts else 0))

    def products(self, blocks: float, last: float | None = None) -> float:
        """Operations of the linear layers of some blocks over all tokens, adapters included: 2 per weight and token.

        ``last``: tokens of one more block, which computes only keys and values for all tokens and the rest for these.
        """
        adapter = self.shape.adapter / self.shape.trained_layers
        active = self.shape.weights.active
        each = 2 * (active + adapter)
        kv = each * 2 * self.shape.hidden * self.shape.kv / active
        end = 0 if last is None else self.tokens * kv + last * (each - kv)
        return blocks * self.tokens * each + end

    def logits(self) -> float:
        """Operations of the output matrix for all response tokens."""
        return 2 * self.shape.hidden * self.shape.vocab * self.response_tokens

    def generation(self) -> float:
        """Operations of sampling: every prompt once, every response token once."""
        return self.products(self.shape.layers) + self.shape.layers * self.attention() + self.logits()

    def prompts_alone(self) -> float:
        """Operations of reading the prompts before the first token is sampled."""
        return self.shape.layers * 4 * self.shape.heads * self.prompt_tokens * self.prompt / 2 + (
            self.products(self.shape.layers) * self.prompt_tokens / self.tokens
        )

    def forward(self) -> float:
        """Operations of one role's trained blocks over all tokens, without the output matrix."""
        return self.products(self.shape.trained_layers - 1, self.response_tokens) + self._attention(
            self.shape.trained_layers
        )

    def scoring(self) -> float:
        """Operations of reference, value, rewards and, if recomputed, policy; layers below the trained ones run once.

        A reward model needs the last block only at the end of each response.
        """
        upper, lower = self.shape.trained_layers, self.shape.layers - self.shape.trained_layers
        ends = self.rewards * (self.products(upper - 1, self.batch) + (upper - 1) * self.attention())
        below = self.products(lower) + lower * self.attention()
        return below + (self._speakers + 1) * self.forward() + ends + self.scored_logits()

    def scored_logits(self) -> float:
        """The part of ``scoring`` that is the output matrix's."""
        return self._speakers * self.logits()

    @property
    def _speakers(self) -> int:
        """Roles whose log-probabilities are computed."""
        return 2 if self.recomputed else 1

    def training(self) -> float:
        """Operations of policy and value in every epoch: forward, and backward to the inputs (the weights are frozen).

        What attention recomputes by itself in the backward pass is not counted.
        """
        return 2 * self.epochs * self.update() + self.trained_logits()

    def update(self) -> float:
        """Operations of one role's trained blocks in one epoch, forward and backward, without the output matrix."""
        upper, again = self.shape.trained_layers, int(self.recomputes)
        return (2 + again) * self.products(upper - 1, self.response_tokens) + (3 + again) * self._attention(upper)

    def trained_logits(self) -> float:
        """The part of ``training`` that is the output matrix's: of the policy, forward and backward."""
        return self.epochs * 2 * self.logits()

    def _attention(self, blocks: int) -> float:
        """Attention of the top blocks, the last one for response tokens only."""
        return (blocks - 1) * self.attention() + self.attention(prompts=False)
