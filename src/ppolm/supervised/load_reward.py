"""Loading a trained reward model on its own, without the other roles."""

from __future__ import annotations

import dataclasses

from ppolm.base_setup import AdapterSet, BaseModelSetup
from ppolm.base_setup.lora_setup import read_adapter_config
from ppolm.config import ModelSettings, RewardConfig
from ppolm.embedded import reward_path
from ppolm.models import RewardModel


def load_reward_model(name: str, model_name: str | None = None, settings: ModelSettings | None = None) -> RewardModel:
    """The reward model in a folder (or ``embedded``), on the base it was trained on or on ``model_name``.

    ``settings`` give the device, the precision, and whether the base may run its own code.
    """
    folder = reward_path(name)
    base = model_name or str(read_adapter_config(folder).base_model_name_or_path)
    adapters = AdapterSet(BaseModelSetup(dataclasses.replace(settings or ModelSettings(), model_name=base)))
    adapters.load("reward", folder)
    model = RewardModel(adapters, RewardConfig.microbatch_tokens)
    model.load_head(folder)
    return model
