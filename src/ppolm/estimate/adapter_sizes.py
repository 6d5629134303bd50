"""How large the adapters of the roles are: new ones as the settings say, loaded ones as their own folders do."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from ppolm.base_setup.adapter_forms import (
    adding_lora,
    has_transposed_weights,
    new_lora_config,
    read_adapter_config,
    shape_of,
)
from ppolm.base_setup.load_model import find_blocks
from ppolm.config import ModelSettings, PPOConfig
from ppolm.config.start import policy_of, value_of
from ppolm.embedded import reward_path
from ppolm.names import EMBEDDED


@dataclass(frozen=True)
class AdapterSizes:
    """Parameters of the adapters."""

    policy: int
    """Also of the SFT model that it starts from."""
    value: int
    rewards: tuple[int, ...]
    """Of loaded reward models; new ones are as large as ``value``."""
    rank: int
    """The policy's highest rank."""
    first_block: int
    """The lowest block that policy or value model train."""


def adapter_sizes(model: PreTrainedModel, settings: ModelSettings) -> AdapterSizes:
    """The sizes of the adapters that are put on an empty model, which has them afterwards."""
    new = new_lora_config(settings, model)
    policy, value, rewards = new, new, list[LoraConfig]()
    if isinstance(settings, PPOConfig):
        rewards = [shape_of(read_adapter_config(reward_path(folder))) for folder in reward_folders(settings)]
        value = rewards[0] if rewards and settings.value_init == "reward" else new
        if settings.start_from is not None:
            policy = shape_of(read_adapter_config(policy_of(settings.start_from)))
            value = shape_of(read_adapter_config(value_of(settings.start_from))) if settings.start_value else value
        elif settings.sft_adapter is not None:
            policy = shape_of(read_adapter_config(settings.sft_adapter))
    every: list[LoraConfig] = []
    for one in (policy, value, *rewards):
        if not any(one is other for other in every):
            every.append(one)
    adapted = _adapted(model, every, settings.model_name)
    sizes = [_size(adapted, number) for number in range(len(every))]
    numbers = [next(number for number, other in enumerate(every) if one is other) for one in (policy, value, *rewards)]
    found = [sizes[number] for number in numbers]
    rank = max(policy.r, *(policy.rank_pattern or {"": 0}).values())
    return AdapterSizes(found[0], found[1], tuple(found[2:]), rank, _first_block(adapted, set(numbers[:2])))


def reward_folders(config: PPOConfig) -> tuple[str, ...]:
    """The reward models that are loaded, if anything asks them."""
    asked = "model" in (*config.reward, config.judge) or config.human_needs_model or config.value_init == "reward"
    known = config.reward_model or ((EMBEDDED,) if config.model_name == EMBEDDED else ())
    return known if asked else ()


def _adapted(model: PreTrainedModel, every: list[LoraConfig], name: str) -> PeftModel:
    adapted: PeftModel | None = None
    with torch.device("meta"), adding_lora(name):
        for number, lora in enumerate(every):
            lora.fan_in_fan_out = has_transposed_weights(model)
            if adapted is None:
                adapted = get_peft_model(model, lora, adapter_name=f"role{number}")
            else:
                adapted.add_adapter(f"role{number}", lora)
    assert adapted is not None
    return adapted


def _size(model: PeftModel, number: int) -> int:
    own = re.compile(rf"\.lora_[^.]+\.role{number}(\.|$)")
    return sum(one.numel() for name, one in model.named_parameters() if own.search(name))


def _first_block(model: PeftModel, numbers: set[int]) -> int:
    own = re.compile(rf"\.lora_[^.]+\.role({'|'.join(map(str, numbers))})(\.|$)")
    _, blocks = find_blocks(model)
    held = [any(own.search(f".{name}") for name, _ in block.named_parameters()) for block in blocks]
    return held.index(True) if True in held else 0
