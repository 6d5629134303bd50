"""Tiny models of every transformers architecture whose configuration can be shrunk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.pytorch_utils import Conv1D

from tests.tiny_models import BOS, EOS, PAD, make_tokenizer

ALL = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
VOCABULARY = 259
LARGEST = 5_000_000
"""The most parameters of a tiny model: configurations that cannot be shrunk to it are left out."""

SHRUNK: dict[str, Any] = {
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "bos_token_id": BOS,
    "vocab_size": VOCABULARY,
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "embedding_size", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size"), 64),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_key_value_heads"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "rotary_dim"), 4),
    **dict.fromkeys(("head_dim", "state_size", "mamba_d_state"), 8),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 128),
    **dict.fromkeys(("num_experts_per_tok", "expansion_ratio"), 2),
}
"""Names of size settings, and their values here."""

LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "head_dim": 8,
    "qk_head_dim": 16,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "index_n_heads": 2,
    "index_head_dim": 8,
    "index_topk": 64,
}
"""Attention with compressed keys and values."""
MIXER: dict[str, Any] = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1}
LINEAR: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}
PER_LAYER: dict[str, Any] = {
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "sliding_window": 8,
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 8,
    "head_dim": 8,
}
"""Separate embeddings for every block, and keys that upper blocks share with lower ones."""
SPECIAL: dict[str, dict[str, Any]] = {
    "gemma4_text": {**PER_LAYER, "per_layer_config": {"1": {"head_dim": 16}, "3": {"head_dim": 16}}},
    "gemma3n_text": {
        **PER_LAYER,
        "laurel_rank": 4,
        "intermediate_size": [64] * 4,
        "activation_sparsity_pattern": [0.0] * 4,
    },
    **dict.fromkeys(
        ("axk1", "axk2", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa"), LATENT
    ),
    **dict.fromkeys(("longcat_flash", "minicpm3", "youtu"), LATENT),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), LINEAR),
    "bamba": {**MIXER, "attn_layer_indices": [1]},
    "granitemoehybrid": {**MIXER, "layers_block_type": ["mamba", "attention"], "shared_intermediate_size": 32},
    "dots1": {"n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    "falcon": {"head_dim": None},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8, "num_heads": 4},
    "mamba2": {"head_dim": 8, "num_heads": 8, "expand": 2, "n_groups": 1},
    "lfm2_moe": {"num_dense_layers": 1, "layer_types": ["conv", "full_attention"]},
    "llama4_text": {"num_hidden_layers": 4, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 64},
    "jamba": {"num_hidden_layers": 8, "attn_layer_offset": 1, "attn_layer_period": 2},
    "rwkv": {"num_hidden_layers": 8},
    "zamba2": {
        "num_hidden_layers": 4,
        "num_key_value_heads": 4,
        "n_mamba_heads": 4,
        "layers_block_type": ["mamba", "hybrid"] * 2,
        "adapter_rank": 4,
        "chunk_size": 8,
    },
    "bert": {"is_decoder": True},
    "roberta": {"is_decoder": True},
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon (ALiBi)": ("falcon", {"alibi": True, "head_dim": None}),
    "gemma2 (window 8)": ("gemma2", {"sliding_window": 8}),
    "gemma4_text (experts)": (
        "gemma4_text",
        {
            "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": True,
            "num_experts": 4,
            "top_k_experts": 2,
            "moe_intermediate_size": 16,
        },
    ),
    "gpt_neox (partial rotary)": ("gpt_neox", {"rotary_pct": 0.5}),
    "gpt_neox (one after the other)": ("gpt_neox", {"use_parallel_residual": False}),
    "granite (scaled logits)": ("granite", {"logits_scaling": 8.0, "residual_multiplier": 0.5}),
    "cohere (scaled logits)": ("cohere", {"logit_scale": 0.25, "use_qk_norm": True}),
    "llama (biases)": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama (one key head)": ("llama", {"num_key_value_heads": 1}),
    "llama (tied)": ("llama", {"tie_word_embeddings": True}),
    "mistral (window 8)": ("mistral", {"sliding_window": 8}),
    "opt (embeddings of another width)": ("opt", {"word_embed_proj_dim": 16}),
    "phi3 (long rope)": (
        "phi3",
        {
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "short_factor": [1.0] * 4,
                "long_factor": [2.0] * 4,
                "original_max_position_embeddings": 64,
            },
            "original_max_position_embeddings": 64,
        },
    ),
    "qwen2 (windows above)": ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
}
"""Configurations that take another path through an architecture's code."""


VISION: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "intermediate_size"), 16),
    **dict.fromkeys(("vision_output_dim", "projector_input_dim", "projector_output_dim", "out_hidden_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "depth"), 1),
    **dict.fromkeys(("num_attention_heads", "num_heads"), 2),
    "image_size": 28,
    "patch_size": 14,
}
WITH_VISION = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
"""Vision-language models, and the text model inside each."""


def tiny_config(name: str) -> PreTrainedConfig:
    """The configuration of a tiny model, by the name of its type or variant."""
    kind, changes = VARIANTS.get(name, (name, {}))
    if kind in WITH_VISION:
        text = tiny_config(WITH_VISION[kind]).to_dict()
        return CONFIG_MAPPING[kind](text_config=text, vision_config=VISION)
    default = CONFIG_MAPPING[kind]()
    known = {key: value for key, value in SHRUNK.items() if _is_size(default, key)}
    settings = known | SPECIAL.get(kind, {}) | changes
    return CONFIG_MAPPING[kind](**{key: value for key, value in settings.items() if value is not None})


def _is_size(config: PreTrainedConfig, name: str) -> bool:
    try:
        return isinstance(getattr(config, name), (int, list, type(None)))
    except (AttributeError, ValueError, RuntimeError):  # some have a different size in every layer
        return False


def parameters_of(name: str) -> int:
    """Number of parameters, counted on the meta device."""
    with torch.device("meta"):
        return int(AutoModelForCausalLM.from_config(tiny_config(name)).num_parameters())


def make_architecture(name: str, folder: Path, scale: float = 3.0) -> Path:
    """A model folder with random weights; ``scale`` sharpens attention and logits, so that mistakes show."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(tiny_config(name)).eval()
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, (torch.nn.Linear, torch.nn.Embedding, Conv1D)):
                    module.weight.mul_(scale)
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder
