"""Every command in the README and the user pages, and every shipped config, runs as written.

Only the model and the size of the run are changed.
"""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peft import PeftModel
from transformers import AutoModelForCausalLM

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.ppo_trainer import PPOTrainer
from scripts.example_comparisons import FILE, comparisons
from tests.conftest import ROOT, spread
from tests.tiny_models import make_model_folder

README = "README.md"
PAGES = (README, "docs/installation.md", "docs/commands.md", "docs/rewards.md", "docs/runs.md")
"""Pages whose commands are run in order in one folder: later commands may use the results of earlier ones."""
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
SMALL = shlex.split(
    "--max-steps 1 --batch-size 2 --minibatch-size 2 --max-new-tokens 4 --lora-r 2 --eval-every 1 --max-eval-prompts 2 "
    "--log-to"
)


@pytest.fixture(scope="module")
def roomy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose context is long enough for the example prompts."""
    return make_model_folder(tmp_path_factory.mktemp("roomy"), context=1024)


def code_blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def ppolm_commands(page: str) -> list[str]:
    return [line for block in code_blocks("bash", page) for line in block.splitlines() if "ppolm " in line]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_config_trains_from_any_folder(
    config: Path, roomy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # any folder: paths in a config are looked up beside it
    flags = ["--model-name", str(roomy_model), *SMALL]
    if PPOConfig.from_yaml(config).prompts == "trl-lib/tldr":  # a dataset on the Hub
        flags += ["--prompts", str(ROOT / "examples" / "prompts.jsonl")]
    assert ppolm(["train", "--config", str(config), *flags]) == 0


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_config_names_its_own_command(config: Path) -> None:
    assert f"ppolm train --config configs/{config.name}" in config.read_text()


def test_quick_start_prints_texts_rewards_and_both_losses(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = code_blocks("python")[0]
    assert script.count("PPOConfig()") == 1
    path = tmp_path / "quick_start.py"
    path.write_text(script.replace("PPOConfig()", f"PPOConfig(model_name={str(model_folder)!r})"))
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT)
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    patterns = (r"Generated texts: \[", r"Rewards: \[-?\d", r"Value loss: \d", r"Policy loss: -?\d")
    assert all(re.search(pattern, printed) for pattern in patterns), printed


def test_the_users_quick_start_stands_in_the_readme_word_for_word() -> None:
    seed = ROOT.parent / "shared" / "seeds"
    if not seed.is_dir():
        pytest.skip("the user's documents are not beside this checkout")
    document = next(seed.glob("004_*")).read_text(encoding="utf-8")
    assert re.findall(r"```python\n(.*?)```", document, re.DOTALL)[0] == code_blocks("python")[0]


def test_commands_of_the_readme_and_of_the_pages_run(
    roomy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("configs", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    commands = list(dict.fromkeys(command for page in PAGES for command in ppolm_commands(page)))
    assert len(commands) == 21
    for command in commands:
        words = shlex.split(command)[1:]
        if words[0] == "train" and "--config" in words:
            shutil.rmtree("runs/my-run", ignore_errors=True)
            words = [word for word in words if word not in ("--model-name", "path/to/model")]
            words += ["--run-name", "my-run", "--model-name", str(roomy_model), *SMALL]
        elif words[0] in ("sft", "reward"):
            words += ["--batch-size", "64", "--trainable-layers", "1"]
            if words[0] == "sft":
                words[words.index("--data") + 1] = "embedded:validation"
        elif words[:3] == ["train", "--model-name", "embedded"]:
            words += SMALL
        if "--help" in words:
            with pytest.raises(SystemExit):
                ppolm(words)
            assert "--learning-rate" in capsys.readouterr().out
        else:
            assert ppolm(words) == 0, command
    (snippet,) = code_blocks("python", "docs/runs.md")
    snippet = snippet.replace("path/to/model", str(roomy_model))
    scope: dict[str, Any] = {"AutoModelForCausalLM": AutoModelForCausalLM, "PeftModel": PeftModel}
    exec(snippet, scope)
    assert scope["policy"].peft_config["default"].r == 2


def test_the_example_comparisons_are_those_of_the_embedded_world() -> None:
    assert FILE.read_text(encoding="utf-8") == comparisons()


def test_own_reward_of_the_readme_works_and_stands_on_the_page_of_rewards_too(
    make_config: Callable[..., PPOConfig],
) -> None:
    scope: dict[str, Callable[..., list[float]]] = {}
    own = code_blocks("python")[1]
    assert code_blocks("python", "docs/rewards.md") == [own]
    exec(own, scope)
    results = PPOTrainer(make_config(), reward=scope["score"]).ppo_step([{"prompt": "one", "title": "two"}])
    assert results["rewards"] == [1.0]


def test_components_named_as_replaceable_are_arguments_of_the_trainer(make_config: Callable[..., PPOConfig]) -> None:
    """Each component can be passed in, and the trainer then uses exactly that object."""
    first = PPOTrainer(make_config(), reward=spread)
    parts = {
        name: getattr(first, name)
        for name in (
            "generator",
            "attributor",
            "reward_computer",
            "value_adder",
            "advantage_comp",
            "buffer",
            "model_trainer",
        )
    }
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = page.split("Every component can be replaced")[1].split("An engine")[0]
    assert all(f"{name}=..." in named for name in parts)
    second = PPOTrainer(make_config(), models=first.models, **parts)
    assert all(getattr(second, name) is part for name, part in parts.items())
    assert second.ppo_step(["one prompt"])["metrics"]["step"] == 1


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
def test_uv_knows_the_option_that_leaves_cuda_out() -> None:
    """Installing with it is not tested: the tests may have no network."""
    page = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    (line,) = (line for line in page.splitlines() if line.startswith("uv pip install"))
    option, value = shlex.split(line)[3:5]
    answer = subprocess.run(["uv", "pip", "install", "--help"], capture_output=True, text=True, check=True)
    assert (option, value) == ("--torch-backend", "cpu")
    assert option in answer.stdout
