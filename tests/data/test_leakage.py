"""No prompt is both trained on and evaluated on, for every data format and every command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run
from ppolm.config import PPOConfig, RewardConfig, SFTConfig
from ppolm.data.examples import Demonstration
from ppolm.data.held_out_split import ENOUGH_PROMPTS
from ppolm.data.load_rows import load_demonstrations, load_judgements, load_prompts
from ppolm.data.prompts import Prompt
from ppolm.errors import DataError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.runs.prompt_schedule import PromptSchedule, different_prompts, plan_prompts
from ppolm.storage.prompt_record import read_held_out, read_trained_on
from ppolm.supervised import RewardTrainer, SFTTrainer
from ppolm.supervised.supervised_trainer import SupervisedTrainer
from tests.conftest import spread
from tests.public_shapes import SHAPES, chat, rows_of, write

PROMPTS = 40
JUDGED = [name for name in SHAPES if SHAPES[name][1] != "demonstrations"]
SHOWN = [name for name in SHAPES if SHAPES[name][1] in ("demonstrations", "scores")]
SETTINGS: dict[str, Any] = {"lora_r": 2, "device": "cpu", "threads": 1}


class FitsAll:
    """A stand-in for the generator in which every prompt fits, since splitting needs no model."""

    def fits(self, ids: Any) -> bool:  # noqa: ARG002
        return True

    def encode(self, prompt: Prompt, number: int) -> list[int]:  # noqa: ARG002
        return [1]


def plan(prompts: list[Any], eval_prompts: list[Any] | None = None, **settings: Any) -> PromptSchedule:
    config = PPOConfig(**{"eval_every": 1, **settings})
    return plan_prompts(config, FitsAll(), prompts, 1, eval_prompts)  # type: ignore[arg-type]


def keys(prompts: list[Prompt]) -> set[bytes]:
    return {prompt.key for prompt in prompts}


# ---- PPO -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_ppo_holds_out_prompts_not_rows(name: str, tmp_path: Path) -> None:
    schedule = plan(list(load_prompts(str(write(tmp_path / "rows.jsonl", rows_of(name, PROMPTS))))))
    assert not keys(schedule.train) & keys(schedule.held_out)
    assert len(schedule.train) + len(schedule.held_out) == PROMPTS  # each prompt once, although it has two rows
    assert len(schedule.held_out) == 10  # a tenth would be 4, too few to show anything, so a quarter


@pytest.mark.parametrize("name", SHAPES)
def test_given_evaluation_prompts_are_left_out_of_the_training_and_that_is_said(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = rows_of(name, PROMPTS)
    train = list(load_prompts(str(write(tmp_path / "train.jsonl", rows))))
    evaluated = list(load_prompts(str(write(tmp_path / "eval.jsonl", rows[: 2 * 18]))))
    schedule = plan(train, evaluated, max_eval_prompts=16)
    assert "18 of 40 prompts to train on are also given to evaluate on" in caplog.text
    assert len(schedule.train) == PROMPTS - 18
    assert len(keys(schedule.held_out)) == 16
    assert not keys(schedule.train) & keys(evaluated)


def test_the_same_data_to_train_on_and_to_evaluate_on_is_an_error() -> None:
    with pytest.raises(DataError, match="All 3 prompts to train on are also given to evaluate on"):
        plan(["a", "b", "c"], ["c", " b", "a\n"])


def test_evaluation_prompts_are_drawn_from_all_over_a_sorted_file_each_once() -> None:
    rows = [{"prompt": f"prompt {i // 6}", "chosen": f"{i}", "rejected": "x"} for i in range(1200)]
    held_out = plan(["another"], rows).held_out
    numbers = [int(str(prompt.content).split()[1]) for prompt in held_out]
    assert len(set(numbers)) == len(numbers) == 64
    assert max(numbers) > 150
    assert [prompt.content for prompt in plan(["another"], rows, seed=1).held_out] != [p.content for p in held_out]


def test_rows_that_only_ask_differ_by_what_the_reward_gets_and_stay_on_one_side() -> None:
    rows = [{"prompt": f"p{i}", "level": level} for i in range(40) for level in (1, 2, 2)]
    schedule = plan(rows)
    assert len(schedule.train) + len(schedule.held_out) == 80
    assert not keys(schedule.train) & keys(schedule.held_out)
    assert len(keys(schedule.held_out)) == 10


def test_prompts_are_the_same_if_they_differ_in_white_space_alone() -> None:
    assert len(different_prompts([Prompt("a  b\n"), Prompt("a b"), Prompt(chat("a b")), Prompt(chat("a b "))])) == 2


@pytest.mark.parametrize(("number", "held_out"), [(3, 0), (4, 1), (60, 15), (100, 16), (500, 50), (10_000, 64)])
def test_few_prompts_give_a_larger_share_and_too_few_are_announced(
    number: int, held_out: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(plan([f"p{i}" for i in range(number)]).held_out) == held_out
    assert ("too few to tell a gain from chance" in caplog.text) == (0 < held_out < ENOUGH_PROMPTS)


def test_a_run_keeps_who_was_held_out_and_eval_uses_it_whatever_the_file_holds_later(
    tmp_path: Path, make_config: Any, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"prompt": f"Name colour {i}:", "reference": "blue", "row": i} for i in range(24)]
    path = write(tmp_path / "p.jsonl", rows)
    config = make_config(prompts=str(path), reward=("tests.conftest:spread",), eval_every=1, max_steps=1, batch_size=2)
    results = PPOTrainer(config, reward=spread).train(list(load_prompts(str(path))))
    held_out = read_held_out(results.run_dir)
    assert len(held_out) == 6
    assert all(prompt.columns["reference"] == "blue" for prompt in held_out)
    assert read_trained_on(results.run_dir) == keys(load_prompts(str(path))) - keys(held_out)
    assert "6 responses to 6 different prompts per evaluation" in results.summary()
    write(path, [{"prompt": "One more:"}, *rows])
    flags = ["eval", str(results.run_dir), "--reward", "tests.conftest:spread", "--json"]
    assert run(flags) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["prompts"], found["responses"]) == (6, 6)
    assert run([*flags, "--prompts", str(path)]) == 0
    assert "18 of these 25 prompts were trained on" in caplog.text


# ---- SFT and reward models -------------------------------------------------------------------------------------------


def apart(trainer: SupervisedTrainer[Any]) -> None:
    train, held_out = ({trainer.prompt_key(row) for row in rows} for rows in (trainer.rows, trainer.held_out))
    assert held_out
    assert not train & held_out


@pytest.mark.parametrize("long_rows", ["skip", "cut"])
@pytest.mark.parametrize("name", JUDGED)
def test_reward_training_validates_on_other_prompts_also_where_they_are_cut(
    name: str, long_rows: Any, tmp_path: Path, model_folder: Path
) -> None:
    rows = load_judgements(str(write(tmp_path / "rows.jsonl", rows_of(name, PROMPTS))))
    limits: Any = {"long_rows": long_rows, "max_tokens": 40 if long_rows == "cut" else 128}
    apart(RewardTrainer(RewardConfig(model_name=str(model_folder), **SETTINGS, **limits), rows))


def test_prompts_that_become_the_same_when_cut_stay_apart_and_the_same_ones_together(model_folder: Path) -> None:
    """If rows were grouped after cutting, one prompt with answers of different lengths would count as several."""
    config = SFTConfig(model_name=str(model_folder), **SETTINGS, long_rows="cut", max_tokens=60, eval_fraction=0.3)
    rows = [
        Demonstration(Prompt(f"{i} " + "long " * 20), " yes" * (1 + again)) for i in range(12) for again in range(4)
    ]
    trainer = SFTTrainer(config, rows)
    apart(trainer)
    assert len(trainer.held_out) % 4 == 0  # whole prompts


@pytest.mark.parametrize("long_rows", ["skip", "cut"])
@pytest.mark.parametrize("name", SHOWN)
def test_sft_validates_on_other_prompts_also_where_they_are_cut(
    name: str, long_rows: Any, tmp_path: Path, model_folder: Path
) -> None:
    rows = load_demonstrations(str(write(tmp_path / "rows.jsonl", rows_of(name, PROMPTS))))
    limits: Any = {"long_rows": long_rows, "max_tokens": 40 if long_rows == "cut" else 128}
    apart(SFTTrainer(SFTConfig(model_name=str(model_folder), **SETTINGS, **limits), rows))


@pytest.mark.parametrize("name", SHOWN)
def test_demonstrations_given_to_validate_with_are_left_out_of_the_training(
    name: str, model_folder: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Matched by prompt: the answers on the two sides differ."""
    every = load_demonstrations(str(write(tmp_path / "rows.jsonl", rows_of(name, PROMPTS))))
    config = SFTConfig(model_name=str(model_folder), **SETTINGS)
    trainer = SFTTrainer(config, every[::2], every[1:20:2])
    apart(trainer)
    assert (len(trainer.rows), len(trainer.held_out)) == (30, 10)
    assert "10 of 40 rows to train on are also given to evaluate on" in caplog.text
    with pytest.raises(DataError, match="name:split"):
        SFTTrainer(config, every[::2], every[1::2])


def test_an_answer_that_was_judged_bad_is_no_demonstration(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", rows_of("KTO thumbs", 2))
    with pytest.raises(DataError, match="line 2, shows an answer that was judged bad"):
        load_demonstrations(str(path))
    assert [row.completion for row in load_demonstrations(str(path), skip_bad=True)] == ["Blue.", "Blue."]
    other = write(tmp_path / "topics.jsonl", [{"prompt": "a", "completion": "b", "label": "sports"}])
    assert len(load_demonstrations(str(other))) == 1  # a column of that name may mean something else


def test_rows_given_to_validate_with_are_left_out_of_the_training(
    model_folder: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    rows = load_judgements(str(write(tmp_path / "rows.jsonl", rows_of("UltraFeedback", PROMPTS))))
    config = RewardConfig(model_name=str(model_folder), **SETTINGS)
    trainer = RewardTrainer(config, rows, rows[:20])
    apart(trainer)
    assert (len(trainer.rows), len(trainer.held_out)) == (60, 20)
    assert "20 of 80 rows to train on are also given to evaluate on" in caplog.text
    with pytest.raises(DataError, match="name:split"):
        RewardTrainer(config, rows, rows)
