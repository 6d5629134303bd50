"""Loading the one base model, its tokenizer and its LoRA adapters."""

from ppolm.base_setup.adapter_forms import new_lora_config
from ppolm.base_setup.base_setup import BaseModelSetup
from ppolm.base_setup.lora_setup import AdapterSet
from ppolm.base_setup.tokenizer_setup import TokenizerSetup

__all__ = ["AdapterSet", "BaseModelSetup", "TokenizerSetup", "new_lora_config"]
