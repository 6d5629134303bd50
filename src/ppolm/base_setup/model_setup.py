"""Creating the four roles on one base, as configured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ppolm.base_setup.adapter_forms import new_lora_config, read_adapter_config, shape_of
from ppolm.base_setup.base_setup import BaseModelSetup
from ppolm.base_setup.lora_setup import AdapterSet
from ppolm.base_setup.recomputation import plan_recomputation
from ppolm.config import PPOConfig
from ppolm.config.start import policy_of, value_of
from ppolm.embedded import reward_path
from ppolm.models import PolicyModel, RewardEnsemble, RewardModel, SFTModel, ValueModel
from ppolm.names import EMBEDDED


@dataclass(frozen=True)
class Models:
    """One base, four roles."""

    setup: BaseModelSetup
    """The base model and its tokenizer."""
    adapters: AdapterSet
    """The adapters on it, by role."""
    policy: PolicyModel
    """What is trained."""
    sft: SFTModel
    """What KL is measured against."""
    value: ValueModel
    """What predicts returns; trained."""
    reward: RewardModel | None
    """What scores responses; None if no reward is a model."""
    ensemble: RewardEnsemble | None = None
    """All reward models as one, if there are several; ``reward`` is then the first of them."""

    def begin_at_reference(self) -> None:
        """Make the policy equal to the reference, from which a run that starts from another one differs."""
        if self.sft.adapter is None:
            self.adapters.clear("policy")
        else:
            self.adapters.copy(self.sft.adapter, "policy")


def setup_models(config: PPOConfig) -> Models:
    """Load the base once and put the adapters of all roles on it; new adapters depend only on ``config.seed``."""
    setup = BaseModelSetup(config)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        adapters = AdapterSet(setup)
        _add_policy(adapters, config)
        rewards = _add_rewards(adapters, config)
        value = _add_value(adapters, config, rewards[0] if rewards else None)
    adapters.share_trunk(("policy", "value"), config.trunk_mib)
    plan_recomputation(adapters, ("policy", "value"), config)
    ensemble = RewardEnsemble(rewards, config.reward_std_penalty) if len(rewards) > 1 else None
    reward = rewards[0] if rewards else None
    return Models(setup, adapters, PolicyModel(adapters), SFTModel(adapters), value, reward, ensemble)


def _add_policy(adapters: AdapterSet, config: PPOConfig) -> None:
    """The policy starts as that of another run, or equal to its reference: a copy of the SFT adapter, or a new adapter
    that changes nothing."""
    reference = config.reference_adapter
    if reference is not None:
        adapters.load("sft", reference)
    if config.start_from is not None:
        _add_copy(adapters, "policy", policy_of(config.start_from))
    elif reference is not None:
        adapters.create("policy", adapters.lora_config("sft"))
        adapters.copy("sft", "policy")
    else:
        adapters.create("policy", new_lora_config(config, adapters.setup.causal_lm))


def _add_copy(adapters: AdapterSet, name: str, folder: Path) -> None:
    """An adapter with shape and weights of a stored one."""
    adapters.create(name, shape_of(read_adapter_config(folder)))
    adapters.load_weights(name, folder)


def _add_rewards(adapters: AdapterSet, config: PPOConfig) -> list[RewardModel]:
    """The reward adapters, if a reward or the value model's initialisation needs them."""
    asked = "model" in (*config.reward, config.judge) or config.human_needs_model
    if not asked and config.value_init != "reward":
        return []
    # The embedded model has a reward model of its own; a new, untrained one would help nobody.
    sources = config.reward_model or ((EMBEDDED,) if config.model_name == EMBEDDED else ())
    if not sources:
        adapters.create("reward", new_lora_config(config, adapters.setup.causal_lm))
        reward = RewardModel(adapters, config.microbatch_tokens)
        reward.head.init_reward()
        return [reward]
    rewards = []
    for number, source in enumerate(sources):
        name, folder = f"reward{number or ''}", reward_path(source)
        adapters.load(name, folder)
        rewards.append(RewardModel(adapters, config.microbatch_tokens, name))
        rewards[-1].load_head(folder)
    return rewards


def _add_value(adapters: AdapterSet, config: PPOConfig, reward: RewardModel | None) -> ValueModel:
    """The value model of another run; a new adapter with a zero head; or a copy of the reward model that gives the same
    normalised scores."""
    if config.start_from is not None and config.starts_with_value:
        folder = value_of(config.start_from)
        _add_copy(adapters, "value", folder)
        value = ValueModel(adapters)
        value.head.load(folder)
        return value
    if config.value_init == "zero" or reward is None:
        adapters.create("value", new_lora_config(config, adapters.setup.causal_lm))
        return ValueModel(adapters)
    adapters.create("value", adapters.lora_config("reward"))
    adapters.copy("reward", "value")
    value = ValueModel(adapters)
    value.head.load_state_dict(reward.head.state_dict())
    with torch.no_grad():
        value.head.linear.weight.div_(reward.std)
        value.head.linear.bias.sub_(reward.mean).div_(reward.std)
    return value
