"""The run folder: folders appear whole or not at all, logs are append-only, and logging never stops training."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.errors import RunFolderError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.storage.atomic import recover_folder, standing_folder, tidy, verify_folder, write_folder
from ppolm.storage.metrics_log import append_line, read_metrics
from ppolm.storage.stored_run import read_run_config
from ppolm.token_attribution.sa_pairs_io import from_parquet
from tests.closeness import near
from tests.conftest import PROMPTS, spread

MakeConfig = Callable[..., PPOConfig]


def fill_with(text: str) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        (folder / "file.txt").write_text(text)

    return fill


def test_a_folder_appears_whole_and_replaces_the_old_one(tmp_path: Path) -> None:
    write_folder(tmp_path / "best", fill_with("one"))
    write_folder(tmp_path / "best", fill_with("two"))
    assert (tmp_path / "best" / "file.txt").read_text() == "two"
    verify_folder(tmp_path / "best")
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_weights_may_be_read_by_whoever_may_read_the_rest(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        save_file({"weight": torch.zeros(2)}, folder / "weights.safetensors")

    write_folder(tmp_path / "best", fill)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "best").iterdir()}
    assert modes["weights.safetensors"] == modes["manifest.json"]


def test_a_run_whose_settings_are_gone_is_not_taken_for_one_with_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("")
    with pytest.raises(RunFolderError, match=r"config.yaml cannot be used: it is empty. Copy the run again."):
        read_run_config(tmp_path)


def test_a_writer_that_fails_leaves_the_old_folder_alone(tmp_path: Path) -> None:
    write_folder(tmp_path / "best", fill_with("one"))

    def breaks(folder: Path) -> None:
        (folder / "half.txt").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_folder(tmp_path / "best", breaks)
    assert (tmp_path / "best" / "file.txt").read_text() == "one"
    verify_folder(tmp_path / "best")
    write_folder(tmp_path / "best", fill_with("two"))  # leftovers are no obstacle
    assert (tmp_path / "best" / "file.txt").read_text() == "two"


def test_a_crash_between_the_two_moves_is_undone(tmp_path: Path) -> None:
    write_folder(tmp_path / "best", fill_with("one"))
    (tmp_path / "best").rename(tmp_path / ".best.old")
    recover_folder(tmp_path / "best")
    assert (tmp_path / "best" / "file.txt").read_text() == "one"


def test_verify_notices_a_single_changed_byte(tmp_path: Path) -> None:
    write_folder(tmp_path / "checkpoint", fill_with("good"))
    (tmp_path / "checkpoint" / "file.txt").write_text("goof")
    with pytest.raises(RunFolderError, match=r"file\.txt is not as it was written"):
        verify_folder(tmp_path / "checkpoint")


def test_metrics_survive_a_line_that_was_cut_off_and_a_step_that_ran_twice(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_line(path, {"kind": "train", "step": 1, "kl": 0.5})
    with path.open("a") as file:
        file.write('{"kind": "train", "step": 2, "k')
    append_line(path, {"kind": "train", "step": 2, "kl": math.nan})
    append_line(path, {"kind": "train", "step": 1, "kl": 0.7})
    append_line(path, {"kind": "eval", "step": 1, "kl": 9.0})
    assert read_metrics(tmp_path) == [{"step": 1, "kl": 0.7}, {"step": 2, "kl": None}]


@pytest.mark.pictures
def test_every_promised_file_is_there_and_readable(make_config: MakeConfig) -> None:
    config = make_config(eval_every=1, eval_fraction=0.34, log_to=("tensorboard",))
    results = PPOTrainer(config, reward=spread).train(PROMPTS)
    run = results.run_dir
    decided = {"reward": None, "dtype": "float32"}  # the reward passed to the trainer, and what auto resolved to
    assert PPOConfig.from_yaml(run / "config.yaml").to_dict() | {"reward": None} == config.to_dict() | decided
    assert len(read_metrics(run)) == results.steps
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    assert {"kind", "step", "prompt", "response", "reward"} <= samples[0].keys()
    table = from_parquet(run / "table" / "step-000001.parquet")
    torch.testing.assert_close(table.column("reward"), table.column("score") - 0.1 * table.column("kl"))
    plots = {path.name for path in (run / "report").glob("*.png") if path.stat().st_size > 5_000}
    assert {"reward.png", "kl.png", "losses.png", "entropy.png"} <= plots
    summary = (run / "report" / "summary.md").read_text()
    assert results.verdict in summary
    assert "avg_reward" in summary
    assert all((run / "report" / name).read_bytes()[:4] == b"\x89PNG" for name in plots)


def test_no_pickle_is_ever_written(make_config: MakeConfig) -> None:
    run = PPOTrainer(make_config(replay_rollouts=2, log_to=("tensorboard",)), reward=spread).train(PROMPTS, 2).run_dir
    endings = {path.suffix for path in run.rglob("*") if path.is_file() and "tensorboard" not in path.parts}
    assert endings <= {".safetensors", ".json", ".jsonl", ".yaml", ".parquet", ".png", ".md", ".txt"}


def test_best_is_the_policy_of_the_best_evaluation(make_config: MakeConfig) -> None:
    config = make_config(eval_every=1, eval_fraction=0.34, learning_rate=0.02)
    results = PPOTrainer(config, reward=spread).train(PROMPTS, 3)
    assert results.performance is not None
    best = json.loads((results.best_dir / "best.json").read_text())
    assert best["step"] == results.performance.best_step
    assert best["avg_reward"] == max(row["avg_reward"] for row in results.evaluations)
    base = AutoModelForCausalLM.from_pretrained(config.model_name)
    assert PeftModel.from_pretrained(base, results.best_dir).peft_config["default"].r == config.lora_r


def test_observability_never_stops_training(make_config: MakeConfig, monkeypatch: Any, caplog: Any) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("ppolm.runs.run_folder.append_line", broken)
    monkeypatch.setattr("ppolm.runs.run_folder.to_parquet", broken)
    monkeypatch.setattr("ppolm.runs.run_report.draw", broken)
    with caplog.at_level(logging.WARNING):
        results = PPOTrainer(make_config(), reward=spread).train(PROMPTS)
    assert results.steps == 2
    assert "no space left on device" in caplog.text
    assert (results.run_dir / "checkpoints" / "step-000002").is_dir()


def test_eval_and_generate_read_a_run(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], make_config: MakeConfig
) -> None:
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    (tmp_path / "reward.py").write_text(
        "def score(prompts, responses):\n    return [float(len(r)) for r in responses]\n"
    )
    config = make_config(
        prompts=str(tmp_path / "prompts.txt"),
        reward=(f"{tmp_path}/reward.py:score",),
        eval_fraction=0.34,
        eval_every=1,
        learning_rate=0.02,
    )
    config.to_yaml(tmp_path / "config.yaml")
    assert ppolm(["train", "--config", str(tmp_path / "config.yaml")]) == 0
    run = Path(config.output_dir) / "run"
    capsys.readouterr()
    assert ppolm(["eval", str(run), "--policy", "last", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    last = read_metrics(run, "eval")[-1]
    first = read_metrics(run, "eval")[0]
    for name in ("avg_reward", "kl", "entropy", "response_length"):
        assert answer["policy"][name] == near(last[name])
        assert answer["reference"][name] == near(first[name])
    assert ppolm(["eval", str(run)]) == 0
    table = capsys.readouterr().out
    assert "avg_reward" in table
    assert "reference" in table
    generate = ["generate", "--run", str(run), "--prompt", "Hello", "--json", "--samples", "2"]
    assert ppolm([*generate, "--seed", "3"]) == 0
    first_answer = capsys.readouterr().out
    assert len(first_answer.splitlines()) == 2
    assert ppolm([*generate, "--seed", "3"]) == 0
    assert capsys.readouterr().out == first_answer
    greedy = ["generate", "--model-name", str(model_folder), "--adapter", str(run / "best"), "--prompt", "Hello"]
    assert ppolm([*greedy, "--temperature", "0", "--max-new-tokens", "5", "--json", "--samples", "2"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == rows[1]


def test_a_manifest_that_names_too_little_or_too_much_or_is_spaced_otherwise_is_a_damage(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    write_folder(folder, fill_with("good"))
    manifest = (folder / "manifest.json").read_text()
    for damaged in ("{}", "[]", "null", manifest + "\n", manifest.replace('"file.txt"', '"other.txt"'), "[" * 100_000):
        (folder / "manifest.json").write_text(damaged)
        with pytest.raises(RunFolderError, match="is damaged or cut off"):
            verify_folder(folder)
    (folder / "manifest.json").write_text(manifest)
    (folder / ".DS_Store").touch()  # left by a file manager
    verify_folder(folder)
    (folder / "more.txt").touch()
    with pytest.raises(RunFolderError, match=r"more\.txt is not as it was written"):
        verify_folder(folder)


def test_a_manifest_of_an_earlier_version_is_still_read(tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("good")
    digest = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c"
    (tmp_path / "manifest.json").write_text(json.dumps({"file.txt": [4, digest]}, indent=1))
    verify_folder(tmp_path)


def test_a_reader_between_the_two_moves_of_a_writer_finds_the_old_folder_and_changes_nothing(tmp_path: Path) -> None:
    write_folder(tmp_path / "best", fill_with("one"))
    (tmp_path / "best").rename(tmp_path / ".best.7-0123abcd.old")
    assert standing_folder(tmp_path / "best").name == ".best.7-0123abcd.old"
    (tmp_path / ".best.7-4567abcd.tmp").mkdir()
    tidy(tmp_path)  # the next owner restores it, and removes incomplete folders
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


@pytest.mark.parametrize("when", [1, 4])
def test_a_run_whose_folder_is_removed_ends_with_an_error_and_does_not_make_it_again(
    make_config: MakeConfig, when: int
) -> None:
    config = make_config(max_steps=4, num_epochs=9, eval_every=0, checkpoint_every=9)
    run, calls = Path(config.output_dir) / "run", 0

    def removes(prompts: list[str], responses: list[Any]) -> list[float]:
        nonlocal calls
        calls += 1
        if calls == when:
            shutil.rmtree(run)
        return spread(prompts, responses)

    with pytest.raises(RunFolderError, match="was removed, moved or replaced"):
        PPOTrainer(config, reward=removes).train(PROMPTS)
    assert not run.exists()
    assert calls == when


def test_a_best_policy_that_was_lost_is_not_reported(make_config: MakeConfig) -> None:
    config = make_config(max_steps=2, eval_every=2, eval_fraction=0.34)
    run = Path(config.output_dir) / "run"

    def removes(prompts: list[str], responses: list[Any]) -> list[float]:
        (run / "best" / "best.json").unlink(missing_ok=True)
        return [0.0] * len(responses)

    with pytest.raises(RunFolderError, match="best is damaged or cut off"):
        PPOTrainer(config, reward=removes).train(PROMPTS)
