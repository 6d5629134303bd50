"""The policy: the model that PPO trains."""

from ppolm.base_setup import AdapterSet
from ppolm.models.language_model import LanguageModel


class PolicyModel(LanguageModel):
    """Generates token by token, gives log-probabilities of actions, and is updated by the PPO policy loss."""

    def __init__(self, adapters: AdapterSet) -> None:
        super().__init__(adapters, "policy")
