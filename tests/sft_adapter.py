"""An SFT adapter that changes the model's output, for tests of the reference."""

from pathlib import Path

import torch

from ppolm.base_setup import AdapterSet, BaseModelSetup, new_lora_config
from ppolm.config import PPOConfig


def make_sft_adapter(config: PPOConfig, folder: Path) -> Path:
    """Save a LoRA adapter with random weights on all its matrices."""
    adapters = AdapterSet(BaseModelSetup(config))
    adapters.create("policy", new_lora_config(config, adapters.setup.causal_lm))
    random = torch.Generator().manual_seed(7)
    for parameter in adapters.parameters("policy").values():
        parameter.copy_(torch.randn(parameter.shape, generator=random) * 0.2)
    adapters.save("policy", folder)
    return folder
