"""Commands that use a model without training it take the same device and precision flags as training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ppolm.base_setup import BaseModelSetup
from ppolm.cli.main import run as ppolm
from ppolm.config import ModelSettings, PPOConfig
from ppolm.ppo_trainer import PPOTrainer
from tests.conftest import PROMPTS


def test_commands_that_only_use_a_model_take_device_precision_and_trust(
    model_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ModelSettings] = []
    start = BaseModelSetup.__init__

    def watch(self: BaseModelSetup, config: ModelSettings) -> None:
        seen.append(config)
        start(self, config)

    monkeypatch.setattr(BaseModelSetup, "__init__", watch)
    generate = ["generate", "--model-name", str(model_folder), "--prompt", "Hello", "--max-new-tokens", "2"]
    assert ppolm([*generate, "--device", "cpu", "--dtype", "float32", "--trust-remote-code"]) == 0
    assert ppolm(generate) == 0
    assert ppolm([word.replace("--model-name", "--model") for word in generate]) == 0, "as it was called before"
    readiness = ["readiness", "embedded", "--data", "embedded:validation", "--device", "meta-none"]
    assert ppolm([*readiness, "--dtype", "bfloat16"]) == 1
    assert "meta-none" in capsys.readouterr().err
    assert [(config.device, config.dtype, config.trust_remote_code) for config in seen] == [
        ("cpu", "float32", True),
        ("auto", "auto", False),
        ("auto", "auto", False),
        ("meta-none", "bfloat16", False),
    ]


def test_eval_runs_where_and_how_it_is_told(
    make_config: Callable[..., PPOConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.txt").write_text("\n".join(PROMPTS))
    config = make_config(prompts=str(tmp_path / "p.txt"), reward=("tests.conftest:spread",), max_steps=1)
    run = PPOTrainer(config).train(PROMPTS).run_dir
    seen: list[ModelSettings] = []
    start = BaseModelSetup.__init__

    def watch(self: BaseModelSetup, config: ModelSettings) -> None:
        seen.append(config)
        start(self, config)

    monkeypatch.setattr(BaseModelSetup, "__init__", watch)
    evaluate = ["eval", str(run), "--prompts", str(tmp_path / "p.txt")]
    assert ppolm([*evaluate, "--device", "cpu", "--dtype", "bfloat16"]) == 0
    assert ppolm([*evaluate, "--device", "nonsense"]) == 1
    assert [(config.device, config.dtype) for config in seen] == [("cpu", "bfloat16"), ("nonsense", "float32")]
