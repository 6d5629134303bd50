"""The SFT model: the frozen reference that KL is measured against."""

from ppolm.base_setup import AdapterSet
from ppolm.models.language_model import LanguageModel


class SFTModel(LanguageModel):
    """The SFT adapter if there is one, else the bare base. It is never trainable in PPO."""

    def __init__(self, adapters: AdapterSet) -> None:
        super().__init__(adapters, "sft" if "sft" in adapters.names else None)

    def activate(self, trainable: bool = False) -> None:
        """Switch the base to the reference."""
        if trainable:
            raise ValueError("the reference model stays frozen; train the policy instead")
        super().activate()
