"""The dimensions of a model, from its configuration alone: no weights are loaded or allocated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from peft import get_peft_model
from transformers import PreTrainedModel

from ppolm.base_setup.activation_memory import BlockShape
from ppolm.base_setup.adapter_forms import has_transposed_weights, new_lora_config
from ppolm.base_setup.block_weights import BlockWeights
from ppolm.base_setup.load_model import empty_model, find_blocks
from ppolm.config import ModelSettings
from ppolm.embedded import model_path
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
    """Parameters of one adapter."""
    trained_layers: int
    """Blocks that have LoRA layers."""

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
    return shape_of(empty_model(model_path(settings.model_name), settings.trust_remote_code), settings)


def shape_of(model: PreTrainedModel, settings: ModelSettings) -> ModelShape:
    """The shape of a model and of an adapter, which is added to the model."""
    parameters, (_, blocks) = model.num_parameters(), find_blocks(model)
    text, weights = model.config.get_text_config(), BlockWeights.of(model.config.get_text_config(), blocks)
    plain = "fused_blocks" in settings.fast_paths_off or settings.base_bits is not None
    copied = "fused_adapters" in settings.fast_paths_off or settings.base_bits is not None
    fused = not plain and fits(blocks[0])
    lora = new_lora_config(settings, model)
    lora.fan_in_fan_out = has_transposed_weights(model)
    with torch.device("meta"):
        adapted = get_peft_model(model, lora)
    largest = max(blocks, key=lambda block: sum(one.numel() for one in block.parameters()))
    return ModelShape(
        parameters=parameters,
        layers=len(blocks),
        block=BlockShape.of(text, largest, fused, copied),
        vocab=text.vocab_size,
        weights=weights,
        adapter=sum(one.numel() for name, one in adapted.named_parameters() if ".lora_" in name),
        trained_layers=settings.trainable_layers or len(blocks),
    )
