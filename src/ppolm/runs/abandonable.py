"""A step or evaluation in progress may be interrupted anywhere: then it is undone, as if it had never begun."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from ppolm.components import Trainer
from ppolm.errors import EngineError
from ppolm.evaluation.evaluator import Evaluator
from ppolm.evaluation.measurement import Measurement
from ppolm.evaluation.verdict import Convergence, Performance
from ppolm.hooks.callback import EvaluationDone, StepDone
from ppolm.hooks.callbacks import Callbacks, Decisions
from ppolm.runs.prompt_schedule import PromptSchedule
from ppolm.runs.rollback import Snapshot
from ppolm.storage.state_files import copied
from ppolm.storage.stop_signals import AT_ONCE, Stopped, Stopping


class AbandonableWork:
    """Takes steps and measures, and restores what an interruption has left half done."""

    def __init__(self, trainer: Trainer, schedule: PromptSchedule, stopping: Stopping, callbacks: Callbacks) -> None:
        self.trainer, self.schedule, self.stopping, self.callbacks = trainer, schedule, stopping, callbacks

    def step(self) -> tuple[dict[str, Any], Decisions]:
        """A PPO step, and what callbacks make of it.

        It can be abandoned at any point, also in a callback; trainer and callbacks are then restored to their state
        before it.
        """
        trainer = self.trainer
        before = Snapshot(trainer, self.callbacks)
        try:
            with self.stopping.interruptible(AT_ONCE):
                self._announce_next()
                results = trainer.ppo_step(self.schedule.batch(trainer.step))
                results["metrics"]["epoch"] = self.schedule.epoch(trainer.step - 1)
                return results, self._told("on_step", lambda: step_done(results))
        except EngineError:  # the servers are gone, the step can be taken again when they are back
            before.restore(trainer)
            raise
        except Stopped:
            self.stopping.shield()
            before.restore(trainer)
            raise
        except BaseException:
            self.stopping.shield()
            if self.stopping.interrupted(AT_ONCE):
                before.restore(trainer)
                self.stopping.check(AT_ONCE)
            raise

    def evaluation(self, evaluator: Evaluator) -> tuple[Measurement, tuple[Performance, Convergence], Decisions]:
        """An evaluation, what it found, and what callbacks make of it. Interrupted in a callback, it was never made."""
        measured = self._measure(evaluator)
        before = copied(evaluator.state_dict()), copied(self.callbacks.state_dict())
        performance, found = evaluator.evaluate(measured)
        try:
            with self.stopping.interruptible(AT_ONCE):
                decisions = self._told("on_evaluation", lambda: evaluation_done(measured, found))
        except Stopped:
            self.stopping.shield()
            evaluator.load_state_dict(before[0])
            self.callbacks.load_state_dict(before[1])
            raise
        return measured, (performance, found), decisions

    def told(self, method: str, *facts: Any) -> Decisions:
        """Tell callbacks of something that cannot be undone."""
        if not self.callbacks.wants(method):
            return Decisions()
        with self.stopping.interruptible(AT_ONCE):
            return self._told(method, lambda: facts[0]) if facts else self._told(method)

    def _told(self, method: str, make: Callable[[], Any] | None = None) -> Decisions:
        """What callbacks make of facts; a failure that an interruption has caused is one."""
        if not self.callbacks.wants(method):
            return Decisions()
        decisions = self.callbacks.tell(method, *(() if make is None else (make(),)))
        if decisions.failure is not None:
            self.stopping.check(AT_ONCE)
        return decisions

    def _measure(self, evaluator: Evaluator) -> Measurement:
        """Measure. The first signal interrupts it, since it changes no state and a resume repeats it."""
        try:
            with self.stopping.interruptible(1):
                return evaluator.measure()
        except BaseException:
            self.stopping.shield()
            if self.stopping.interrupted(1):
                self.stopping.check(1)
            raise

    def _announce_next(self) -> None:
        """Tell a generator that samples ahead which prompts the step after this one will have."""
        expect, after = getattr(self.trainer.generator, "expect", None), self.trainer.step + 1
        if expect is not None:
            expect(self.schedule.batch(after) if after < self.schedule.total_steps else None)

    def wait_for_rollout(self) -> None:
        """Wait for responses that are sampled ahead, which a checkpoint contains. A stop at once does without them."""
        wait = getattr(self.trainer.generator, "wait", None)
        if wait is not None:
            with self.stopping.interruptible(AT_ONCE):
                wait()

    def give_up_rollout(self) -> None:
        """Let the next run sample responses afresh that are not there yet."""
        give_up = getattr(self.trainer.generator, "give_up", None)
        if give_up is not None:
            give_up()


def step_done(results: Mapping[str, Any]) -> StepDone:
    """What callbacks are told of a step."""
    metrics = MappingProxyType(dict(results["metrics"]))
    return StepDone(metrics["step"], metrics, results["sa_pairs"], results["generated_texts"], results["rewards"])


def evaluation_done(measured: Measurement, found: Convergence) -> EvaluationDone:
    """What callbacks are told of an evaluation."""
    metrics = MappingProxyType(evaluation_row(measured, found))
    return EvaluationDone(int(metrics["step"]), metrics, tuple(measured.samples), found.status, found.reasons)


def evaluation_row(measured: Measurement, found: Convergence) -> dict[str, Any]:
    """The line of an evaluation in metrics.jsonl."""
    return {**measured.metrics, **asdict(found)}
