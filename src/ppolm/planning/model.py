"""The model of a plan: its configuration alone, from a folder, the Hub, or a table of published shapes."""

from __future__ import annotations

import difflib
from typing import Any

from transformers import LlamaConfig, PreTrainedConfig, Qwen3Config

from ppolm.base_setup.load_model import empty_of, load_causal_config
from ppolm.config import PPOConfig
from ppolm.embedded import model_path
from ppolm.errors import ConfigError
from ppolm.estimate.model_shape import ModelShape, shape_of
from ppolm.messages import brief


def _qwen3(hidden: int, layers: int, heads: int, inner: int, tied: bool) -> PreTrainedConfig:
    sizes: dict[str, Any] = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    sizes |= {"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": inner, "vocab_size": 151936}
    return Qwen3Config(**sizes, max_position_embeddings=40960, tie_word_embeddings=tied)


def _llama3(hidden: int, layers: int, heads: int, inner: int, tied: bool) -> PreTrainedConfig:
    sizes: dict[str, Any] = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    sizes |= {"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": inner, "vocab_size": 128256}
    return LlamaConfig(**sizes, max_position_embeddings=131072, tie_word_embeddings=tied)


SHAPES = {
    "qwen3-0.6b": (_qwen3, 1024, 28, 16, 3072, True),
    "qwen3-1.7b": (_qwen3, 2048, 28, 16, 6144, True),
    "qwen3-4b": (_qwen3, 2560, 36, 32, 9728, True),
    "qwen3-8b": (_qwen3, 4096, 36, 32, 12288, False),
    "qwen3-14b": (_qwen3, 5120, 40, 40, 17408, False),
    "qwen3-32b": (_qwen3, 5120, 64, 64, 25600, False),
    "llama-3-3b": (_llama3, 3072, 28, 24, 8192, True),
    "llama-3-8b": (_llama3, 4096, 32, 32, 14336, False),
    "llama-3-70b": (_llama3, 8192, 80, 64, 28672, False),
}
"""Published shapes: family, width, blocks, heads, inner width, whether embeddings and output matrix are one."""


def shape_config(name: str) -> PreTrainedConfig:
    """The configuration of a published shape."""
    if name not in SHAPES:
        near = difflib.get_close_matches(name[:100], SHAPES, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ConfigError(
            f"shape is {brief(name)}, which is not in the table.{hint} Use {', '.join(SHAPES)}; or leave it out and "
            "name a folder with the model's config.json as --model-name."
        )
    family, hidden, layers, heads, inner, tied = SHAPES[name]
    return family(hidden, layers, heads, inner, tied)


def model_config(settings: PPOConfig) -> PreTrainedConfig:
    """The configuration of the model that settings name. A folder with config.json alone is enough."""
    return load_causal_config(model_path(settings.model_name), settings.trust_remote_code, weights=False)


def shape_from(config: PreTrainedConfig, settings: PPOConfig) -> ModelShape:
    """The dimensions of a model and of the adapters that settings describe; no weights are allocated."""
    return shape_of(empty_of(config, settings.model_name, settings.trust_remote_code), settings)
