"""Small trainings shared by the tests: settings, rows and commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ppolm.config import RewardConfig, SFTConfig
from ppolm.data.examples import Demonstration, Judgement, Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.supervised import RewardTrainer, SFTTrainer
from ppolm.supervised.supervised_trainer import SupervisedTrainer

QUICK: dict[str, Any] = {
    "lora_r": 4,
    "lora_alpha": 8,
    "lora_dropout": 0.0,
    "batch_size": 8,
    "learning_rate": 1e-2,
    "num_epochs": 4,
    "eval_every": 4,
    "device": "cpu",
}


DEMONSTRATIONS = [Demonstration(Prompt(f"Say yes {number}:"), " yes") for number in range(40)]


PREFERENCES = [Preference(Prompt(f"Be kind {number}:"), f" kind {number}", f" rude {number}") for number in range(40)]


def sequences_of(trainer: RewardTrainer) -> list[torch.Tensor]:
    return [torch.cat([row.tokens.prompt, answer]) for row in trainer.rows for answer in row.tokens.answers]


RATINGS: list[Judgement] = [
    Rating(Prompt(f"Rate {number}:"), f" {word} {number}", score)
    for number in range(30)
    for word, score in (("kind", 9.0), ("rude", 2.0))
]


THUMBS: list[Judgement] = [
    Thumb(Prompt(f"Rate {number}:"), f" {word} {number}", liked)
    for number in range(30)
    for word, liked in (("kind", True), ("rude", False))
]


SLOW = QUICK | {"num_epochs": 2, "eval_every": 3, "checkpoint_every": 4, "lora_dropout": 0.2, "batch_size": 5}


def trainer(kind: str, model: Path, **changes: Any) -> SupervisedTrainer[Any]:
    if kind == "sft":
        return SFTTrainer(SFTConfig(model_name=str(model), **SLOW | changes), DEMONSTRATIONS)
    return RewardTrainer(RewardConfig(model_name=str(model), **SLOW | changes), PREFERENCES)


def flags(model: Path, rows: Path, output: Path, **changes: Any) -> list[str]:
    settings = SLOW | {"model_name": model, "data": rows, "output": output} | changes
    return [
        "reward",
        *(part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))),
    ]
