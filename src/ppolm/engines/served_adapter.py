"""Which adapters vLLM can serve: checked before a run, because it would refuse them late, or ignore them silently."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from peft import LoraConfig, PeftConfig

from ppolm.engines.vllm_client import RANKS
from ppolm.errors import EngineError

OUTER = ("lm_head", "embed_out", "embed_tokens", "wte", "word_embeddings", "embed_in")
"""Output matrices and embeddings: vLLM leaves them out of the log-probabilities of a prompt, or does not adapt them."""

SERVED = {field.name for field in dataclasses.fields(PeftConfig)} | {
    # What vLLM's own reading of adapter_config.json (PEFTHelper, 0.32.0) applies as PEFT does.
    *("r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "init_lora_weights"),
    # Which layers have weights, which the file with the weights says, too.
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    # Without effect on what a finished adapter computes.
    *("lora_dropout", "fan_in_fan_out", "runtime_config", "megatron_config", "megatron_core", "ensure_weight_tying"),
    *("loftq_config", "eva_config", "corda_config", "lora_ga_config", "velora_config", "qalora_group_size"),
}
"""Settings of PEFT that may be anything. Any other that is not its default is refused: vLLM ignores what it does not
know, and newer versions of PEFT add forms."""
FORMS = {
    "use_dora": "DoRA",
    "modules_to_save": "whole modules",
    "bias": "biases of the base",
    "lora_bias": "LoRA biases",
    "target_parameters": "weights that are not matrices of a layer",
    "trainable_token_indices": "single tokens",
    "alora_invocation_tokens": "an adapter that begins at certain tokens",
    "layer_replication": "repeated layers",
}
OTHER_BASE = ("pissa", "olora", "corda", "loftq")
"""Initialisations with which PEFT also changes the base, which a server has unchanged."""


def refuse_unserved(lora: LoraConfig, parameters: Iterable[str]) -> None:
    """Raise for an adapter that vLLM would not serve, by what it cannot serve.

    ``parameters`` are the full names of its weights: they say which modules it has, however they were chosen.
    """
    usual = LoraConfig()
    for field in dataclasses.fields(lora):
        if field.name not in SERVED and getattr(lora, field.name) not in (None, getattr(usual, field.name, None)):
            raise _refusal(f"{FORMS.get(field.name, 'this form of LoRA')} ({field.name})")
    if str(lora.init_lora_weights).lower().startswith(OTHER_BASE):
        raise _refusal(f"an adapter beside a changed base (init_lora_weights: {lora.init_lora_weights})")
    outer = sorted({part for name in parameters for part in name.split(".") if part in OUTER})
    if outer:
        raise _refusal(f"an adapter on {outer[0]}, an output matrix or embedding")
    largest = largest_rank(lora)
    if largest > RANKS[-1]:
        raise EngineError(
            f"The adapter has rank {largest}, and vLLM serves at most {RANKS[-1]}. Set lora_r to one of "
            f"{', '.join(map(str, RANKS))}, or engine: local."
        )


def largest_rank(lora: LoraConfig) -> int:
    """The largest rank in an adapter, which a server's --max-lora-rank must allow."""
    return max([lora.r, *(lora.rank_pattern or {}).values()])


def _refusal(what: str) -> EngineError:
    return EngineError(f"vLLM cannot serve {what}. Change lora_target_modules or the adapter, or set engine: local.")
