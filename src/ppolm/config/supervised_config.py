"""Settings of what comes before PPO: supervised fine-tuning and reward-model training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ppolm.config.model_settings import ModelSettings
from ppolm.config.validation import check_adapter, check_supervised


@dataclass(frozen=True)
class SupervisedConfig(ModelSettings):
    """What both trainings share: data, optimiser, validation, output."""

    data: tuple[str, ...] = ()
    """Training rows: .jsonl(.gz), .csv or .parquet files, dataset names, or embedded."""
    eval_data: tuple[str, ...] = ()
    """Validation rows, in the same forms. None given: eval_fraction of the training prompts, with all their rows."""
    dataset_split: str = "train"
    """Split to read of a dataset whose name does not end in one: name:split, or name/config:split, says its own."""
    skip_bad_rows: bool = False
    """Leave out rows that cannot be used, and count them. Off: the first one is an error."""
    max_tokens: int | None = None
    """Longest row (prompt and answer). None: the model's context."""
    long_rows: Literal["error", "skip", "cut"] = "error"
    """A row that is longer: an error, left out and counted, or the middle of its prompt cut out."""
    eval_fraction: float = 0.1
    """Share of the training prompts held out for validation when eval_data is not given."""
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
    packing: bool = True
    """Rows side by side, a prompt once for several answers, where that costs less. Exact but for dropout."""
    shuffle: Literal["prompts", "rows"] = "prompts"
    """Rows of one prompt follow each other, so that its tokens are computed once; or each row comes on its own."""
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
    checkpoint_every: int = 100
    """Updates between checkpoints, from which --resume goes on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_supervised(self)


@dataclass(frozen=True)
class SFTConfig(SupervisedConfig):
    """Supervised fine-tuning on demonstrations: rows with prompt and completion."""

    train: Literal["adapter", "all"] = "adapter"
    """Train a LoRA adapter on the frozen base, or all weights of the model."""


@dataclass(frozen=True)
class RewardConfig(SupervisedConfig):
    """Reward model from human judgements: preferences (Bradley-Terry), scores (regression), thumbs, or all of them.

    Rows have prompt, chosen and rejected, or prompt, completion and score, or prompt, completion and label.
    """

    test_data: tuple[str, ...] = ()
    """Judgements for the readiness report, in the same forms as data. None given: the validation rows."""
    sft_adapter: str | None = None
    """PEFT adapter folder to start from; it keeps its rank, layers and dropout. None: a new adapter on the base."""
    head_init: Literal["random", "fit"] = "random"
    """Start of the scalar head: N(0, 1/(d+1)), or fitted to the untrained adapter's states (one pass over the data)."""
    margin: float = 0.0
    """Score difference asked of every preference, beside the row's own margin."""
    centre_coef: float = 0.0
    """Weight of (s_chosen + s_rejected)^2 in the loss: holds the level of scores, which preferences leave open."""
    reference_data: tuple[str, ...] = ()
    """Demonstrations whose mean score becomes 0. None given: the answers that the training rows judge."""
    max_reference_rows: int | None = 1024
    """Answers used at most to set the scale of the scores. None: all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_adapter(self)
