"""Which adapters vLLM can serve: checked before a run, because it would refuse them late, or ignore them silently."""

from __future__ import annotations

from collections.abc import Iterable

from peft import LoraConfig

from ppolm.engines.vllm_client import RANKS
from ppolm.errors import EngineError

OUTER = ("lm_head", "embed_out", "embed_tokens", "wte", "word_embeddings", "embed_in")
"""Output matrices and embeddings: vLLM leaves them out of the log-probabilities of a prompt, or does not adapt them."""


def refuse_unserved(lora: LoraConfig, parameters: Iterable[str]) -> None:
    """Raise for an adapter that vLLM would not serve, by what it cannot serve.

    ``parameters`` are the full names of its weights: they say which modules it has, however they were chosen. Forms
    that no engine takes are refused where an adapter is read (base_setup/adapter_forms.py). vLLM 0.32.0 scales layers
    by ``rank_pattern`` and ``alpha_pattern`` as PEFT does; one that does not fails the proof of its first swap.
    """
    forms = {
        "DoRA (use_dora)": lora.use_dora,
        "whole modules (modules_to_save)": lora.modules_to_save,
        "biases of the base (bias)": lora.bias != "none",
        "LoRA biases (lora_bias)": lora.lora_bias,
        "weights that are not matrices of a layer (target_parameters)": lora.target_parameters,
        "single tokens (trainable_token_indices)": lora.trainable_token_indices,
    }
    for form, found in forms.items():
        if found:
            raise _refusal(form)
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
