"""The dimensions of a model, from its configuration alone: no weights are loaded or allocated."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PreTrainedModel

from ppolm.base_setup.activation_memory import BlockShape
from ppolm.base_setup.block_weights import BlockWeights
from ppolm.base_setup.load_model import empty_model, find_blocks
from ppolm.config import ModelSettings
from ppolm.embedded import model_path
from ppolm.estimate.adapter_sizes import adapter_sizes
from ppolm.estimate.packed_weights import Packed, packed_weights
from ppolm.kernels.fused_block import fits


@dataclass(frozen=True)
class ModelShape:
    """Dimensions of a transformer with identical blocks, and of a LoRA adapter on it."""

    parameters: int
    layers: int
    block: BlockShape
    vocab: int
    weights: BlockWeights
    """Numbers of weights in the matrices of one block: stored, and used by a token."""
    adapter: int
    """Parameters of the policy's adapter."""
    trained_layers: int
    """Blocks that have LoRA layers."""
    value_adapter: int
    """Parameters of the value model's adapter."""
    reward_adapters: tuple[int, ...] = ()
    """Parameters of reward adapters that are loaded; new ones are as large as the value model's."""
    rank: int = 1
    """Rank of the policy's adapter."""
    packed: Packed | None = None
    """How the model's own files pack its weights, if they do."""

    @property
    def block_weights(self) -> float:
        """Weights in the matrices of one block, all experts included."""
        return self.weights.stored

    @property
    def hidden(self) -> int:
        """Width of the hidden states."""
        return self.block.hidden

    @property
    def heads(self) -> int:
        """Width of all queries together."""
        return self.block.heads

    @property
    def kv(self) -> int:
        """Width of all keys together, and also of all values."""
        return self.block.kv

    @property
    def inner(self) -> int:
        """Inner width of the feed-forward layers."""
        return self.block.inner


def read_shape(settings: ModelSettings) -> ModelShape:
    """The shape of the model and adapters described by the settings."""
    source = model_path(settings.model_name)
    return shape_of(empty_model(source, settings.trust_remote_code, weights=False), settings)


def shape_of(model: PreTrainedModel, settings: ModelSettings) -> ModelShape:
    """The shape of a model and of the adapters, which are put on the model."""
    parameters, (_, blocks) = model.num_parameters(), find_blocks(model)
    text, packed = model.config.get_text_config(), packed_weights(model.config)
    weights = BlockWeights.of(text, blocks)
    off = settings.fast_paths_off
    plain, ours = settings.base_bits is not None or packed is not None, fits(blocks[0])
    sizes = adapter_sizes(model, settings)
    largest = max(blocks, key=lambda block: sum(one.numel() for one in block.parameters()))
    fused = ours and not plain and "fused_blocks" not in off
    return ModelShape(
        parameters=parameters,
        layers=len(blocks),
        block=BlockShape.of(text, largest, fused, copied=plain or "fused_adapters" in off),
        vocab=text.vocab_size,
        weights=weights,
        adapter=sizes.policy,
        trained_layers=len(blocks) - sizes.first_block,
        value_adapter=sizes.value,
        reward_adapters=sizes.rewards,
        rank=sizes.rank,
        packed=packed,
    )
