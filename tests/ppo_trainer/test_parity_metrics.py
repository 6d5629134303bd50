"""PARITY, metrics: ``test_parity_NN`` covers line NN of the list of details an RLHF-PPO must get right."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ppolm.config import PPOConfig
from ppolm.ppo_trainer import PPOTrainer
from tests.conftest import PROMPTS, ROOT, spread

MakeConfig = Callable[..., PPOConfig]


def test_parity_22_every_metric_of_a_run_is_defined_once_in_the_glossary(make_config: MakeConfig) -> None:
    config = make_config(eval_fraction=0.3, eval_every=1, max_steps=1)
    rows: list[Any] = [{"prompt": prompt, "reference": "a cat"} for prompt in PROMPTS]
    results = PPOTrainer(config, reward={"spread": spread, "again": spread}).train(rows)
    glossary = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in glossary.splitlines() if line.startswith("| `")]
    defined = [name for cell in cells for name in re.findall("`([^`]+)`", cell)]
    names = {name.split("/")[0] for name in {**results.metrics[0], **results.evaluations[0]}}
    assert names - {entry.split("/")[0] for entry in defined} == set()
    assert len(defined) == len(set(defined))
