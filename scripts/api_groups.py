"""The public names of ppolm by what a reader wants to do: a page of the reference for each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """A page of the reference."""

    page: str
    title: str
    about: str
    names: tuple[str, ...]


GROUPS = (
    Group(
        "api-training.md",
        "Training and evaluation",
        "The trainer, what it returns, and how a policy is measured and judged.",
        (
            *("PPOTrainer", "TrainingResults", "RunComparison"),
            *("Evaluator", "Measurement", "Performance", "Convergence", "Stopped"),
        ),
    ),
    Group(
        "api-settings.md",
        "Settings",
        "Each training has a class of settings. Ranges, and what a resumed run may change: [settings.md](settings.md).",
        ("ModelSettings", "PPOConfig", "SFTConfig", "RewardConfig"),
    ),
    Group(
        "api-callbacks.md",
        "Callbacks",
        "What a run tells to objects of your own, and what they may do. With examples: [callbacks.md](callbacks.md).",
        ("Callback", "StepDone", "EvaluationDone", "RunDone", "RunControl"),
    ),
    Group(
        "api-data.md",
        "Data and judgements",
        "Rows from files, prompts, and the store of what people judged. Formats of files: "
        "[data-formats.md](data-formats.md).",
        ("load_prompts", "load_demonstrations", "load_judgements", "Prompt", "FeedbackStore"),
    ),
    Group(
        "api-supervised.md",
        "SFT and reward models",
        "The two supervised trainings, and whether a reward model is fit to train on.",
        ("SFTTrainer", "RewardTrainer", "Readiness", "assess", "readiness_summary", "write_readiness"),
    ),
    Group(
        "api-stages.md",
        "The stages of a PPO step",
        "In the order in which `PPOTrainer.ppo_step` calls them. Each can be replaced: "
        "[architecture.md](architecture.md#replacing-a-component).",
        (
            *("SAPairs", "SequenceGenerator", "Generator", "Sampling", "GeneratedText", "TokenAttributor"),
            *("RewardComputer", "KLDivergence", "RewardAdjuster", "KLController", "ValueAdder"),
            *("AdvantageComp", "TDError", "GAEAdvantage", "ReturnCalculator"),
            *("ExperienceBuffer", "BatchedData", "ModelTrainer"),
        ),
    ),
    Group(
        "api-models.md",
        "The four roles",
        "One frozen base model; each role switches it to an adapter of its own.",
        ("setup_models", "Models", "PolicyModel", "SFTModel", "ValueModel", "RewardModel", "RewardEnsemble"),
    ),
    Group(
        "api-errors.md",
        "Errors",
        "What a user's mistake or the outside world causes. Each message says what happened, what was expected and how "
        "to fix it; the command line prints it without a traceback.",
        (
            *("PpolmError", "ConfigError", "DataError", "ModelError", "RewardError", "FeedbackError"),
            *("RunFolderError", "TrainingDivergedError", "CallbackError", "HubError"),
        ),
    ),
)
