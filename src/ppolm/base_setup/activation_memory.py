"""How many bytes a pass with gradients holds at its peak: counted from the shape of a block, not measured.

``tests/estimate/test_activations.py`` compares the counts with what torch really allocates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peft.tuners.lora.layer import ParamWrapper

from ppolm.base_setup.block_weights import ONE_OF_SEVERAL, BlockWeights
from ppolm.batches.packing_cost import size_in
from ppolm.kernels.fused_block import fits

FLOAT = 4
"""Bytes of a float32: of adapters, gradients, moments and log-probabilities."""


@dataclass(frozen=True)
class Sizes:
    """Bytes of a number, by what it belongs to."""

    weights: int
    """Of the frozen weights, and of what our blocks keep for the backward pass."""
    states: int
    """Of hidden states: float32 on a CPU, whatever the weights are."""


@dataclass(frozen=True)
class BlockShape:
    """The widths of a block, as far as they decide what it keeps for the backward pass."""

    hidden: int
    heads: int
    """Width of all queries together."""
    kv: int
    """Width of all keys together, and also of all values."""
    inner: int
    """Inner width of the feed-forward layer."""
    normed: bool
    """Queries and keys have norms of their own."""
    fused: bool
    """Computed by our fused block rather than by the library's."""
    copied: bool = True
    """Adapters convert their inputs to float32 and keep them, as PEFT's do; ours do not."""
    chosen: int = 0
    """Experts that each token is sent to."""
    expert: int = 0
    """Inner width of one expert."""
    merged: int = 0
    """Weights of experts that have adapters: every pass adds these to a copy of the weights, which it keeps."""

    @classmethod
    def of(cls, config: Any, block: Any, fused: bool | None = None, copied: bool = True) -> BlockShape:
        """From a model's configuration and one of its blocks; ``fused`` is read from its parts unless it is known.

        A block without adapters has no ``merged`` weights.
        """
        widths = [max(one.shape) for one in block.parameters() if one.dim() == 2]
        heads = (
            size_in(config, "num_attention_heads") or 1
        )  # Mamba and RWKV have none: their mixers are as wide as this
        head = size_in(config, "head_dim") or config.hidden_size // heads
        weights = BlockWeights.of(config, [block])
        routed = weights.experts > 0
        return cls(
            hidden=config.hidden_size,
            heads=head * heads,
            kv=head * (size_in(config, "num_key_value_heads") or heads),
            inner=shared_width(block) if routed else size_in(config, "intermediate_size") or max(widths),
            normed=any(name.endswith("q_norm") for name, _ in block.named_modules()),
            fused=fits(block) if fused is None else fused,
            copied=copied,
            chosen=weights.chosen if routed else 0,
            expert=round(weights.experts / weights.count / (3 * config.hidden_size)) if routed else 0,
            merged=adapted_experts(block),
        )

    def kept(self, sizes: Sizes) -> int:
        """Bytes per token that a block keeps until its backward pass.

        The block's input, both norms, the sum after attention; queries and keys before their norms, attention's output
        before its projection; gate, up, and their product. And what attention itself needs: queries, keys, values and
        output. The library's blocks keep silu(gate), too; and where weights are not float32, the norms' inputs in
        float32, and those of adapters that are not ours, one copy for each layer that reads them.
        """
        norms = self.heads + self.kv if self.normed else 0
        attention = (2 * self.heads + 2 * self.kv) * sizes.states
        plain = 4 * self.hidden + self.heads + norms + 3 * self.inner
        if self.fused:
            return plain * sizes.weights + attention
        attention += self._routed(sizes)
        if sizes.weights == FLOAT:
            return (plain + self.inner) * FLOAT + attention
        if not self.copied:
            normed = 2 * self.hidden + norms
            return normed * FLOAT + (plain - self.hidden - norms + self.inner) * sizes.weights + attention
        wide = 7 * self.hidden + self.heads + norms + self.inner
        return wide * FLOAT + 3 * self.inner * sizes.weights + attention

    def _routed(self, sizes: Sizes) -> int:
        """Bytes per token that its experts keep: each one's output; gate and up, and silu(gate). Where the experts have
        adapters, gradients of their weights need each one's input, too, and the product of gate and up."""
        width = 2 * self.hidden + 4 * self.expert if self.merged else self.hidden + 3 * self.expert
        return self.chosen * width * sizes.weights

    def working(self, sizes: Sizes) -> int:
        """Bytes per token that a block needs while it is computed, besides what it keeps; fitted to measured peaks.

        Most of what our blocks compute is kept; where kept numbers are narrower than states, both exist for a while.
        """
        if self.chosen:
            return (2 * self.hidden + 2 * self.inner + self.chosen * self.expert) * sizes.weights
        if not self.fused:
            return (2 * self.hidden + 2 * self.inner) * FLOAT
        wide = sizes.weights < sizes.states
        return (2 * self.hidden + (3 * self.inner if wide else 0)) * sizes.states

    def fixed(self, layers: int, sizes: Sizes, recomputes: bool = False) -> int:
        """Bytes that a pass with gradients keeps however small it is: copies of experts with their adapters added."""
        return (1 if recomputes else layers) * self.merged * sizes.weights

    def per_token(self, layers: int, sizes: Sizes, recomputes: bool = False) -> int:
        """Bytes per token of a pass with gradients through ``layers`` trained blocks, at its peak."""
        if recomputes:  # every block's input, and one block whole
            return layers * self.hidden * sizes.states + self.kept(sizes) + self.working(sizes)
        return layers * self.kept(sizes) + self.working(sizes)

    def training(self, layers: int, tokens: float, wanted: float, sizes: Sizes, recomputes: bool) -> int:
        """Bytes of a pass over ``tokens``; a fused last block is computed only at the ``wanted`` ones of them."""
        whole = tokens * self.per_token(layers, sizes, recomputes) + self.fixed(layers, sizes, recomputes)
        if recomputes or not self.fused:
            return int(whole)
        skipped = self.kept(sizes) - 2 * self.hidden * sizes.weights - 3 * self.kv * sizes.states
        return int(whole - (tokens - wanted) * max(0, skipped))


def shared_width(block: Any) -> int:
    """Inner width of the feed-forward layers that every token passes besides its experts; 0 if there are none."""
    found = [
        getattr(module, "out_features", 0)
        for path, module in block.named_modules()
        if path.endswith("up_proj") and ONE_OF_SEVERAL.search(path) is None
    ]
    return sum(found)


def adapted_experts(block: Any) -> int:
    """Weights of a block's experts that have adapters: PEFT adds those to the weights themselves."""
    return sum(module.get_param().numel() for module in block.modules() if isinstance(module, ParamWrapper))
