"""ppolm: PPO fine-tuning of language models with human feedback, where every number can be traced to its token.

``from ppolm import PPOConfig, PPOTrainer``: each name below is imported on first use, so that ``import ppolm`` and
``ppolm --help`` are quick. docs/api.md lists them all.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

# PEFT imports bitsandbytes where it is installed, which then warns about a kernel that ppolm never uses (four_bits).
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

if TYPE_CHECKING:
    from ppolm.advantage import AdvantageComp, GAEAdvantage, ReturnCalculator, TDError
    from ppolm.base_setup.model_setup import Models, setup_models
    from ppolm.config import ModelSettings, PPOConfig, RewardConfig, SFTConfig
    from ppolm.data.load_rows import load_demonstrations, load_judgements, load_prompts
    from ppolm.data.prompts import Prompt
    from ppolm.errors import (
        CallbackError,
        ConfigError,
        DataError,
        FeedbackError,
        HubError,
        ModelError,
        PpolmError,
        RewardError,
        RunFolderError,
        TrainingDivergedError,
    )
    from ppolm.evaluation.evaluator import Evaluator
    from ppolm.evaluation.measurement import Measurement
    from ppolm.evaluation.verdict import Convergence, Performance
    from ppolm.experience_buffer import BatchedData, ExperienceBuffer
    from ppolm.feedback.store import FeedbackStore
    from ppolm.hooks.callback import Callback, EvaluationDone, RunDone, StepDone
    from ppolm.hooks.run_control import RunControl
    from ppolm.models import PolicyModel, RewardEnsemble, RewardModel, SFTModel, ValueModel
    from ppolm.ppo_trainer.generator import SequenceGenerator
    from ppolm.ppo_trainer.model_trainer import ModelTrainer
    from ppolm.ppo_trainer.ppo_trainer import PPOTrainer
    from ppolm.ppo_trainer.reward_computer import RewardComputer
    from ppolm.ppo_trainer.run_comparison import RunComparison
    from ppolm.ppo_trainer.value_adder import ValueAdder
    from ppolm.readiness import Readiness, assess, readiness_summary, write_readiness
    from ppolm.reward_kl import KLDivergence, RewardAdjuster
    from ppolm.reward_kl.kl_controller import KLController
    from ppolm.rollout.generated_text import GeneratedText
    from ppolm.rollout.generator import Generator
    from ppolm.rollout.sampling import Sampling
    from ppolm.runs.results import TrainingResults
    from ppolm.storage.stop_signals import Stopped
    from ppolm.supervised import RewardTrainer, SFTTrainer
    from ppolm.token_attribution import SAPairs
    from ppolm.token_attribution.token_attribution import TokenAttributor

__version__ = "0.1.0"

_HOMES: dict[str, tuple[str, ...]] = {
    "ppolm.advantage": ("AdvantageComp", "GAEAdvantage", "ReturnCalculator", "TDError"),
    "ppolm.base_setup.model_setup": ("Models", "setup_models"),
    "ppolm.config": ("ModelSettings", "PPOConfig", "RewardConfig", "SFTConfig"),
    "ppolm.data.load_rows": ("load_demonstrations", "load_judgements", "load_prompts"),
    "ppolm.data.prompts": ("Prompt",),
    "ppolm.errors": (
        "CallbackError",
        "ConfigError",
        "DataError",
        "FeedbackError",
        "HubError",
        "ModelError",
        "PpolmError",
        "RewardError",
        "RunFolderError",
        "TrainingDivergedError",
    ),
    "ppolm.evaluation.evaluator": ("Evaluator",),
    "ppolm.evaluation.measurement": ("Measurement",),
    "ppolm.evaluation.verdict": ("Convergence", "Performance"),
    "ppolm.experience_buffer": ("BatchedData", "ExperienceBuffer"),
    "ppolm.feedback.store": ("FeedbackStore",),
    "ppolm.hooks.callback": ("Callback", "EvaluationDone", "RunDone", "StepDone"),
    "ppolm.hooks.run_control": ("RunControl",),
    "ppolm.models": ("PolicyModel", "RewardEnsemble", "RewardModel", "SFTModel", "ValueModel"),
    "ppolm.ppo_trainer.generator": ("SequenceGenerator",),
    "ppolm.ppo_trainer.model_trainer": ("ModelTrainer",),
    "ppolm.ppo_trainer.ppo_trainer": ("PPOTrainer",),
    "ppolm.ppo_trainer.reward_computer": ("RewardComputer",),
    "ppolm.ppo_trainer.run_comparison": ("RunComparison",),
    "ppolm.ppo_trainer.value_adder": ("ValueAdder",),
    "ppolm.readiness": ("Readiness", "assess", "readiness_summary", "write_readiness"),
    "ppolm.reward_kl": ("KLDivergence", "RewardAdjuster"),
    "ppolm.reward_kl.kl_controller": ("KLController",),
    "ppolm.rollout.generated_text": ("GeneratedText",),
    "ppolm.rollout.generator": ("Generator",),
    "ppolm.rollout.sampling": ("Sampling",),
    "ppolm.runs.results": ("TrainingResults",),
    "ppolm.storage.stop_signals": ("Stopped",),
    "ppolm.supervised": ("RewardTrainer", "SFTTrainer"),
    "ppolm.token_attribution": ("SAPairs",),
    "ppolm.token_attribution.token_attribution": ("TokenAttributor",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*sorted(_HOME), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ppolm' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
