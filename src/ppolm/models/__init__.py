"""The four roles of PPO as thin views of one shared base."""

from ppolm.models.policy_model import PolicyModel
from ppolm.models.reward_ensemble import RewardEnsemble
from ppolm.models.reward_model import RewardModel
from ppolm.models.sft_model import SFTModel
from ppolm.models.value_model import ValueModel

__all__ = ["PolicyModel", "RewardEnsemble", "RewardModel", "SFTModel", "ValueModel"]
