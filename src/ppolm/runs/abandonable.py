"""A step or evaluation in progress may be interrupted anywhere: then it is undone, as if it had never begun."""

from __future__ import annotations

from typing import Any

from ppolm.components import Trainer
from ppolm.errors import EngineError
from ppolm.evaluation.evaluator import Evaluator
from ppolm.evaluation.measurement import Measurement
from ppolm.runs.prompt_schedule import PromptSchedule
from ppolm.runs.rollback import Snapshot
from ppolm.storage.stop_signals import AT_ONCE, Stopped, Stopping


class AbandonableWork:
    """Takes steps and measures, and restores what an interruption has left half done."""

    def __init__(self, trainer: Trainer, schedule: PromptSchedule, stopping: Stopping) -> None:
        self.trainer, self.schedule, self.stopping = trainer, schedule, stopping

    def step(self) -> dict[str, Any]:
        """A PPO step that can be abandoned at any point; the trainer is then restored to its state before it."""
        trainer = self.trainer
        before = Snapshot(trainer)
        try:
            with self.stopping.interruptible(AT_ONCE):
                self._announce_next()
                return trainer.ppo_step(self.schedule.batch(trainer.step))
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

    def measure(self, evaluator: Evaluator) -> Measurement:
        """An evaluation. The first signal interrupts it, since it changes no state and a resume repeats it."""
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
