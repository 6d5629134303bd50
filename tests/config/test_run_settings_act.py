"""Every setting of data, evaluation and the run folder has an effect."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.cli.overopt_command import sweep_one
from ppolm.config import PPOConfig
from ppolm.data.load_rows import load_prompts
from ppolm.errors import DataError
from ppolm.evaluation.evaluator import limits_of
from ppolm.evaluation.verdict import judge
from ppolm.ppo_trainer import PPOTrainer
from ppolm.runs.prompt_schedule import plan_prompts
from ppolm.storage.metrics_log import read_metrics
from ppolm.token_attribution.sa_pairs_io import from_parquet
from tests.config.acting import MakeConfig, acts
from tests.conftest import PROMPTS, spread


@acts("prompts", "eval_prompts", "num_epochs", "output_dir", "run_name")
def test_data_and_folder_settings_through_the_command(make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\n".join(PROMPTS))
    (tmp_path / "held.txt").write_text("A held-out prompt\n")
    (tmp_path / "own.py").write_text("def score(prompts, responses):\n    return [float(len(r)) for r in responses]\n")
    config = make_config(
        prompts=str(tmp_path / "train.txt"),
        eval_prompts=str(tmp_path / "held.txt"),
        num_epochs=2,
        reward=(f"{tmp_path}/own.py:score",),
        output_dir=str(tmp_path / "elsewhere"),
        run_name="mine",
    )
    config.to_yaml(tmp_path / "config.yaml")
    assert ppolm(["train", "--config", str(tmp_path / "config.yaml")]) == 0
    run = tmp_path / "elsewhere" / "mine"
    assert [row["num_responses"] for row in read_metrics(run)] == [4, 4, 4]  # 6 prompts, twice, without a gap
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    assert {sample["prompt"] for sample in samples if sample["kind"] == "eval"} == {"A held-out prompt"}
    assert {sample["prompt"] for sample in samples if sample["kind"] == "train"} <= set(PROMPTS)


@acts("dataset_split")
def test_dataset_split_chooses_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "dataset"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"prompt": "one"}\n{"prompt": "two"}\n')
    (folder / "test.jsonl").write_text('{"prompt": "three"}\n')
    assert [prompt.content for prompt in load_prompts(str(folder), "train")] == ["one", "two"]
    assert [prompt.content for prompt in load_prompts(str(folder), "test")] == ["three"]


@acts("skip_bad_rows")
def test_skip_bad_rows_leaves_them_out_of_training_evaluation_and_generation(
    make_config: MakeConfig, model_folder: Path, tmp_path: Path, caplog: Any, capsys: Any
) -> None:
    rows = [{"prompt": prompt} for prompt in PROMPTS]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [{"prompt": 5}, *rows]))
    others = [{"prompt": 5}, *({"prompt": f"Now {prompt}"} for prompt in PROMPTS)]
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in others))
    (tmp_path / "own.py").write_text("def score(prompts, responses):\n    return [float(len(r)) for r in responses]\n")
    config = make_config(
        prompts=str(tmp_path / "p.jsonl"),
        eval_prompts=str(tmp_path / "e.jsonl"),
        reward=(f"{tmp_path}/own.py:score",),
        max_steps=1,
    )
    config.to_yaml(tmp_path / "config.yaml")
    train = ["train", "--config", str(tmp_path / "config.yaml")]
    assert ppolm(train) == 1
    assert f"{tmp_path / 'p.jsonl'}, line 1, is int (5)" in capsys.readouterr().err
    assert ppolm([*train, "--skip-bad-rows"]) == 0
    assert "1 of 7 rows left out" in caplog.text
    run = Path(config.output_dir) / "run"
    assert read_metrics(run, "eval")[0]["num_responses"] == 6
    capsys.readouterr()
    assert ppolm(["eval", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prompts"] == 6
    generate = ["generate", "--model-name", str(model_folder), "--prompts", str(tmp_path / "p.jsonl"), "--json"]
    assert ppolm(generate) == 1
    assert ppolm([*generate, "--max-new-tokens", "2", "--skip-bad-rows"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6


@acts("skip_bad_rows")
def test_skip_bad_rows_reaches_the_sweep(make_config: MakeConfig, tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": 5}\n{"prompt": "one"}\n{"prompt": "two"}\n')
    config = make_config(
        prompts=str(tmp_path / "p.jsonl"), reward=("tests.conftest:spread",), max_steps=1, eval_fraction=0.5
    )
    with pytest.raises(DataError, match="line 1, is int"):
        sweep_one(config)
    assert sweep_one(dataclasses.replace(config, skip_bad_rows=True)).evaluations
    assert "1 of 3 rows left out" in caplog.text


@acts("batch_size", "eval_fraction", "max_eval_prompts", "max_steps", "eval_every")
def test_prompt_schedule_settings(make_config: MakeConfig) -> None:
    prompts = [f"prompt number {i}" for i in range(40)]

    def plan(**changes: Any) -> Any:
        config = make_config(**changes)
        return plan_prompts(config, PPOTrainer(config, reward=spread).generator, prompts, 1, None)

    assert len(plan(batch_size=8, eval_fraction=0.0).batch(0)) == 8
    assert len(plan(eval_fraction=0.25).held_out) == 10
    assert len(plan(eval_fraction=0.25, max_eval_prompts=3).held_out) == 3
    assert plan(eval_fraction=0.25, max_steps=2).total_steps == 2
    assert not plan(eval_every=0).held_out
    split = plan(eval_fraction=0.25)
    assert not {prompt.content for prompt in split.train} & {prompt.content for prompt in split.held_out}


@acts("long_prompts")
def test_long_prompts_are_an_error_or_left_out(make_config: MakeConfig, caplog: Any) -> None:
    prompts = [*PROMPTS, "far too long " * 30]
    with pytest.raises(DataError, match="Prompt 6 has 390 tokens"):
        PPOTrainer(make_config(), reward=spread).train(prompts)
    config = make_config(long_prompts="skip", eval_every=0)
    with caplog.at_level(logging.WARNING):
        schedule = plan_prompts(config, PPOTrainer(config, reward=spread).generator, prompts, 1, None)
    assert len(schedule.train) == 6
    assert "1 of 7 prompts are too long" in caplog.text


def held_out_rewards(config: PPOConfig) -> list[tuple[float, float]]:
    results = PPOTrainer(config, reward=spread).train(PROMPTS)
    return [(row["step"], row["avg_reward"]) for row in results.evaluations]


@acts("eval_every", "eval_seed")
def test_evaluation_schedule_and_seed(make_config: MakeConfig) -> None:
    base = {"eval_fraction": 0.4, "batch_size": 1, "max_steps": 4}
    every_two = held_out_rewards(make_config(**base, eval_every=2, run_name="a"))
    assert [step for step, _ in every_two] == [0, 2, 4]
    assert held_out_rewards(make_config(**base, eval_every=2, run_name="b")) == every_two
    assert held_out_rewards(make_config(**base, eval_every=2, run_name="c", eval_seed=5)) != every_two


@acts("patience", "min_delta")
def test_patience_and_min_delta_stop_a_run_without_progress(make_config: MakeConfig) -> None:
    def constant(prompts: list[str], responses: list[str]) -> list[float]:
        return [1.0] * len(responses)

    config = make_config(eval_fraction=0.4, eval_every=1, batch_size=1, patience=2, num_epochs=5)
    results = PPOTrainer(config, reward=constant).train(PROMPTS)
    assert (results.stopped, results.verdict, results.steps) == ("converged", "unchanged", 2)
    history = [{"avg_reward": 1.0}, {"avg_reward": 1.05}]
    assert judge(history, limits_of(make_config(min_delta=0.0)))[0].performance_improved
    assert not judge(history, limits_of(make_config(min_delta=0.1)))[0].performance_improved


FIRST = {"avg_reward": 1.0, "reward_std": 0.5, "kl_per_token": 0.0, "entropy": 2.0, "response_length": 10.0}
FIRST["num_responses"] = 64


@acts("collapse_reward_drop", "collapse_kl", "collapse_entropy", "collapse_length")
@pytest.mark.parametrize(
    ("name", "tight", "loose", "now"),
    [
        ("collapse_reward_drop", 1.0, 3.0, {"avg_reward": 0.2}),
        ("collapse_kl", 0.5, 2.0, {"kl_per_token": 1.0}),
        ("collapse_entropy", 0.2, 0.01, {"entropy": 0.1}),
        ("collapse_length", 2.0, 5.0, {"response_length": 30.0}),
    ],
)
def test_collapse_limits(make_config: MakeConfig, name: str, tight: float, loose: float, now: dict[str, float]) -> None:
    history = [FIRST, FIRST | now]
    assert judge(history, limits_of(make_config(**{name: tight})))[1].collapsed
    assert not judge(history, limits_of(make_config(**{name: loose})))[1].collapsed


@acts("judge", "judge_drop", "stop_on_alarm")
def test_judge_settings(make_config: MakeConfig) -> None:
    config = make_config(eval_fraction=0.4, eval_every=1, batch_size=1, max_steps=1, judge="tests.conftest:spread")
    results = PPOTrainer(config, reward=spread).train(PROMPTS)
    assert results.evaluations[0]["judge"] > 0
    alone = dataclasses.replace(config, judge=None, run_name="alone")
    assert "judge" not in PPOTrainer(alone, reward=spread).train(PROMPTS).evaluations[0]
    judged = FIRST | {"judge": 0.8, "judge_std": 0.1, "step": 0}
    history = [judged, judged | {"judge": 0.7, "step": 1}]
    assert judge(history, limits_of(make_config(judge_drop=3.0)))[1].over_optimised
    assert not judge(history, limits_of(make_config(judge_drop=30.0, judge="gold")))[1].over_optimised

    def falling(prompts: list[str], responses: list[str]) -> list[float]:
        return [1.0] * len(responses)

    stubborn = make_config(
        run_name="stubborn", eval_fraction=0.4, eval_every=1, batch_size=1, patience=1, max_steps=3, stop_on_alarm=False
    )
    assert PPOTrainer(stubborn, reward=falling).train(PROMPTS, 2).steps == 3


@acts("checkpoint_every", "keep_checkpoints", "table_every", "samples_per_step", "log_to")
def test_run_folder_settings(make_config: MakeConfig) -> None:
    config = make_config(
        eval_every=0,
        batch_size=1,
        checkpoint_every=2,
        keep_checkpoints=2,
        table_every=3,
        samples_per_step=1,
        log_to=("tensorboard",),
        samples_per_prompt=1,
    )
    run = PPOTrainer(config, reward=spread).train(PROMPTS).run_dir
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-000004", "step-000006"]
    tables = sorted(path.name for path in (run / "table").iterdir())
    assert tables == [f"step-{step:06d}.parquet" for step in (1, 3, 6)]
    assert from_parquet(run / "table" / tables[0]).num_sequences == 1
    assert len((run / "samples.jsonl").read_text().splitlines()) == 6
    assert list((run / "tensorboard").glob("events*"))
    quiet = PPOTrainer(dataclasses.replace(config, log_to=(), table_every=0, run_name="quiet"), reward=spread)
    folder = quiet.train(PROMPTS[:2]).run_dir
    assert not (folder / "tensorboard").exists()
    assert not (folder / "table").exists()
