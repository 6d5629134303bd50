"""Processes that drift apart are noticed in the step where it happens, whatever it is that differs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from tests.ranks.launching import run

SETTINGS = {
    "model_name": "embedded",
    "device": "cpu",
    "dtype": "float32",
    "threads": 1,
    "batch_size": 6,
    "minibatch_size": 3,
    "max_new_tokens": 8,
    "normalize_rewards": "running",
}
NAMED = {
    "prompts": "1 steps: .* differ: prompts to be sampled",
    "random": "1 steps: .* in step 2. .* differ: state of generator",
    "rewards": "1 steps: .* in step 2. .* differ: column score",
    "statistics": "1 steps: .* in step 2. .* differ: .*state of reward_computer",
    "rate": "1 steps: .* in step 2. .* differ: .*settings of the update",
    "weight": "1 steps: .* in step 2. .* differ: .*weights of the policy",
    "settings": r".* in their settings. .* differ: kl_coef \(0.0 and 5.0\)",
    "random, sharded": "1 steps: .* in step 2. .* differ: state of generator",
    "nothing": "2 steps$",
}


@pytest.mark.slow
def test_what_differs_is_noticed_in_the_same_step_by_all_processes_and_named(tmp_path: Path) -> None:
    code, output = run(2, "tests.ranks.drift_job", tmp_path / "said", json.dumps(SETTINGS))
    assert code == 0, output
    said = torch.load(tmp_path / "said")
    assert said[0].keys() == said[1].keys() == NAMED.keys()
    for name, sentence in NAMED.items():
        for process in said:
            assert re.match(sentence, process[name]), (name, process[name])
    assert said[0] == said[1]
