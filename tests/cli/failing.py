"""Commands that must fail: a folder to run them in, and the one line that they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from tests.conftest import PROMPTS


@pytest.fixture
def files(tmp_path: Path, model_folder: Path) -> Path:
    """A folder with prompts, a reward and a config that trains two steps."""
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    (tmp_path / "reward.py").write_text(
        "def score(prompts, responses):\n    return [float(len(r)) for r in responses]\n"
    )
    config = PPOConfig(
        model_name=str(model_folder),
        prompts=str(tmp_path / "prompts.txt"),
        reward=(f"{tmp_path}/reward.py:score",),
        output_dir=str(tmp_path / "runs"),
        run_name="run",
        batch_size=2,
        minibatch_size=2,
        max_new_tokens=4,
        lora_r=2,
        max_steps=2,
        checkpoint_every=1,
        eval_every=0,
        log_to=(),
    )
    config.to_yaml(tmp_path / "config.yaml")
    return tmp_path


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must fail; returns its error line."""
    capsys.readouterr()
    assert ppolm(list(arguments)) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]


def train(files: Path, *flags: str) -> tuple[str, ...]:
    return ("train", "--config", str(files / "config.yaml"), *flags)
