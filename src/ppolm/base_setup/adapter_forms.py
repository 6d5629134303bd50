"""Which forms of LoRA adapters can share one frozen base, and which are refused and why."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftConfig
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from ppolm.base_setup.four_bits import is_packed
from ppolm.base_setup.load_model import find_blocks
from ppolm.config import ModelSettings, PPOConfig
from ppolm.config.paths import did_you_mean
from ppolm.errors import ModelError
from ppolm.kernels.lora_linear import is_product
from ppolm.messages import brief, reason

UNDERSTOOD = frozenset(
    {
        *("task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision"),
        *("inference_mode", "r", "target_modules", "exclude_modules", "lora_alpha", "lora_dropout", "fan_in_fan_out"),
        *("use_rslora", "init_lora_weights", "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern"),
        *("use_dora", "lora_bias", "eva_config", "runtime_config", "megatron_core"),
        *("qalora_group_size", "ensure_weight_tying"),
    }
)
"""Settings of a LoRA adapter that may have any value; all others must have PEFT's default."""
WHY = {
    "bias": "it trains biases of the base itself, which all roles share",
    "modules_to_save": "it replaces whole modules of the base, and roles would need copies of them",
    "trainable_token_indices": "PEFT cannot save the adapters of other roles beside it",
    "layer_replication": "it changes the number of layers of the base",
    "target_parameters": "PEFT cannot hold several adapters on bare parameters",
}
REWRITES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Initialisations that subtract the adapter from the base, which changes the base for every role."""


def read_adapter_config(folder: str | Path) -> LoraConfig:
    """The adapter's own config; raises if the folder is not a LoRA adapter that we can train and switch."""
    if not (Path(folder) / "adapter_config.json").is_file():
        hint = did_you_mean(folder) or " Give a folder saved by PEFT or ppolm."
        raise ModelError(f"Adapter folder {folder} has no adapter_config.json.{hint}")
    try:
        config = PeftConfig.from_pretrained(str(folder))
    except Exception as error:  # whatever PEFT raises for a field it does not expect
        raise ModelError(f"Adapter folder {folder} has a damaged adapter_config.json: {reason(error)}") from error
    if not isinstance(config, LoraConfig):
        raise ModelError(f"Adapter {folder} is of type {brief(config.peft_type)}, expected a LoRA adapter.")
    refuse_values(config, folder)
    refuse_form(config, folder)
    weights = Path(folder) / "adapter_model.safetensors"
    if not weights.is_file() and (Path(folder) / "adapter_model.bin").exists():
        raise ModelError(
            f"Adapter {folder} is saved as adapter_model.bin, a pickle, which can run code when it is read. Save it "
            "again as safetensors: PEFT's save_pretrained does so."
        )
    return config


def refuse_values(config: LoraConfig, folder: str | Path) -> None:
    """Raise for a rank, scale or dropout that is not a usable number, and for a base name that is not text."""
    limits = {"r": (1, 2**20), "lora_alpha": (-1e6, 1e6), "lora_dropout": (0, 1)}
    for name, (low, high) in limits.items():
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise ModelError(f"Adapter {folder} has {name} {brief(value)}, expected a number from {low:g} to {high:g}.")
    base = config.base_model_name_or_path
    if base is not None and not isinstance(base, str):
        raise ModelError(f"Adapter {folder} names {brief(base)} as its base model, expected a name or a folder.")


def refuse_form(config: LoraConfig, folder: str | Path) -> None:
    """Raise for an adapter that cannot share its base with other roles, and say why."""
    start = str(config.init_lora_weights).lower()
    if start.startswith(REWRITES_BASE):
        raise ModelError(
            f"Adapter {folder} was begun with {brief(config.init_lora_weights)}, which changes the base model's own "
            "weights; here all roles share them. Save it again as plain LoRA: PEFT's save_pretrained does so with "
            "path_initial_model_for_weight_conversion."
        )
    default = LoraConfig()
    for field in dataclasses.fields(LoraConfig):
        value = getattr(config, field.name)
        if field.name in UNDERSTOOD or not value or value == getattr(default, field.name):
            continue
        why = WHY.get(field.name, "ppolm does not know what that does to the roles that share a base")
        shown = brief(value)
        raise ModelError(f"Adapter {folder} has {field.name} = {shown}: {why}. Train it without, or merge it.")


def shape_of(config: LoraConfig) -> LoraConfig:
    """The config of a new adapter of the same shape, which starts as a no-op and leaves the base untouched."""
    like = copy.deepcopy(config)
    like.init_lora_weights = True  # a special initialiser would run again
    like.eva_config = None
    like.inference_mode = False
    return like


def own_tensors(module: Any, adapter: str) -> list[tuple[str, Any]]:
    """What a PEFT layer holds for an adapter: pairs of a path below the layer, and the module or parameter there."""
    found = []
    for name in getattr(module, "adapter_layer_names", ()):
        holder = module
        for part in name.split("."):  # a wrapper may name something inside another layer
            holder = getattr(holder, part, {})
        if adapter in holder:
            found.append((f"{name}.{adapter}", holder[adapter]))
    return found


@contextmanager
def adding_lora(name: str) -> Iterator[None]:
    """Say in one sentence why PEFT cannot adapt a model, such as that no module has a name that is asked for."""
    try:
        yield
    except ValueError as error:
        raise ModelError(f"LoRA cannot be added to {name}: {error}") from error


def has_transposed_weights(model: nn.Module) -> bool:
    """Whether weights are stored transposed, as in GPT-2; PEFT detects it too, but warns about it."""
    return any(isinstance(module, Conv1D) for module in model.modules())


def new_lora_config(config: ModelSettings, model: PreTrainedModel) -> LoraConfig:
    """The LoRA shape that the configuration asks for."""
    targets = list(config.lora_target_modules)
    experts = any(weight.dim() > 2 for weight in model.parameters())
    # PEFT refuses dropout on weights that hold several experts, and PPO uses none.
    dropout = 0.0 if experts and isinstance(config, PPOConfig) else config.lora_dropout
    shape: dict[str, Any] = {"r": config.lora_r, "lora_alpha": config.lora_alpha, "lora_dropout": dropout}
    shape["exclude_modules"] = special_layers(model) or None
    if config.trainable_layers is None:
        modules = "all-linear" if targets == ["all-linear"] else targets
        return LoraConfig(**shape, target_modules=modules, task_type="CAUSAL_LM")
    name, blocks = find_blocks(model)
    if config.trainable_layers > len(blocks):
        raise ModelError(
            f"trainable_layers is {config.trainable_layers}, but {config.model_name} has {len(blocks)} layers."
        )
    if targets == ["all-linear"]:  # PEFT selects layers only for modules given by name
        parts = [part for block in blocks[-config.trainable_layers :] for part in block.named_modules()]
        linear = [path for path, module in parts if isinstance(module, (nn.Linear, Conv1D))]
        # If there is an adapter already, skip its own layers, and use the plain names of the layers it wraps.
        targets = sorted({path.removesuffix(".base_layer") for path in linear if ".lora_" not in path})
    top = list(range(len(blocks) - config.trainable_layers, len(blocks)))
    return LoraConfig(
        **shape, target_modules=targets, layers_to_transform=top, layers_pattern=name, task_type="CAUSAL_LM"
    )


def special_layers(model: nn.Module) -> list[str]:
    """Linear layers that must not have an adapter: those that do more than multiply, such as expert routers, and the
    output of state space mixers, whose fused kernels read the weight directly, bypassing any adapter."""
    linear = [(path, module) for path, module in model.named_modules() if isinstance(module, nn.Linear)]
    known = [path for path, module in linear if is_packed(module) or is_product(module)]
    special = {path.removesuffix(".base_layer").rpartition(".")[2] for path, _ in linear if path not in known}
    mixers = {"conv1d", "out_proj"} if any(path.endswith(".conv1d") for path, _ in model.named_modules()) else set()
    return sorted(special | mixers)
