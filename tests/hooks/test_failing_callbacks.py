# ruff: noqa: ARG002 (a callback has its arguments, whether it reads them or not)
"""Callbacks that fail, or are none: refused before the first step, or the run ends with everything saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppolm import Callback, EvaluationDone, RunControl, RunDone, StepDone, Stopped
from ppolm.config import PPOConfig
from ppolm.errors import CallbackError, ConfigError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ppo_trainer.model_trainer import ModelTrainer
from ppolm.runs.rollback import Snapshot
from ppolm.runs.run_status import read_status
from ppolm.storage.metrics_log import read_metrics
from ppolm.storage.state_files import copied
from tests.conftest import spread
from tests.hooks.steering import Steering, Watching
from tests.runs.compared_runs import STATEFUL, assert_same_run

MakeConfig = Callable[..., PPOConfig]
PROMPTS = [f"Prompt number {i} of some:" for i in range(14)]


class Failing(Callback):
    """Raises, after it has asked for a change that must not be made."""

    def __init__(self, moment: str, error: type[BaseException] = ZeroDivisionError) -> None:
        self.moment, self.error = moment, error

    def on_step(self, step: StepDone, run: RunControl) -> None:
        if self.moment == "on_step" and step.step == 2:
            run.change(kl_coef=9.0)
            raise self.error("of cheese")

    def on_evaluation(self, evaluation: EvaluationDone, run: RunControl) -> None:
        if self.moment == "on_evaluation" and evaluation.step == 2:
            run.change(kl_coef=9.0)
            raise self.error("of cheese")


@pytest.mark.parametrize(
    ("moment", "error"),
    [("on_step", ZeroDivisionError), ("on_evaluation", ZeroDivisionError), ("on_step", SystemExit)],
)
def test_a_callback_that_fails_ends_the_run_saved_and_named_and_a_resume_equals_a_run_without_it(
    make_config: MakeConfig, moment: str, error: type[BaseException]
) -> None:
    config = make_config(**STATEFUL, run_name="broken")
    with pytest.raises(
        CallbackError,
        match=rf"The callback Failing failed in {moment} \(test_failing_callbacks.py, line \d+\): .*of che",
    ):
        PPOTrainer(config, reward=spread).train(PROMPTS, callbacks=[Steering(), Failing(moment, error)])
    broken = Path(config.output_dir) / "broken"
    status = read_status(broken)
    assert status is not None
    assert status.state == "failed"
    assert "The callback Failing failed" in status.why
    assert (broken / "checkpoints/step-000002/manifest.json").is_file(), "step 2 is saved, though no checkpoint was due"
    assert (broken / "report/summary.md").is_file()
    PPOTrainer(config, reward=spread).train(PROMPTS, callbacks=[Steering(), Failing("never")], resume=broken)
    whole = PPOTrainer(make_config(**STATEFUL, run_name="whole"), reward=spread)
    assert_same_run(whole.train(PROMPTS, callbacks=[Steering(), Failing("never")]).run_dir, broken)


def test_a_callback_that_fails_at_the_end_is_a_warning_since_all_is_saved(
    make_config: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    class Late:
        def on_end(self, end: RunDone, run: RunControl) -> None:
            run.stop("too late")

    results = PPOTrainer(make_config(max_steps=1, eval_every=0), reward=spread).train(PROMPTS, callbacks=[Late()])
    assert results.stopped == "finished"
    assert "The callback Late failed in on_end" in caplog.text
    assert "The run has ended, so there is nothing to stop" in caplog.text


def test_on_end_is_called_when_the_reward_fails_and_when_a_signal_stops_the_run(make_config: MakeConfig) -> None:
    def bad(prompts: list[str], responses: list[str]) -> list[float]:
        raise ValueError("out of cheese")

    watching = Watching()
    with pytest.raises(Exception, match="out of cheese"):
        PPOTrainer(make_config(max_steps=1, eval_every=0), reward=bad).train(PROMPTS, callbacks=[watching])
    assert watching.seen[-1][:2] == ("end", "failed")
    assert "out of cheese" in watching.seen[-1][2]
    stopped = make_config(max_steps=3, eval_every=0, run_name="stopped")
    with pytest.raises(Stopped, match="after step 2 of 3"):
        PPOTrainer(stopped, reward=spread).train(PROMPTS, callbacks=[Steering(interrupt_after=2), watching])
    assert watching.seen[-1] == ("end", "interrupted", "", True)


def no_arguments(self: Any) -> None: ...


async def later(self: Any, step: Any, run: Any) -> None: ...


def fine(self: Any, step: Any, run: Any) -> None: ...


@pytest.mark.parametrize(
    ("callbacks", "said"),
    [
        ([type("Typo", (Callback,), {"on_stepp": fine})()], "'on_stepp', which nothing calls. Did you mean on_st"),
        ([type("Few", (), {"on_step": no_arguments})()], r"Few.on_step\(\) .*other arguments, expected on_step"),
        ([type("Later", (), {"on_step": later})()], "Later.on_step is async"),
        ([type("Late", (), {"on_step": 3})()], "Late.on_step is 3, expected on_step"),
        ([type("Empty", (), {})()], "no callback: it has none of the methods on_start"),
        ([Watching], r"Watching is a class. Pass an object of it: Watching\(\)"),
        (Watching(), "expected a list of callbacks"),
        ([fine], "no callback"),
        ([type("Half", (), {"on_step": fine, "load_state_dict": fine})()], "load_state_dict but no state_dict"),
    ],
)  # fmt: skip
def test_a_callback_with_wrong_methods_is_refused_before_anything_is_begun(
    make_config: MakeConfig, callbacks: Any, said: str
) -> None:
    config = make_config(max_steps=1)
    with pytest.raises(ConfigError, match=said):
        PPOTrainer(config, reward=spread).train(PROMPTS, callbacks=callbacks)
    assert not (Path(config.output_dir) / "run").exists()


def test_a_state_that_cannot_be_saved_is_refused_before_the_first_step(make_config: MakeConfig) -> None:
    class Open(Callback):
        def state_dict(self) -> dict[str, Any]:
            return {"file": object()}

        def on_step(self, step: StepDone, run: RunControl) -> None: ...

    config = make_config(max_steps=1)
    with pytest.raises(CallbackError, match=r"The callback Open failed in state_dict .*contains a object"):
        PPOTrainer(config, reward=spread).train(PROMPTS, callbacks=[Open()])
    assert not (Path(config.output_dir) / "run" / "checkpoints").exists()


def test_a_resume_without_a_callback_says_so_and_keeps_what_it_changed(
    make_config: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(max_steps=2, eval_every=0)
    run = PPOTrainer(config, reward=spread).train(PROMPTS, callbacks=[Steering()]).run_dir
    PPOTrainer(make_config(max_steps=3, eval_every=0), reward=spread).train(PROMPTS, resume=run)
    assert "the run had the callback Steering, which is not given now" in caplog.text
    assert read_metrics(run)[-1]["kl_coef"] == 0.3


def test_a_component_of_ones_own_that_has_settings_offers_them_and_one_that_has_none_does_not(
    make_config: MakeConfig,
) -> None:
    class Plain:
        """A KL coefficient without anything to change."""

        coef = reward_coef = 0.1
        loss_coef = 0.0

        def observe(self, kl: float, num_sequences: int) -> None: ...

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: Any) -> None: ...

    seen: list[Any] = []

    class Look(Callback):
        def on_step(self, step: StepDone, run: RunControl) -> None:
            seen.append(set(run.settings))

    trainer = PPOTrainer(make_config(max_steps=1, eval_every=0), reward=spread, kl=Plain())
    assert isinstance(trainer.model_trainer, ModelTrainer)
    trainer.train(PROMPTS, callbacks=[Look()])
    assert seen == [{"learning_rate", "value_learning_rate"}]


def test_changed_learning_rates_are_part_of_a_step_that_is_undone(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(), reward=spread)
    before, kept = Snapshot(trainer), copied(trainer.model_trainer.state_dict())
    trainer.model_trainer.adjust("learning_rate", 0.5)
    trainer.kl.adjust("kl_coef", 7.0)
    assert trainer.model_trainer.state_dict()["policy"]["peak"] == 0.5
    before.restore(trainer)
    assert trainer.kl.coef == 0.1
    assert trainer.model_trainer.state_dict()["policy"]["peak"] == kept["policy"]["peak"] == 1e-3
