"""A run that starts from another begins with its policy and value model, knows where it came from, and needs it no
more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ppolm.config import PPOConfig
from ppolm.data.prompts import as_prompt
from ppolm.errors import ConfigError, RunFolderError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ppo_trainer.run_comparison import RunComparison
from ppolm.runs.run_folder import RunFolder
from ppolm.storage.claim import Claim
from ppolm.storage.metrics_log import read_metrics
from ppolm.storage.prompt_record import read_held_out, read_trained_on
from ppolm.storage.stored_run import read_run_config
from tests.closeness import near
from tests.conftest import spread
from tests.runs.compared_runs import STATEFUL, assert_same_run
from tests.sft_adapter import make_sft_adapter

MakeConfig = Callable[..., PPOConfig]
PROMPTS = [f"Prompt number {i} of some:" for i in range(40)]
ROUND: dict[str, Any] = {"eval_every": 2, "max_steps": 2, "collapse_reward_drop": 1e6}
UNSEEN: dict[str, Any] = {"eval_every": 0, "max_steps": 2}
"""Without evaluations, so that every prompt is trained on."""


def train(config: PPOConfig, prompts: list[str] = PROMPTS, **options: Any) -> Path:
    return PPOTrainer(config, reward=spread).train(prompts, **options).run_dir


@pytest.fixture
def first(make_config: MakeConfig) -> Path:
    """A finished run."""
    return train(make_config(**ROUND, run_name="first"))


def same_weights(one: Any, folder: Path) -> bool:
    stored = list(load_file(folder / "adapter_model.safetensors").values())
    own = [value for name, value in one.parameters().items() if not name.startswith("head.")]
    return len(own) == len(stored) and all(any(torch.equal(value, other) for other in stored) for value in own)


def test_it_begins_with_the_best_policy_and_value_model_and_the_old_reference(
    make_config: MakeConfig, first: Path
) -> None:
    trainer = PPOTrainer(make_config(**ROUND, run_name="second", start_from=str(first)), reward=spread)
    assert same_weights(trainer.models.policy, first / "best")
    assert same_weights(trainer.models.value, first / "best" / "value")
    head = load_file(next((first / "best" / "value").glob("*head*.safetensors")))
    own = trainer.models.value.head.state_dict()
    assert len(own) == len(head) > 0
    assert all(any(torch.equal(value, other) for other in head.values()) for value in own.values())
    assert trainer.models.sft.adapter is None
    trainer.train(PROMPTS)
    before, after = read_metrics(first, "eval"), read_metrics(first.parent / "second", "eval")
    best = json.loads((first / "best" / "best.json").read_text())["step"]
    (ended,) = [row for row in before if row["step"] == best]
    assert after[0]["avg_reward"] == ended["avg_reward"], "the same held-out prompts, policy and random numbers"
    assert after[0]["kl"] == near(ended["kl"])


def test_its_reference_can_be_the_policy_it_starts_from_and_its_value_model_new(
    make_config: MakeConfig, first: Path
) -> None:
    settings = make_config(
        **ROUND, run_name="second", start_from=str(first), start_reference="policy", start_value=False
    )
    trainer = PPOTrainer(settings, reward=spread)
    assert same_weights(trainer.models.sft, first / "best")
    assert float(trainer.models.value.head.linear.weight.detach().abs().max()) == 0
    run = trainer.train(PROMPTS).run_dir
    assert read_metrics(run, "eval")[0]["kl"] == 0
    assert read_metrics(run)[0]["kl"] == 0


def test_a_checkpoint_can_be_started_from(make_config: MakeConfig, first: Path) -> None:
    checkpoint = first / "checkpoints" / "step-000000"
    run = train(make_config(**ROUND, run_name="second", start_from=str(checkpoint)))
    (ancestor,) = json.loads((run / "start" / "start.json").read_text())["ancestors"]
    assert ancestor["path"] == str(checkpoint)
    assert ancestor["step"] == 0
    assert read_metrics(run, "eval")[0]["avg_reward"] == read_metrics(first, "eval")[0]["avg_reward"]


def test_settings_may_change_but_adapters_keep_their_shape(make_config: MakeConfig, tmp_path: Path) -> None:
    first = train(make_config(**ROUND, run_name="first", trainable_layers=1))
    again = {**ROUND, "start_from": str(first), "kl_coef": 0.3, "learning_rate": 1e-4, "max_new_tokens": 4}
    run = train(make_config(**again, run_name="same yaml", trainable_layers=1))
    left_out = PPOConfig(model_name=read_run_config(first).model_name, start_from=str(first), device="cpu")
    trainer = PPOTrainer(left_out, reward=spread)
    assert (trainer.config.lora_r, trainer.config.trainable_layers) == (4, 1), "as the run that it starts from"
    assert read_run_config(run).kl_coef == 0.3
    with pytest.raises(ConfigError, match=r"lora_r is 8, but the adapters of .*first have 4.* Leave lora_r out"):
        PPOTrainer(make_config(**again, lora_r=8), reward=spread)


def test_an_sft_adapter_stays_the_reference_round_after_round(make_config: MakeConfig, tmp_path: Path) -> None:
    sft = make_sft_adapter(make_config(), tmp_path / "sft")
    first = train(make_config(**ROUND, run_name="first", sft_adapter=str(sft)))
    second = train(make_config(**ROUND, run_name="second", start_from=str(first)))
    third = make_config(**ROUND, run_name="third", start_from=str(second))
    trainer = PPOTrainer(third, reward=spread)
    assert Path(str(trainer.config.reference_adapter)) == second / "start" / "reference"
    assert same_weights(trainer.models.sft, sft)
    assert trainer.config.sft_adapter == str(sft), "so that one settings file serves all rounds"
    with pytest.raises(ConfigError, match=r"sft_adapter is .*other, but .*second has the reference .*sft, which"):
        PPOTrainer(make_config(**ROUND, start_from=str(second), sft_adapter=str(tmp_path / "other")), reward=spread)


def test_a_reference_that_was_a_policy_is_kept_by_all_rounds_that_follow_even_if_earlier_ones_are_deleted(
    make_config: MakeConfig, first: Path, tmp_path: Path
) -> None:
    second = train(make_config(**ROUND, run_name="second", start_from=str(first), start_reference="policy"))
    best = shutil.copytree(first / "best", tmp_path / "best of first")
    third = train(make_config(**ROUND, run_name="third", start_from=str(second)))
    for earlier in (first, second):
        shutil.rmtree(earlier)
    fourth = PPOTrainer(make_config(**ROUND, run_name="fourth", start_from=str(third)), reward=spread)
    assert same_weights(fourth.models.sft, best)
    assert same_weights(fourth.models.policy, third / "best")
    train(read_run_config(third).changed(max_steps=3), resume=third)


def test_a_run_may_be_called_as_the_copy_of_a_start_is(make_config: MakeConfig) -> None:
    first = train(make_config(**ROUND, run_name="start"))
    second = train(make_config(**ROUND, run_name="second", start_from=str(first)))
    (ancestor,) = json.loads((second / "start" / "start.json").read_text())["ancestors"]
    assert ancestor["path"] == str(first)
    assert read_trained_on(first) <= read_trained_on(second)


def test_it_notes_its_ancestors_the_nearest_first(make_config: MakeConfig, first: Path) -> None:
    second = train(make_config(**ROUND, run_name="second", start_from=str(first)))
    third = train(make_config(**ROUND, run_name="third", start_from=str(second)))
    noted = json.loads((third / "start" / "start.json").read_text())["ancestors"]
    assert [one["path"] for one in noted] == [str(second), str(first)]
    assert all(isinstance(one["step"], int) and len(one["digest"]) == 64 for one in noted)
    steps = [one["step"] for one in noted]
    summary = (third / "report" / "summary.md").read_text()
    assert f"Started from the policy of second (step {steps[0]}), before that first (step {steps[1]})." in summary


@pytest.mark.parametrize("reference", ["kept", "policy"])
def test_it_resumes_bit_for_bit_wherever_it_is_moved_and_when_the_other_run_is_gone(
    make_config: MakeConfig, first: Path, tmp_path: Path, reference: str
) -> None:
    settings = STATEFUL | {"start_from": str(first), "start_reference": reference}
    whole = train(make_config(**settings, run_name="whole"))
    broken = train(make_config(**settings | {"max_steps": 3, "lr_schedule": "constant"}, run_name="short"))
    shutil.rmtree(broken)
    broken = train(make_config(**settings, run_name="broken"))
    shutil.rmtree(broken / "checkpoints" / "step-000006")
    shutil.rmtree(first)
    moved = tmp_path / "elsewhere" / "broken"
    moved.parent.mkdir()
    shutil.move(broken, moved)
    assert (moved / "config.yaml").read_text().count("start_from: start\n") == 1
    config = read_run_config(moved)
    assert config.start_from == str(moved / "start")
    train(config, resume=moved)
    assert_same_run(whole, moved)


def test_it_resumes_with_the_settings_that_it_was_started_with(make_config: MakeConfig, first: Path) -> None:
    config = make_config(**UNSEEN, run_name="second", start_from=str(first))
    run = train(config)
    longer = make_config(**UNSEEN | {"max_steps": 3}, run_name="second", start_from=str(first))
    assert len(PPOTrainer(longer, reward=spread).train(PROMPTS, resume=run).metrics) == 3 - 2
    other = train(make_config(**ROUND, run_name="other", seed=1))
    with pytest.raises(RunFolderError, match="another configuration: start_from"):
        train(make_config(**UNSEEN, run_name="second", start_from=str(other)), resume=run)
    shutil.copytree(other / "best", first / "best", dirs_exist_ok=True)
    with pytest.raises(RunFolderError, match=r"has changed since .*second started from it.* --resume .*second"):
        train(longer, resume=run)


def test_held_out_prompts_are_those_that_no_round_was_trained_on(make_config: MakeConfig, first: Path) -> None:
    more = [f"Another prompt, number {i}:" for i in range(8)]
    config = make_config(**ROUND, run_name="second", start_from=str(first), max_eval_prompts=6)
    run = train(config, prompts=PROMPTS[::-1] + more)
    held = {prompt.key for prompt in read_held_out(run)}
    assert len(held) == 6
    assert not held & read_trained_on(first)
    assert read_trained_on(first) < read_trained_on(run), "what follows must not hold them out either"
    train(make_config(**ROUND | {"max_steps": 3}, run_name="second", start_from=str(first), max_eval_prompts=6),
          prompts=PROMPTS[::-1] + more, resume=run)  # fmt: skip


def test_eval_prompts_that_a_round_was_trained_on_are_left_out_and_counted(
    make_config: MakeConfig, first: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen = [prompt for prompt in PROMPTS if as_prompt(prompt, "a prompt").key in read_trained_on(first)][:3]
    new = [f"Another prompt, number {i}:" for i in range(4)]
    run = train(make_config(**ROUND, run_name="second", start_from=str(first)), eval_prompts=seen + new)
    assert {prompt.content for prompt in read_held_out(run)} == set(new)
    assert "3 of 7 eval_prompts are left out" in caplog.text


def test_prompts_that_are_all_known_to_the_policy_are_evaluated_with_a_warning(
    make_config: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    first = train(make_config(**UNSEEN, run_name="first"))
    train(make_config(**ROUND, run_name="second", start_from=str(first)))
    assert "was trained on all prompts that could be held out" in caplog.text


def test_an_evaluation_compares_with_the_reference_not_with_the_start(make_config: MakeConfig, first: Path) -> None:
    second = train(make_config(**ROUND, run_name="second", start_from=str(first)))
    held = read_held_out(second)
    comparisons = []
    for run in (first, second):
        comparison = RunComparison(run, reward=("tests.conftest:spread",))
        comparisons.append(comparison.compare(held)[0])
    assert comparisons[0].before.scores == comparisons[1].before.scores
    assert comparisons[1].before.metrics["kl"] == 0
    assert comparisons[1].after.metrics["kl"] != 0


def test_a_beginning_that_was_interrupted_is_begun_again(
    make_config: MakeConfig, first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(**ROUND, run_name="second", start_from=str(first))

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "keep_start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(config)
    assert read_run_config(Path(config.output_dir) / "second").start_from == str(first)
    assert (train(config) / "start" / "policy").is_dir()


def test_what_cannot_be_started_from_is_refused_in_a_sentence(
    make_config: MakeConfig, first: Path, tmp_path: Path
) -> None:
    def refused(error: type[Exception], said: str, **changes: Any) -> None:
        with pytest.raises(error, match=said):
            PPOTrainer(make_config(**ROUND | {"start_from": str(first)} | changes), reward=spread)

    refused(ConfigError, "base .*qwen3.*, and model_name is embedded. .*set model_name to", model_name="embedded")
    refused(RunFolderError, "not a run folder", start_from=str(tmp_path / "nothing"))
    refused(RunFolderError, "Did you mean .*first", start_from=str(first.parent / "firts"))
    unfinished = shutil.copytree(first, tmp_path / "unfinished")
    shutil.rmtree(unfinished / "best")
    refused(RunFolderError, "has no best/ yet", start_from=str(unfinished))
    without_values = shutil.copytree(first / "checkpoints" / "step-000002", tmp_path / "r" / "checkpoints" / "step-2")
    shutil.copy(first / "config.yaml", tmp_path / "r")
    shutil.rmtree(without_values / "value")
    refused(RunFolderError, "damaged or cut off", start_from=str(without_values))
    with Claim(first, "Wait."):
        refused(RunFolderError, "then start from it", start_from=str(first))
    weights = first / "best" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    refused(RunFolderError, "damaged or cut off")
