"""How a transformers model of a known architecture is laid out in GGUF: its numbers, and its tensors by name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, PreTrainedConfig, PreTrainedModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ppolm.errors import ModelError
from ppolm.messages import brief

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""Architectures whose mapping is certain, by the model type of transformers. In GGUF a Mistral is a Llama; its window
makes no difference in a context that is no longer."""
INSTEAD = (
    "Export with --format merged, and convert that folder with llama.cpp's own script: "
    "python convert_hf_to_gguf.py FOLDER."
)
"""What to do if we do not write a model as GGUF."""
HALVES_APART = "llama"
"""The architecture whose query and key rows GGUF stores in pairs of a rotation; elsewhere halves stay apart."""
YARN_KEYS = frozenset({"rope_type", "rope_theta", "factor", "original_max_position_embeddings", "type"})
"""Settings of YaRN beyond which llama.cpp's defaults would not be transformers' ones."""


@dataclass(frozen=True)
class Layout:
    """An architecture in GGUF, and the numbers that describe one model of it."""

    architecture: str
    heads: int
    key_heads: int
    numbers: Mapping[str, int | float | str]
    """Metadata below the architecture's name."""
    rope_factors: np.ndarray | None
    """What each frequency is divided by, if the model's rotations are scaled unevenly (Llama 3)."""


def refuse_unknown(config: Any) -> None:
    """Raise for an architecture that we do not write; to be called before its weights are loaded for nothing."""
    if config.model_type not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ModelError(
            f"GGUF is written for {known}, and this model is of type {brief(str(config.model_type))}. {INSTEAD}"
        )


def layout_of(model: PreTrainedModel) -> Layout:
    """The layout of a model; raises for one that we do not know how to write."""
    config: Any = model.config
    refuse_unknown(config)
    architecture = ARCHITECTURES[config.model_type]
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if getattr(config, "hidden_act", "silu") != "silu":
        raise ModelError(f"GGUF has no {brief(config.hidden_act)} for this architecture, only silu. {INSTEAD}")
    scaling, factors = rope_scaling(config, architecture)
    numbers: dict[str, int | float | str] = {
        "vocab_size": model.get_input_embeddings().weight.shape[0],
        "context_length": context_of(config),
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.dimension_count": head,
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
        **scaling,
    }
    return Layout(architecture, config.num_attention_heads, config.num_key_value_heads, numbers, factors)


def config_beside(model: PreTrainedModel) -> PreTrainedConfig:
    """The configuration that goes with the file: transformers reads a Mistral from GGUF as the Llama it is called."""
    config = model.config
    if config.model_type != "mistral":
        return config
    of_mistral = {"model_type", "architectures", "sliding_window", "transformers_version"}
    same = {key: value for key, value in config.to_dict().items() if key not in of_mistral}
    return LlamaConfig(**same | {"max_position_embeddings": context_of(config)}, architectures=["LlamaForCausalLM"])


def context_of(config: Any) -> int:
    """Tokens that the model reads: with a sliding window no more than that, where it makes no difference."""
    window = getattr(config, "sliding_window", None)
    if config.model_type != "mistral" and not getattr(config, "use_sliding_window", False):
        window = None
    return int(min(config.max_position_embeddings, window or math.inf))


def rope_scaling(config: Any, architecture: str) -> tuple[dict[str, int | float | str], np.ndarray | None]:
    """Metadata of scaled rotations, and the divisors of the frequencies if each has its own."""
    rope = config.rope_parameters
    kind = rope.get("rope_type", "default")
    if rope.get("partial_rotary_factor", 1.0) == 1.0:
        if kind == "default":
            return {}, None
        if kind == "linear":
            return {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}, None
        if kind == "yarn" and {key for key, value in rope.items() if value is not None} <= YARN_KEYS:
            original = int(rope["original_max_position_embeddings"])
            shape: dict[str, int | float | str] = {"rope.scaling.original_context_length": original}
            return {"rope.scaling.type": "yarn", "rope.scaling.factor": float(rope["factor"]), **shape}, None
        if kind == "llama3" and architecture == "llama":
            return {}, rope_factors(config)
    raise ModelError(f"How this model scales its rotations ({brief(str(kind))}) is not written as GGUF here. {INSTEAD}")


def rope_factors(config: Any) -> np.ndarray:
    """The plain frequencies over the scaled ones [head_dim / 2]."""
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    size = 2 * len(scaled)
    plain = config.rope_parameters["rope_theta"] ** -(torch.arange(0, size, 2, dtype=torch.float64) / size)
    return (plain / scaled.double()).float().numpy()


def tensors_of(model: PreTrainedModel, layout: Layout) -> Iterator[tuple[str, Tensor]]:
    """Every weight under its name in GGUF, one at a time; a tied output matrix is left out, as GGUF has it."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    arch = next(key for key, name in MODEL_ARCH_NAMES.items() if name == layout.architecture)
    names = get_tensor_name_map(arch, int(layout.numbers["block_count"]))
    if layout.rope_factors is not None:
        yield "rope_freqs.weight", torch.from_numpy(layout.rope_factors)
    for key, weight in model.named_parameters():  # a tied weight comes once, as the embedding
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise ModelError(f"GGUF has no place for the weight {key} of this model. {INSTEAD}")
        if layout.architecture == HALVES_APART and ".q_proj." in key:
            weight = paired(weight, layout.heads)
        elif layout.architecture == HALVES_APART and ".k_proj." in key:
            weight = paired(weight, layout.key_heads)
        yield name, weight


def paired(weight: Tensor, heads: int) -> Tensor:
    """Rows of each head [h, 2, d/2] in the order [h, d/2, 2]: the two rows of one rotation side by side."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)
