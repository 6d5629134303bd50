"""A transformer block in fewer steps than the library's; the last block is computed only where its output is needed.

Most current models are built alike: norm, attention with rotary positions, add; norm, gated feed-forward, add. For
those, this computes the same numbers from the same modules. Whether a model is of that kind is tested, not guessed.
"""

from __future__ import annotations

import copy
import dataclasses
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ppolm.kernels.attention import MASKED
from ppolm.kernels.fused_ops import gated, rms_norm, rotate
from ppolm.kernels.lora_linear import apply_layers
from ppolm.kernels.replaced_forward import find, install, standing_in, undo


@dataclass(frozen=True, eq=False)
class FusedBlock:
    """Replaces the ``forward`` of a block: h = x + attention(norm(x)), y = h + feed-forward(norm(h))."""

    attention: Any
    mlp: Any
    before_attention: Any
    """The norm [d] before attention."""
    before_mlp: Any
    """The norm [d] before the feed-forward layer."""
    positions: Tensor | None = None
    """Positions [B, W] at which to compute the output; None for all."""

    @classmethod
    def of(cls, block: Any) -> FusedBlock:
        """From the parts of a block, which are held here because a module's attribute lookup is slow."""
        return cls(block.self_attn, block.mlp, block.input_layernorm, block.post_attention_layernorm)

    def __call__(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,  # noqa: ARG002 the library's signature
        past_key_values: Any = None,
        use_cache: bool | None = False,  # noqa: ARG002 the library's signature
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **options: Any,
    ) -> Tensor:
        """Output of a block [B, T, d], or [B, W, d] with ``positions``."""
        assert position_embeddings is not None
        attention, at = self.attention, self.positions
        residual = hidden_states if at is None else _take(hidden_states, at)
        query, key, value = self._project(hidden_states, position_embeddings)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, attention.layer_idx)
        if at is not None:
            attention_mask = _mask_of(at, hidden_states.shape[1], attention_mask)
        attend = ALL_ATTENTION_FUNCTIONS[attention.config._attn_implementation]
        dropout = attention.attention_dropout if attention.training else 0.0
        answer, _ = attend(attention, query, key, value, attention_mask, dropout, attention.scaling, **options)
        (mixed,) = apply_layers((attention.o_proj,), answer.reshape(*residual.shape[:-1], -1))
        return self._feed_forward(residual + mixed)

    def _project(self, hidden_states: Tensor, turns: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, H, T or W, d], keys and values [B, H, T, d]: keys and values are needed at every position."""
        attention, normed = self.attention, _norm(self.before_attention, hidden_states)
        if self.positions is None:
            query, key, value = apply_layers((attention.q_proj, attention.k_proj, attention.v_proj), normed)
            query_turns = turns
        else:
            (query,) = apply_layers((attention.q_proj,), _take(normed, self.positions))
            key, value = apply_layers((attention.k_proj, attention.v_proj), normed)
            query_turns = (_take(turns[0], self.positions), _take(turns[1], self.positions))
        value = value.view(*value.shape[:-1], -1, attention.head_dim).transpose(1, 2)
        return self._heads(query, "q_norm", query_turns), self._heads(key, "k_norm", turns), value

    def _heads(self, projected: Tensor, norm: str, turns: tuple[Tensor, Tensor]) -> Tensor:
        """Queries or keys [B, H, T, d], rotated by their positions."""
        heads = projected.view(*projected.shape[:-1], -1, self.attention.head_dim)
        module = getattr(self.attention, norm, None)
        if module is not None:
            heads = _norm(module, heads)
        return rotate(heads, turns[0].unsqueeze(2), turns[1].unsqueeze(2)).transpose(1, 2)

    def _feed_forward(self, hidden: Tensor) -> Tensor:
        """h + W_down (silu(W_gate n) · W_up n) with n = norm(h)."""
        gate, up = apply_layers((self.mlp.gate_proj, self.mlp.up_proj), _norm(self.before_mlp, hidden))
        (inner,) = apply_layers((self.mlp.down_proj,), gated(gate, up, self.before_mlp.weight.dtype))
        return hidden + inner


def _norm(module: Any, x: Tensor) -> Tensor:
    return rms_norm(x, module.weight, module.variance_epsilon)


def _take(x: Tensor, positions: Tensor) -> Tensor:
    """Rows [B, W, d] of x [B or 1, T, d]."""
    return x.expand(len(positions), -1, -1).gather(1, positions[..., None].expand(-1, -1, x.shape[-1]))


def _mask_of(positions: Tensor, width: int, mask: Tensor | None) -> Tensor:
    """[B, 1, W, T]: what these positions [B, W] see, taken from a mask [B, 1, T, T], or causal without one."""
    if mask is None:
        return (torch.arange(width, device=positions.device) <= positions[..., None])[:, None]
    return mask.gather(2, positions[:, None, :, None].expand(-1, -1, -1, width))


def last_block_at(block: nn.Module | None, positions: Tensor) -> AbstractContextManager[None]:
    """Let a fused block compute its output only at some positions [B, W]; without a block, nothing changes."""
    if block is None:
        return nullcontext()
    fused = find(block)
    assert isinstance(fused, FusedBlock), "only a fused block can be computed at some positions alone"
    return standing_in([block], dataclasses.replace(fused, positions=positions))


def fuse_blocks(model: PreTrainedModel, blocks: nn.ModuleList, agree: bool | None = None) -> str | None:
    """Let the blocks of a model compute as above; returns the reason if they are not of the common kind.

    ``agree``: the answer of ``blocks_agree``, if it was asked before.
    """
    if model.config._attn_implementation not in MASKED:
        return f"attention is {model.config._attn_implementation}, not sdpa"
    if not all(map(fits, blocks)):
        return "blocks do not consist of norm, attention, norm and gated feed-forward"
    if any(_traits(block) != _traits(blocks[0]) for block in blocks):
        return "blocks are not all alike"
    if not (blocks_agree(blocks[0]) if agree is None else agree):
        return "blocks have the usual parts but compute something else"
    for block in blocks:
        install(block, FusedBlock.of(block))
    return None


def unfuse_blocks(blocks: nn.ModuleList) -> None:
    """Restore the library's own blocks."""
    undo(blocks)


def fits(block: Any) -> bool:
    """Whether a block has exactly the parts that the computation uses."""
    parts = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
    if {name for name, _ in block.named_children()} != parts:
        return False
    inside = {name for name, _ in block.self_attn.named_children()} - {"q_norm", "k_norm"}
    norms = [module for name, module in block.named_modules() if name.endswith("norm")]
    return (
        inside == {"q_proj", "k_proj", "v_proj", "o_proj"}
        and {name for name, _ in block.mlp.named_children()} == {"gate_proj", "up_proj", "down_proj", "act_fn"}
        and all(hasattr(norm, "variance_epsilon") for norm in norms)
        and all(hasattr(block.self_attn, name) for name in ("head_dim", "scaling", "layer_idx", "attention_dropout"))
    )


def _traits(block: Any) -> dict[str, Any]:
    """The settings of a block's attention, except those that only say where it is and which mask it gets."""
    plain = {name: value for name, value in vars(block.self_attn).items() if isinstance(value, (int, float, str))}
    return {name: plain[name] for name in plain.keys() - {"layer_idx", "layer_type", "sliding_window"}}


@torch.no_grad()
def blocks_agree(block: Any) -> bool:
    """Whether both ways give a block's numbers, compared in float32 whatever the model's precision."""
    if not fits(block):
        return False
    block = copy.deepcopy(block).float().cpu().eval()
    norm = block.input_layernorm.weight
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, 5, len(norm), generator=generator)
    width = block.self_attn.head_dim
    angles = torch.rand(1, 5, width // 2, generator=generator).repeat(1, 1, 2)
    given: dict[str, Any] = {"position_embeddings": (angles.cos(), angles.sin()), "attention_mask": None}
    given["position_ids"] = torch.arange(10**6, 10**6 + 5)[None]  # far out, where some models scale attention
    plain, ours = block(hidden, **given), FusedBlock.of(block)(hidden, **given)
    plain = plain[0] if isinstance(plain, tuple) else plain
    return plain.shape == ours.shape and torch.allclose(plain, ours, rtol=1e-4, atol=1e-4 * float(plain.abs().max()))
