"""The SFT model: the frozen reference that KL is measured against."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ppolm.base_setup import AdapterSet
from ppolm.models.language_model import LanguageModel


class SFTModel(LanguageModel):
    """The SFT adapter if there is one, else the bare base. It is never trainable in PPO."""

    def __init__(self, adapters: AdapterSet) -> None:
        super().__init__(adapters, "sft" if "sft" in adapters.names else None)

    def active(self, trainable: bool | None = None) -> AbstractContextManager[None]:
        """Switch the base to the reference inside a ``with``."""
        if trainable:
            raise ValueError("the reference model stays frozen; train the policy instead")
        return super().active(trainable=False)
