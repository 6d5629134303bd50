"""Settings of what comes before PPO: supervised fine-tuning and reward-model training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ppolm.config.model_settings import ModelSettings


@dataclass(frozen=True)
class SupervisedConfig(ModelSettings):
    """What both trainings share: data, optimiser, validation, output."""

    data: str | None = None
    """Training rows: a .jsonl(.gz), .csv or .parquet file, a dataset name, or embedded."""
    eval_data: str | None = None
    """Validation rows, in the same forms. None: eval_fraction of the training rows."""
    dataset_split: str = "train"
    """Split to read when data is a dataset name."""
    eval_fraction: float = 0.1
    """Share of the training rows held out for validation when eval_data is not given."""
    max_eval_rows: int = 512
    """Validation rows used at most."""
    output: str | None = None
    """Folder of the result. It must be new or empty."""
    num_epochs: int = 1
    """Passes over the training rows."""
    batch_size: int = 32
    """Rows per optimiser update."""
    microbatch_tokens: int = 4096
    """Padded tokens per forward pass. Bounds memory; changes neither losses nor gradients."""
    learning_rate: float = 2e-4
    """Peak learning rate (AdamW)."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """Learning rate over the updates: constant, or falling to zero linearly or as a half cosine."""
    warmup_steps: int = 10
    """Updates over which the learning rate rises linearly to its peak."""
    weight_decay: float = 0.0
    """AdamW weight decay."""
    adam_eps: float = 1e-8
    """AdamW epsilon."""
    max_grad_norm: float = 1.0
    """Gradient norm above which an update's gradient is scaled down."""
    max_skipped_updates: int = 5
    """Non-finite losses or gradients in a row after which training stops."""
    eval_every: int = 100
    """Updates between validations; one runs before the first update and one after the last."""
    patience: int | None = None
    """Stop after this many validations without improvement. None: run to the end. The best weights are kept."""


@dataclass(frozen=True)
class SFTConfig(SupervisedConfig):
    """Supervised fine-tuning on demonstrations: rows with prompt and completion."""

    train: Literal["adapter", "all"] = "adapter"
    """Train a LoRA adapter on the frozen base, or all weights of the model."""


@dataclass(frozen=True)
class RewardConfig(SupervisedConfig):
    """Reward model from preferences (Bradley-Terry): rows with prompt, chosen and rejected."""
