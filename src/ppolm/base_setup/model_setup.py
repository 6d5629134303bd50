"""Making the four roles on one base, as the configuration asks."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ppolm.base_setup.base_setup import BaseModelSetup
from ppolm.base_setup.lora_setup import AdapterSet, new_lora_config
from ppolm.config import PPOConfig
from ppolm.data.world.rows import EMBEDDED
from ppolm.embedded import reward_path
from ppolm.models import PolicyModel, RewardModel, SFTModel, ValueModel


@dataclass(frozen=True)
class Models:
    """One base, four roles."""

    setup: BaseModelSetup
    adapters: AdapterSet
    policy: PolicyModel
    sft: SFTModel
    value: ValueModel
    reward: RewardModel | None


def setup_models(config: PPOConfig) -> Models:
    """Load the base once and put the adapters of all roles on it; new adapters depend only on ``config.seed``."""
    setup = BaseModelSetup(config)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        adapters = AdapterSet(setup)
        _add_policy(adapters, config)
        reward = _add_reward(adapters, config)
        value = _add_value(adapters, config, reward)
    return Models(setup, adapters, PolicyModel(adapters), SFTModel(adapters), value, reward)


def _add_policy(adapters: AdapterSet, config: PPOConfig) -> None:
    """The policy starts equal to its reference: a copy of the SFT adapter, or a new adapter that changes nothing."""
    if config.sft_adapter is None:
        adapters.create("policy", new_lora_config(config))
    else:
        adapters.load("sft", config.sft_adapter)
        adapters.create("policy", adapters.lora_config("sft"))
        adapters.copy("sft", "policy")


def _add_reward(adapters: AdapterSet, config: PPOConfig) -> RewardModel | None:
    """The reward adapter, if a reward or the value model's start needs one."""
    if "model" not in (*config.reward, config.judge) and config.value_init != "reward":
        return None
    # The embedded model has a reward model of its own; to leave it untrained would help nobody.
    name = EMBEDDED if config.reward_model is None and config.model_name == EMBEDDED else config.reward_model
    folder = None if name is None else reward_path(name)
    if folder is None:
        adapters.create("reward", new_lora_config(config))
    else:
        adapters.load("reward", folder)
    reward = RewardModel(adapters, config.microbatch_tokens)
    if folder is None:
        reward.head.init_reward()
    else:
        reward.load_head(folder)
    return reward


def _add_value(adapters: AdapterSet, config: PPOConfig, reward: RewardModel | None) -> ValueModel:
    """A new adapter with a zero head, or a copy of the reward model that gives the same, normalised, numbers."""
    if config.value_init == "zero" or reward is None:
        adapters.create("value", new_lora_config(config))
        return ValueModel(adapters)
    adapters.create("value", adapters.lora_config("reward"))
    adapters.copy("reward", "value")
    value = ValueModel(adapters)
    value.head.load_state_dict(reward.head.state_dict())
    with torch.no_grad():
        value.head.linear.weight.div_(reward.std)
        value.head.linear.bias.sub_(reward.mean).div_(reward.std)
    return value
