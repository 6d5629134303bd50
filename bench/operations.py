"""How many operations scoring and training take at a shape: matrix products only, counted, not measured."""

from __future__ import annotations

from dataclasses import dataclass

from bench.shapes import SHAPES


@dataclass(frozen=True)
class Work:
    """A PPO step: how many responses to how many prompts, their lengths, and what trains."""

    shape: str
    prompt: float
    response: float
    batch: int
    samples: int = 1
    epochs: int = 1
    layers: int | None = None
    recomputed: bool = True
    """Whether the policy is scored too, instead of believing the sampler."""

    @property
    def tokens(self) -> float:
        """Tokens of one pass over all sequences, a prompt once for its samples."""
        return self.batch / self.samples * self.prompt + self.batch * self.response

    @property
    def block(self) -> float:
        """Operations of one block per token: 2 per weight of its linear layers, and attention over what it sees."""
        shape = SHAPES[self.shape]
        width, heads = shape["hidden_size"], shape["num_attention_heads"] * shape["head_dim"]
        kv = shape["num_key_value_heads"] * shape["head_dim"]
        weights = width * (heads + 2 * kv) + heads * width + 3 * width * shape["intermediate_size"]
        seen = (self.prompt + self.response) / 2
        return 2 * weights + 4 * heads * seen

    @property
    def logits(self) -> float:
        """Operations of the output matrix for all response tokens."""
        shape = SHAPES[self.shape]
        return 2 * shape["hidden_size"] * shape["vocab_size"] * self.batch * self.response

    def scoring(self) -> float:
        """Reference, value, reward and, if it is recomputed, policy: the layers below the trained ones once for all."""
        depth = SHAPES[self.shape]["num_hidden_layers"]
        upper = depth if self.layers is None else self.layers
        roles = 4 if self.recomputed else 3
        return self.tokens * self.block * ((depth - upper) + roles * upper) + (roles - 2) * self.logits

    def training(self) -> float:
        """Policy and value in every epoch: forward, and backward to the inputs (the weights are frozen).

        Logits that are made again in the backward pass, because they were not kept, do not count as work.
        """
        upper = SHAPES[self.shape]["num_hidden_layers"] if self.layers is None else self.layers
        return self.epochs * (2 * 2 * self.tokens * self.block * upper + 2 * self.logits)
