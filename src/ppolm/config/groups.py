"""The groups that settings are shown under, in ``--help`` and in docs/settings.md, in this order."""

from __future__ import annotations

from typing import Literal

Group = Literal[
    "model",
    "adapter",
    "data",
    "sampling",
    "reward",
    "human feedback",
    "KL",
    "advantage",
    "value model",
    "update",
    "reward model",
    "evaluation",
    "alarm",
    "run",
    "machine",
]

GROUPS: dict[Group, str] = {
    "model": "The base model, and the adapter that training starts from.",
    "adapter": "The LoRA weights that are trained on top of the frozen base.",
    "data": "What is read for training, and what happens to rows that do not fit.",
    "sampling": "How responses are drawn from the policy.",
    "reward": "Where scores come from, and how they become rewards.",
    "human feedback": 'The reward "human": people who judge responses while the policy trains.',
    "KL": "How far the policy may move from the reference model, and what it costs.",
    "advantage": "From rewards and values to advantages (GAE).",
    "value model": "The critic: its start, its targets and its loss.",
    "update": "Optimiser, minibatches, and the loss that an update takes a step on.",
    "reward model": "What is particular to training a reward model on judgements.",
    "evaluation": "Measurements on held-out data during training, and when to stop early.",
    "alarm": "When a training counts as broken, collapsed or over-optimised.",
    "run": "How long a training is, its seed, and what it writes where.",
    "machine": "Device, precision, memory, and the code that computes.",
}

LEADING = {
    "PPOConfig": (
        "model_name",
        "prompts",
        "reward",
        "reward_model",
        "max_new_tokens",
        "learning_rate",
        "kl_coef",
        "batch_size",
        "max_steps",
        "run_name",
    ),
    "SFTConfig": ("model_name", "data", "output", "learning_rate", "num_epochs", "batch_size", "max_tokens"),
    "RewardConfig": ("model_name", "data", "output", "learning_rate", "num_epochs", "batch_size", "sft_adapter"),
}
"""The settings that matter most, by configuration: ``--help`` begins with them, and the rest follows by group."""
LEADS = "Those that matter most; everything else has a default that works."
