"""Responses and rewards shared by the reward tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ppolm.base_setup import TokenizerSetup
from ppolm.data.prompts import as_prompts
from ppolm.ppo_trainer.reward_computer import RewardComputer
from ppolm.rewards.function_reward import FunctionReward
from ppolm.rewards.protocol import Reward
from ppolm.rollout.generated_text import GeneratedText
from tests.tiny_models import EOS, make_tokenizer

ROWS = [
    {"prompt": "Is water wet?", "answer": "yes", "level": 1},
    {"prompt": "Is fire cold?", "answer": "no", "level": 2},
    {"prompt": "Is it late?", "answer": "maybe", "level": 3},
]
PROMPTS = [str(row["prompt"]) for row in ROWS]
RESPONSES = ["yes", "yes", "no idea"]

Function = Callable[..., Any]


@pytest.fixture(scope="module")
def tokenizer() -> TokenizerSetup:
    return TokenizerSetup(make_tokenizer(), vocab_size=259)


@pytest.fixture(scope="module")
def texts(tokenizer: TokenizerSetup) -> list[GeneratedText]:
    """The responses as from a generator; the first and the last end with EOS."""
    made = []
    for i, (prompt, response) in enumerate(zip(as_prompts(ROWS), RESPONSES, strict=True)):
        ids = tokenizer.encode(response) + ([EOS] if i != 1 else [])
        made.append(GeneratedText(tokenizer, prompt, i, tokenizer.encode(prompt.content), ids, ended=i != 1))
    return made


def wrap(**functions: Function) -> dict[str, Reward]:
    return {name: FunctionReward(function, name, timeout=30.0) for name, function in functions.items()}


def computer(function: Function, timeout: float = 30.0, **options: Any) -> RewardComputer:
    return RewardComputer({"mine": FunctionReward(function, "mine", timeout)}, **options)


def lengths(_prompts: list[str], responses: list[str]) -> list[float]:
    return [float(len(response)) for response in responses]
