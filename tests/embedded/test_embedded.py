"""The embedded model: the name `embedded` works wherever a model is expected, and the model can be rebuilt."""

from __future__ import annotations

import hashlib
import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ppolm.base_setup.model_setup import setup_models
from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.data.load_rows import load_prompts
from ppolm.embedded import DEMO, FOLDER, MODEL
from ppolm.ppo_trainer import PPOTrainer
from scripts.build_embedded import Sizes, build
from tests.conftest import ROOT

FEW = {"batch_size": 8, "minibatch_size": 8, "max_eval_prompts": 16, "log_to": (), "device": "cpu"}


def test_the_files_are_small_and_name_no_folder_of_the_machine_that_built_them() -> None:
    files = [file for file in FOLDER.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    assert sum(file.stat().st_size for file in files) < 8 * 2**20
    for file in files:
        if file.suffix in (".json", ".md", ".yaml"):
            assert not re.search(r"/(tmp|home|root|work|Users)/", file.read_text(encoding="utf-8")), file


def test_embedded_loads_with_its_own_reward_model(tmp_path: Path) -> None:
    models = setup_models(PPOConfig(model_name="embedded", device="cpu"))
    assert models.reward is not None
    assert models.reward.trained
    models.policy.save(tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["base_model_name_or_path"] == "embedded"


def test_every_command_takes_the_embedded_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--learning-rate", "1e-4", "--device", "cpu"]
    top = ["--batch-size", "64", "--trainable-layers", "1"]
    rows = ["--data", "embedded:validation", "--max-eval-rows", "8", *top, *small]
    assert ppolm(["sft", "--model-name", "embedded", *rows, "--output", "sft"]) == 0
    assert ppolm(["reward", "--model-name", "embedded", *rows, "--output", "rm"]) == 0
    assert "verdict: not ready" in capsys.readouterr().out
    run = ["--max-steps", "1", "--batch-size", "4", "--minibatch-size", "4", "--max-eval-prompts", "8", *small]
    adapters = ["--sft-adapter", "sft", "--reward-model", "rm"]
    assert ppolm(["train", "--model-name", "embedded", *adapters, *run, "--run-name", "run"]) == 0
    assert ppolm(["eval", "runs/run", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out.partition("{")[2].join(["{", ""]))
    assert answer["prompts"] == 8
    assert {"reward", "judge"} == set(answer["change"])
    assert ppolm(["generate", "--model-name", "embedded", "--prompts", "embedded:test", "--max-new-tokens", "4"]) == 0
    assert ppolm(["sft", "--model-name", "embedded", *rows, "--output", "sft"]) == 1
    assert "already exists" in capsys.readouterr().err


def test_a_few_steps_on_the_embedded_model_repeat_exactly(tmp_path: Path) -> None:
    def rewards(name: str) -> list[float]:
        changes = {**FEW, "max_steps": 2, "output_dir": str(tmp_path), "run_name": name}
        config = PPOConfig.from_dict(PPOConfig.from_yaml(DEMO).to_dict() | changes)
        return [row["avg_reward"] for row in PPOTrainer(config).train(load_prompts("embedded")[:64]).metrics]

    assert rewards("one") == rewards("two")


def test_ppo_on_the_reward_model_raises_gold_within_eight_steps(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "batch_size": 32,
        "minibatch_size": 16,
        "max_steps": 8,
        "eval_every": 8,
        "max_eval_prompts": 64,
    }
    changes |= {"output_dir": str(tmp_path), "log_to": (), "device": "cpu"}
    config = PPOConfig.from_dict(PPOConfig.from_yaml(DEMO).to_dict() | changes)
    results = PPOTrainer(config).train(load_prompts("embedded"), eval_prompts=load_prompts("embedded:validation"))
    first, last = results.evaluations
    assert last["judge"] > first["judge"] + 0.1
    assert last["avg_reward"] > first["avg_reward"] + 0.2
    assert 0 < last["kl"] < 5
    assert results.verdict == "improved"


@pytest.mark.pictures
def test_demo_prints_json_that_holds_every_promised_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["demo", "--steps", "1", "--seed", "3", "--reward", "gold", "--output-dir", str(tmp_path), "--json"]
    assert ppolm([*flags, "--posts", "48"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["seed"], answer["steps"], answer["reward"], answer["test_posts"]) == (3, 1, "gold", 48)
    for decoding in ("sampled", "greedy"):
        for score in ("gold", "reward"):
            change = answer[decoding][score]["change"]
            assert change["low"] <= change["mean"] <= change["high"]
    assert answer["sampled"]["gold"] == answer["sampled"]["reward"], "gold was the reward"
    run = Path(answer["run_dir"])
    for name in ("reward", "judge", "kl", "losses", "entropy"):
        assert (run / "report" / f"{name}.png").stat().st_size > 5_000
    assert json.loads((run / "report" / "demo.json").read_text()) == answer


def test_main_py_is_the_demo_and_says_what_it_is_and_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reward = f"{ROOT / 'examples' / 'rewards.py'}:short_summary"
    flags = ["--steps", "1", "--reward", reward, "--output-dir", str(tmp_path), "--samples", "2", "--posts", "16"]
    monkeypatch.setattr(sys, "argv", ["main.py", *flags])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "main.py"), run_name="__main__")
    printed = capsys.readouterr()
    assert end.value.code == 0, printed.err
    for part in (
        *("before (SFT)", "after (PPO)", "gold, greedy decoding", "wrong facts", "KL to the SFT model", "Verdict:"),
        *("embedded tiny model", "ppolm train --model-name Qwen/Qwen3-0.6B-Base --prompts", "Run folder:", "Plots:"),
        "See it:      ppolm studio ",
    ):
        assert part in printed.out, part
    assert printed.out.count("TL;DR:") == 2


def fingerprint(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_building_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    """Runs the build script at a small size; docs/embedded-world.md records `make embedded` at full size."""
    small = Sizes(demonstrations=128, preferences=64, held_out=32, width=32, layers=1, measured=16)
    threads = torch.get_num_threads()
    for name in ("one", "two"):
        build(tmp_path / name, small, threads=1)
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)
    assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "two")
    shipped = {str(file.relative_to(FOLDER)) for file in (*MODEL.rglob("*"), *(FOLDER / "reward").rglob("*"))}
    assert {name for name in fingerprint(tmp_path / "one") if "/" in name} == shipped
    assert load_file(tmp_path / "one" / "model" / "model.safetensors").keys()
