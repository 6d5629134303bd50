"""Commands that use a model without training it say where and how it runs, as the trainings do."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppolm.base_setup import BaseModelSetup
from ppolm.cli.main import run as ppolm
from ppolm.config import ModelSettings


def test_commands_that_only_use_a_model_take_device_precision_and_trust(
    model_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ModelSettings] = []
    start = BaseModelSetup.__init__

    def watch(self: BaseModelSetup, config: ModelSettings) -> None:
        seen.append(config)
        start(self, config)

    monkeypatch.setattr(BaseModelSetup, "__init__", watch)
    generate = ["generate", "--model", str(model_folder), "--prompt", "Hello", "--max-new-tokens", "2"]
    assert ppolm([*generate, "--device", "cpu", "--dtype", "float32", "--trust-remote-code"]) == 0
    assert ppolm(generate) == 0
    readiness = ["readiness", "embedded", "--data", "embedded:validation", "--device", "meta-none"]
    assert ppolm([*readiness, "--dtype", "bfloat16"]) == 1
    assert "meta-none" in capsys.readouterr().err
    assert [(config.device, config.dtype, config.trust_remote_code) for config in seen] == [
        ("cpu", "float32", True),
        ("auto", "auto", False),
        ("meta-none", "bfloat16", False),
    ]
