# ruff: noqa: ARG002 (a callback has its arguments, whether it reads them or not)
"""Callbacks: what they are told; that they may stop a run and change settings, also through a resume."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppolm import Callback, EvaluationDone, RunControl, StepDone, Stopped
from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.errors import CallbackError, ConfigError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.runs.run_status import read_status
from ppolm.storage.metrics_log import read_metrics
from tests.conftest import spread
from tests.hooks.steering import Steering, Watching, lines
from tests.runs.compared_runs import STATEFUL, assert_same_run, numbers

MakeConfig = Callable[..., PPOConfig]
PROMPTS = [f"Prompt number {i} of some:" for i in range(14)]


def test_a_callback_is_told_everything_in_order_with_the_facts_that_the_run_writes(make_config: MakeConfig) -> None:
    watching = Watching()
    config = make_config(max_steps=2, eval_every=2, eval_fraction=0.3, checkpoint_every=5)
    results = PPOTrainer(config, reward=spread).train(PROMPTS, callbacks=[watching])
    statuses = [row["status"] for row in read_metrics(results.run_dir, "eval")]
    assert watching.seen == [
        *(("checkpoint", "step-000000"), ("start", 0), ("evaluation", 0, statuses[0])),
        *(("step", 1), ("step", 2), ("evaluation", 2, statuses[1]), ("checkpoint", "step-000002")),
        ("end", "finished", "", True),
    ]
    for step, row in zip(watching.steps, read_metrics(results.run_dir), strict=True):
        assert {k: v for k, v in step.metrics.items() if v == v} == {k: v for k, v in row.items() if v is not None}
        assert step.sa_pairs.num_sequences == len(step.texts) == len(step.rewards) == row["num_responses"]
        assert "advantage" in step.sa_pairs.columns


def test_changes_take_effect_in_the_next_step_and_are_recorded_and_shown(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(max_steps=6, eval_every=0, num_epochs=3), reward=spread)
    run = trainer.train(PROMPTS, callbacks=[Steering()]).run_dir
    rows = read_metrics(run)
    assert [row["kl_coef"] for row in rows] == [0.1, 0.3, 0.3, 0.3, 0.05, 0.05]
    assert [row["learning_rate"] for row in rows] == [1e-3, 1e-3, 1e-3, 5e-4, 5e-4, 5e-4]
    assert [row["value_learning_rate"] for row in rows] == [1e-3, 1e-3, 1e-3, 2e-3, 2e-3, 2e-3]
    told = [(row["step"], row["setting"], row["old"], row["new"], row["by"]) for row in lines(run, "change")]
    assert told == [
        (1, "kl_coef", 0.1, 0.3, "Steering"),
        (3, "learning_rate", 1e-3, 5e-4, "Steering"),
        (3, "value_learning_rate", 1e-3, 2e-3, "Steering"),
        (4, "kl_coef", 0.3, 0.05, "Steering"),
    ]
    assert "| 4 | `kl_coef` | 0.3 | 0.05 | Steering |" in (run / "report" / "summary.md").read_text()
    assert PPOConfig.from_yaml(run / "config.yaml").kl_coef == 0.1, "config.yaml has what the run was started with"


def test_a_run_with_changes_that_is_interrupted_and_resumed_equals_the_uninterrupted_one(
    make_config: MakeConfig,
) -> None:
    def train(name: str, interrupt_after: int | None = None, resume: Path | None = None) -> Path:
        trainer = PPOTrainer(make_config(**STATEFUL, run_name=name, keep_checkpoints=9), reward=spread)
        return trainer.train(PROMPTS, callbacks=[Steering(interrupt_after=interrupt_after)], resume=resume).run_dir

    whole = train("whole")
    broken = whole.parent / "broken"
    with pytest.raises(Stopped, match="after step 5"):
        train("broken", interrupt_after=5)
    assert_same_run(whole, train("broken", resume=broken))
    assert lines(whole, "change") == lines(broken, "change")
    assert numbers(whole) != numbers(
        PPOTrainer(make_config(**STATEFUL, run_name="x"), reward=spread).train(PROMPTS).run_dir
    )
    # Also from a checkpoint before some of the changes, which were made in an evaluation and in steps.
    assert_same_run(whole, train("broken", resume=broken / "checkpoints" / "step-000000"))
    assert lines(whole, "change") == lines(broken, "change")


def test_a_step_that_is_abandoned_in_a_callback_undoes_its_changes(
    make_config: MakeConfig,
) -> None:
    class Hit(Steering):
        def on_step(self, step: StepDone, run: RunControl) -> None:
            super().on_step(step, run)
            if step.step == 3 and armed:
                armed.clear()
                os.kill(os.getpid(), signal.SIGTERM)

    armed = [True]
    config = make_config(**STATEFUL, run_name="broken")
    with pytest.raises(Stopped, match="after step 2"):
        PPOTrainer(config, reward=spread).train(PROMPTS, callbacks=[Hit()])
    broken = Path(config.output_dir) / "broken"
    state = json.loads((broken / "checkpoints/step-000002/state.json").read_text())
    assert state["components"]["callbacks"] == {"Hit": {"calls": 2}}
    assert [row["step"] for row in lines(broken, "change")] == [1, 2], "those of step 3 are gone with it"
    PPOTrainer(config, reward=spread).train(PROMPTS, callbacks=[Hit()], resume=broken)
    whole = make_config(**STATEFUL, run_name="whole")
    assert_same_run(PPOTrainer(whole, reward=spread).train(PROMPTS, callbacks=[Hit()]).run_dir, broken)


def test_a_signal_in_a_callback_of_an_evaluation_lets_a_resume_repeat_it(make_config: MakeConfig) -> None:
    class Hit(Steering):
        def on_evaluation(self, evaluation: EvaluationDone, run: RunControl) -> None:
            super().on_evaluation(evaluation, run)
            if evaluation.step == 2 and armed:
                armed.clear()
                os.kill(os.getpid(), signal.SIGTERM)

    armed = [True]
    config = make_config(**STATEFUL, run_name="broken")
    with pytest.raises(Stopped, match="after step 2"):
        PPOTrainer(config, reward=spread).train(PROMPTS, callbacks=[Hit()])
    broken = Path(config.output_dir) / "broken"
    assert [row["step"] for row in lines(broken, "eval")] == [0]
    PPOTrainer(config, reward=spread).train(PROMPTS, callbacks=[Hit()], resume=broken)
    whole = make_config(**STATEFUL, run_name="whole")
    assert_same_run(PPOTrainer(whole, reward=spread).train(PROMPTS, callbacks=[Hit()]).run_dir, broken)
    assert lines(broken, "change") == lines(broken.parent / "whole", "change")


class Stopping(Callback):
    """Stops at one moment."""

    def __init__(self, moment: str) -> None:
        self.moment = moment

    def _at(self, moment: str, run: RunControl) -> None:
        if moment == self.moment and (moment == "on_start" or run.step == 2):
            run.stop("KL above\n30")

    def on_start(self, run: RunControl) -> None:
        self._at("on_start", run)

    def on_step(self, step: StepDone, run: RunControl) -> None:
        self._at("on_step", run)

    def on_evaluation(self, evaluation: EvaluationDone, run: RunControl) -> None:
        self._at("on_evaluation", run)

    def on_checkpoint(self, checkpoint: Path, run: RunControl) -> None:
        self._at("on_checkpoint", run)


@pytest.mark.parametrize("moment", ["on_start", "on_step", "on_evaluation", "on_checkpoint"])
def test_a_callback_stops_the_run_which_is_evaluated_saved_and_says_why_everywhere(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str], moment: str
) -> None:
    every = 2 if moment == "on_evaluation" else 4
    config = make_config(num_epochs=3, eval_every=every, eval_fraction=0.3, checkpoint_every=2)
    results = PPOTrainer(config, reward=spread).train(PROMPTS, callbacks=[Stopping(moment)])
    step, why = 0 if moment == "on_start" else 2, "Stopping: KL above 30"
    assert (results.steps, results.stopped, results.why) == (step, "stopped", why)
    assert results.summary().startswith(f"{step} PPO steps, stopped ({why}). Verdict: ")
    assert results.evaluations[-1]["step"] == step, "the verdict is about the policy of its last step"
    assert (results.run_dir / f"checkpoints/step-{step:06d}").is_dir()
    assert f"{step} PPO steps, stopped ({why})" in (results.run_dir / "report" / "summary.md").read_text()
    status = read_status(results.run_dir)
    assert status is not None
    assert (status.state, status.why) == ("stopped", why)
    capsys.readouterr()
    assert ppolm(["runs", str(results.run_dir)]) == 0
    assert f"by {why}" in capsys.readouterr().out
    if moment == "on_step":
        longer = PPOTrainer(config, reward=spread).train(PROMPTS, resume=results.run_dir)
        assert (longer.stopped, longer.steps) == ("finished", 8), "a run that was stopped can be resumed"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"batch_size": 8},
            "batch_size cannot change while a run is under way. These can: kl_coef, learning_rate, value",
        ),
        ({"kl_coef": -1.0}, "kl_coef is -1.0, expected 0 or more"),
        ({"learning_rate": float("nan")}, "learning_rate is nan, expected a finite number"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast', expected a number"),
        ({"value_learning_rate": 1e-3, "learning_rate": -1}, "learning_rate is -1.0, expected 0 or more"),
    ],
)
def test_a_change_that_is_not_allowed_is_refused_in_a_sentence_and_nothing_changes(
    make_config: MakeConfig, values: dict[str, Any], said: str
) -> None:
    refused: list[str] = []

    class Wrong(Callback):
        def on_step(self, step: StepDone, run: RunControl) -> None:
            before = dict(run.settings)
            with pytest.raises(ConfigError) as error:
                run.change(**values)
            refused.append(str(error.value))
            assert run.settings == before

    run = PPOTrainer(make_config(max_steps=2, eval_every=0), reward=spread).train(PROMPTS, callbacks=[Wrong()]).run_dir
    assert all(said in one for one in refused)
    assert len(refused) == 2
    assert lines(run, "change") == []


def test_adaptive_kl_goes_on_from_the_value_of_a_callback_and_is_never_set_to_zero(make_config: MakeConfig) -> None:
    class Lower(Callback):
        def on_step(self, step: StepDone, run: RunControl) -> None:
            with pytest.raises(ConfigError, match="a multiple of 0 is always 0"):
                run.change(kl_coef=0)
            if step.step == 2:
                run.change(kl_coef=0.01)

    config = make_config(adaptive_kl=True, kl_horizon=4, max_steps=4, eval_every=0)
    rows = read_metrics(PPOTrainer(config, reward=spread).train(PROMPTS, callbacks=[Lower()]).run_dir)
    coefs = [row["kl_coef"] for row in rows]
    assert coefs[1] != coefs[0]
    assert coefs[2] == 0.01
    assert 0.008 <= coefs[3] <= 0.012
    assert coefs[3] != 0.01


@pytest.mark.parametrize("moment", ["on_start", "on_checkpoint"])
def test_settings_change_only_where_a_resume_repeats_it(make_config: MakeConfig, moment: str) -> None:
    def change(self: Any, *arguments: Any) -> None:
        arguments[-1].change(kl_coef=1.0)

    late = type("Late", (Callback,), {moment: change})()
    with pytest.raises(
        CallbackError, match=f"Late failed in {moment} .*{moment} cannot change settings: a resume could"
    ):
        PPOTrainer(make_config(max_steps=1, eval_every=0), reward=spread).train(PROMPTS, callbacks=[late])
