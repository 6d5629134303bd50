"""Settings of the stages before PPO: supervised fine-tuning and reward-model training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ppolm.config.model_settings import ModelSettings
from ppolm.config.setting import setting
from ppolm.config.validation import check_reward, check_sft, check_supervised


@dataclass(frozen=True)
class SupervisedConfig(ModelSettings):
    """What SFT and reward-model training share: data, optimiser, validation, output."""

    data: tuple[str, ...] = setting((), group="data", on_resume="fixed")
    """Training rows: .jsonl(.gz), .csv or .parquet files, dataset names, or embedded."""
    eval_data: tuple[str, ...] = setting((), group="evaluation", on_resume="fixed")
    """Validation rows, in the same forms. If empty: all rows of eval_fraction of the training prompts."""
    dataset_split: str = setting("train", group="data", not_blank=True, on_resume="fixed")
    """Split to read if the dataset name does not include one (name:split or name/config:split)."""
    skip_bad_rows: bool = setting(False, group="data", on_resume="fixed")
    """Skip and count rows that cannot be used. Off: the first one is an error."""
    max_tokens: int | None = setting(None, group="data", at_least=1, on_resume="fixed")
    """Maximum length of a row (prompt and answer), in tokens. None: the model's context."""
    long_rows: Literal["error", "skip", "cut"] = setting("error", group="data", on_resume="fixed")
    """Rows longer than max_tokens: raise an error, skip and count them, or cut out the middle of the prompt."""
    eval_fraction: float = setting(0.1, group="evaluation", at_least=0, below=1, on_resume="fixed")
    """Fraction of the training prompts held out for validation when eval_data is not given."""
    max_eval_rows: int = setting(512, group="evaluation", at_least=1, on_resume="fixed")
    """Maximum number of validation rows."""
    start_from: str | None = setting(None, group="model", on_resume="fixed")
    """Run of ppolm train (its best policy) or one of its checkpoints, whose policy is the adapter to start from; it
    keeps its rank, layers and dropout. None: start from the base."""
    output: str | None = setting(None, group="run", on_resume="may change")
    """Output folder. It must be new or empty."""
    num_epochs: int = setting(1, group="run", at_least=1, on_resume="fixed")
    """Passes over the training rows."""
    batch_size: int = setting(32, group="update", at_least=1, on_resume="fixed")
    """Rows per optimiser update."""
    microbatch_tokens: int = setting(4096, group="machine", at_least=1, on_resume="fixed")
    """Padded tokens per forward pass; on a GPU four times as many where no gradients are needed. Limits memory; changes
    neither losses nor gradients."""
    packing: bool = setting(True, group="machine", on_resume="fixed")
    """Pack several rows into one sequence, with a prompt shared by its answers, where that is cheaper. Gives the same
    results except for dropout."""
    shuffle: Literal["prompts", "rows"] = setting("prompts", group="update", on_resume="fixed")
    """Shuffle whole prompts, keeping their rows together so that a prompt is computed once; or shuffle single rows."""
    learning_rate: float = setting(2e-4, group="update", at_least=0, on_resume="fixed")
    """Peak learning rate (AdamW)."""
    lr_schedule: Literal["constant", "linear", "cosine"] = setting("cosine", group="update", on_resume="fixed")
    """Learning rate over the updates: constant, or decaying to zero linearly or as a half cosine."""
    warmup_steps: int = setting(10, group="update", at_least=0, on_resume="fixed")
    """Updates over which the learning rate rises linearly to its peak."""
    weight_decay: float = setting(0.0, group="update", at_least=0, on_resume="fixed")
    """AdamW weight decay."""
    adam_eps: float = setting(1e-8, group="update", above=0, on_resume="fixed")
    """AdamW epsilon."""
    max_grad_norm: float = setting(1.0, group="update", above=0, on_resume="fixed")
    """Gradients are clipped to this norm."""
    max_skipped_updates: int = setting(5, group="alarm", at_least=1, on_resume="may change")
    """Stop after this many updates in a row with a non-finite loss or gradient."""
    eval_every: int = setting(100, group="evaluation", at_least=0, on_resume="fixed")
    """Updates between validations; one also runs before the first update and one after the last."""
    patience: int | None = setting(None, group="evaluation", at_least=1, on_resume="may change")
    """Stop after this many validations without improvement. None: run to the end. The best weights are kept."""
    checkpoint_every: int = setting(100, group="run", at_least=1, on_resume="may change")
    """Updates between the checkpoints that --resume continues from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_supervised(self)


@dataclass(frozen=True)
class SFTConfig(SupervisedConfig):
    """Supervised fine-tuning on demonstrations: rows with prompt and completion."""

    train: Literal["adapter", "all"] = setting("adapter", group="adapter", on_resume="fixed")
    """Train a LoRA adapter on the frozen base, or all weights of the model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sft(self)


@dataclass(frozen=True)
class RewardConfig(SupervisedConfig):
    """Reward model from human judgements: preferences (Bradley-Terry), scores (regression), thumbs, or a mixture.

    Rows have prompt, chosen and rejected, or prompt, completion and score, or prompt, completion and label.
    """

    test_data: tuple[str, ...] = setting((), group="reward model", on_resume="may change")
    """Judgements for the readiness report, in the same forms as data. If empty: the validation rows."""
    sft_adapter: str | None = setting(None, group="model", on_resume="fixed")
    """PEFT adapter folder to start from; it keeps its rank, layers and dropout. None: a new adapter on the base."""
    head_init: Literal["random", "fit"] = setting("random", group="reward model", on_resume="fixed")
    """Initial scalar head: N(0, 1/(d+1)), or fitted to the untrained adapter's states (one pass over the data)."""
    margin: float = setting(0.0, group="reward model", at_least=0, on_resume="fixed")
    """Score difference required of every preference, added to the row's own margin."""
    centre_coef: float = setting(0.0, group="reward model", at_least=0, on_resume="fixed")
    """Weight of (s_chosen + s_rejected)^2 in the loss, which fixes the level of the scores; preferences do not."""
    reference_data: tuple[str, ...] = setting((), group="reward model", on_resume="fixed")
    """Demonstrations whose mean score is set to 0. If empty: the answers judged in the training rows."""
    max_reference_rows: int | None = setting(1024, group="reward model", at_least=2, on_resume="fixed")
    """Maximum number of answers used to set the scale of the scores. None: all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reward(self)
