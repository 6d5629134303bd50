"""A training run from its first step to its report: the loop around ``ppo_step``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ppolm.components import Trainer
from ppolm.config.compared import compared
from ppolm.errors import CallbackError, ConfigError, EngineError, TrainingDivergedError
from ppolm.evaluation.evaluator import Evaluator
from ppolm.evaluation.verdict import Convergence, judge, judge_run
from ppolm.hooks.callback import RunDone
from ppolm.hooks.callbacks import Callbacks, Decisions
from ppolm.hooks.loggers import Loggers
from ppolm.messages import reason
from ppolm.rollout.generated_text import sample_rows
from ppolm.runs.abandonable import AbandonableWork, evaluation_done, evaluation_row, step_done
from ppolm.runs.progress import Progress
from ppolm.runs.prompt_schedule import plan_prompts
from ppolm.runs.results import TrainingResults
from ppolm.runs.run_folder import RunFolder
from ppolm.runs.run_report import write_report
from ppolm.runs.run_saver import RunSaver
from ppolm.runs.run_start import create_run, resume_run, reward_doubts
from ppolm.runs.run_status import RunStatus, read_status, utc_now
from ppolm.storage.claim import Claim
from ppolm.storage.starting_point import trained_before
from ppolm.storage.stop_signals import Stopped, stopping_of

log = logging.getLogger(__name__)
LEAST_SHARE = 0.5
"""Effective share of the tokens below which responses from elsewhere are not the policy's; also how far the mean of
their importance weights may be from 1."""


def show_waiting(trainer: Trainer, progress: Progress) -> None:
    """Let rewards that wait for people report the wait in the progress line."""
    for computer in (trainer.reward_computer, trainer.judge):
        for reward in getattr(computer, "rewards", {}).values():  # a replaced component may have none
            if hasattr(reward, "on_wait"):
                reward.on_wait = progress.waiting


def warn_of_step(metrics: Mapping[str, Any]) -> None:
    """Say what makes a step teach nothing, or the wrong thing."""
    step = metrics["step"]
    if metrics["num_responses"] > 1 and metrics["reward_std"] == 0:
        log.warning("all responses of step %d have the same reward: there is nothing to learn from them", step)
    share, mean = metrics.get("importance_ess", 1.0), metrics.get("importance_mean", 1.0)
    if share < LEAST_SHARE or abs(mean - 1) > LEAST_SHARE:  # of the policy's own responses both are 1
        said = "step %d: the servers sample from something else than the policy (importance_ess %.2g, mean %.2g)"
        log.warning(said, step, share, mean)


def refuse_trained(trainer: Trainer) -> None:
    """Raise if a new run would not start where its settings say."""
    if trainer.step:
        raise ConfigError(
            f"This trainer has already taken {trainer.step} PPO steps, and a new run begins with the first. Make a new "
            "PPOTrainer (start_from names a run to start from), or resume."
        )


class TrainingRun:
    """Drives a trainer over its prompts, evaluates, keeps the best policy, checkpoints, and knows when to stop."""

    def __init__(
        self,
        trainer: Trainer,
        prompts: Sequence[Any],
        num_epochs: int | None,
        eval_prompts: Sequence[Any] | None,
        resume: str | Path | None,
        claim: Claim,
        callbacks: Sequence[Any] = (),
    ) -> None:
        self.callbacks, self.loggers = Callbacks(callbacks, trainer), Loggers(trainer)
        self.trainer, self.config, self.claim = trainer, trainer.config, claim
        self.ranks = trainer.models.setup.ranks
        """The processes of this run. All of them drive it; the first one writes its folder."""
        self.stopping = stopping_of(self.ranks)
        self.aside: Path | None = None
        """Where a resume moved the files from after its checkpoint."""
        if resume is None:
            refuse_trained(trainer)
        self.doubts = reward_doubts(self.config)
        seen = trained_before(self.config.start_from)
        self.schedule = plan_prompts(self.config, trainer.generator, prompts, num_epochs, eval_prompts, seen)
        trainer.total_steps = self.schedule.total_steps
        self._agree()
        make_evaluator = trainer.make_evaluator or Evaluator
        self.evaluator = make_evaluator(trainer, self.schedule.held_out) if self.schedule.held_out else None
        self._announce_prompts()
        self.metrics: list[dict[str, Any]] = []
        why = "there are no evaluation prompts" if self.config.eval_every else "eval_every is 0"
        self.convergence = Convergence("not evaluated", (why,))
        self.folder = RunFolder(claim, self.config, self.ranks)
        self.saver = RunSaver(trainer, self.evaluator, self.callbacks, self.schedule, self.folder)
        self.work = AbandonableWork(trainer, self.schedule, self.stopping, self.callbacks)
        self.callbacks.begin(self.folder.path, self.schedule.total_steps)
        if resume is None:
            create_run(self.folder, trainer, self.schedule)
        else:
            self._resume(Path(resume))

    def _announce_prompts(self) -> None:
        """Raise before the first step if a prompt lacks a column that a reward asks for."""
        for rewards in (self.trainer.reward_computer, self.trainer.judge if self.evaluator else None):
            if rewards is not None:
                rewards.expect_prompts([*self.schedule.train, *self.schedule.held_out])

    def _agree(self) -> None:
        """Of several processes: raise before the first step if they would not take the same ones."""
        if self.ranks.shares:
            steps = {"prompts": self.schedule.fingerprint, "number of steps": self.schedule.total_steps}
            others = {"callbacks": list(self.callbacks.by_name)}
            self.ranks.agree_on(" before the first step", {**compared(self.config), **steps, **others})

    def _resume(self, path: Path) -> None:
        self.aside = resume_run(self.saver, path)
        if self.evaluator and self.evaluator.history:
            self.convergence = judge(self.evaluator.history, self.evaluator.limits)[1]

    def run(self) -> TrainingResults:
        """Train until the last step, an alarm, convergence, or a signal (raises Stopped once everything is saved)."""
        before = self.ranks.once(lambda: read_status(self.folder.path))
        self.status = RunStatus("running", self.schedule.total_steps, before.started if before else utc_now())
        self.folder.note("status", self.status.to_dict())
        try:
            results = self._run()
        except Exception as error:
            self._note_end("failed", why=reason(error))
            raise
        self._note_end(results.stopped, why=results.why, verdict=results.verdict, reasons=results.reasons)
        return results

    def _note_end(self, state: str, **facts: Any) -> None:
        """Write down how the run ended, and tell callbacks."""
        ended = replace(self.status, state=state, ended=utc_now(), **facts)
        self.folder.note("status", ended.to_dict())
        end = RunDone(self.trainer.step, state, ended.why, ended.verdict, ended.reasons)
        self.callbacks.tell_end(end)
        self.loggers.tell(self.callbacks.control, "on_end", end)

    def _run(self) -> TrainingResults:
        progress = Progress(self.schedule.total_steps, self.trainer.step, silent=not self.ranks.first)
        show_waiting(self.trainer, progress)
        self.trainer.occasion.run = self.folder.path.name
        with self.stopping:
            try:
                self._train(progress)
            except TrainingDivergedError as error:
                last = f"The last good checkpoint is {self.folder.checkpoints()[-1]}."
                advice = "Start a new run with a lower learning_rate or a higher kl_coef."
                raise TrainingDivergedError(f"{error} {last} {advice}") from error
            except EngineError:
                if self.saver.is_behind:
                    self.work.give_up_rollout()
                    self.saver.save_checkpoint()  # nothing that was trained is lost
                raise
            except CallbackError:
                if self.saver.is_behind:
                    self.work.give_up_rollout()
                    self.saver.save_checkpoint()
                results = self._results("failed")
                self.ranks.do_once(lambda: write_report(results))
                raise
            except Stopped as stop:
                self.stopping.shield()
                self.stopping.settle()
                self._end_early(stop.number)
            finally:
                progress.close()
            if not self.evaluator:
                about = {"step": self.trainer.step, "chosen_by": "last step: there are no evaluation prompts"}
                self.saver.save_best(about)
            self.folder.check_result()
            results = self._results()
            self.ranks.do_once(lambda: write_report(results))
        return results

    def _train(self, progress: Progress) -> None:
        trainer, total = self.trainer, self.schedule.total_steps
        if trainer.step == 0 and self.saver.saved is None:
            self._save_checkpoint(progress)  # something to resume from, whatever happens in the first steps
        elif self.saver.saved is not None:
            moved = f"; everything from later steps was moved to {self.aside}" if self.aside else ""
            progress.say(f"resuming after step {trainer.step} of {total}{moved}")
        self.loggers.tell(self.callbacks.control, "on_start")
        self._decide(self.work.told("on_start"), "start", progress)
        if self._evaluation_is_due:  # the first one, or one skipped by an earlier stop
            self._evaluate(progress)
            if trainer.step and self._checkpoint_is_due:
                self._save_checkpoint(progress)
        while trainer.step < total and not self._stops:
            self.stopping.check(1)
            self._step(progress)
            if self._evaluation_is_due:
                self._evaluate(progress)
            if self._checkpoint_is_due:
                self._save_checkpoint(progress)
        if self._evaluation_is_due:  # a callback may have stopped the run after its checkpoint
            self._evaluate(progress)
            self._save_checkpoint(progress)

    def _end_early(self, number: int) -> None:
        """Save the last finished step, write the report, and raise Stopped."""
        step, total = self.trainer.step, self.schedule.total_steps
        if self.saver.is_behind:
            with suppress(Stopped):
                self.work.wait_for_rollout()
            self.stopping.settle()
            self.work.give_up_rollout()
            self.saver.save_checkpoint()
        results = self._results("interrupted")
        with suppress(Stopped), self.stopping.interruptible(self.stopping.count + 1):
            self.ranks.do_once(lambda: write_report(results))
        self._note_end("interrupted", verdict=results.verdict, reasons=results.reasons)
        raise Stopped(number, self.folder.path, f"after step {step} of {total}") from None

    @property
    def _is_last(self) -> bool:
        return self.trainer.step == self.schedule.total_steps or self.callbacks.stopped is not None

    @property
    def _evaluation_is_due(self) -> bool:
        if not self.evaluator or (self.trainer.step % self.config.eval_every and not self._is_last):
            return False
        return not self.evaluator.history or self.evaluator.history[-1].get("step") != self.trainer.step

    @property
    def _checkpoint_is_due(self) -> bool:
        return self.trainer.step % self.config.checkpoint_every == 0 or self._is_last or self._stops

    @property
    def _stops(self) -> bool:
        """Whether the last evaluation or a callback ends the run."""
        return (self.convergence.should_stop and self.config.stop_on_alarm) or self.callbacks.stopped is not None

    def _step(self, progress: Progress) -> None:
        trainer, config = self.trainer, self.config
        self.ranks.do_once(self.claim.check)  # if the folder is gone, the result could not be saved
        reward_coef = trainer.kl.reward_coef  # an adaptive one changes at the end of the step
        results, decisions = self.work.step()
        step, metrics = trainer.step, results["metrics"]
        warn_of_step(metrics)
        self.metrics.append(metrics)
        self.folder.log_metrics(metrics)
        self.loggers.tell(self.callbacks.control, "on_step", step_done(results))
        samples = sample_rows(results["generated_texts"], results["rewards"])
        self.folder.log_samples(step, samples[: config.samples_per_step])
        if config.table_every and (step == 1 or step % config.table_every == 0):
            notes = {"kl_coef": metrics["kl_coef"], "reward_coef": reward_coef}
            self.folder.write_table(step, results["sa_pairs"], **notes)
        progress.step(metrics)
        self._decide(decisions, "step", progress)

    def _decide(self, decisions: Decisions, after: str, progress: Progress) -> None:
        """Apply and record what callbacks want, once what they were told of is recorded."""
        self.callbacks.apply(decisions)
        for change in decisions.changes:
            self.folder.log_change(self.trainer.step, change, after)
            progress.say(f"{change.by}: {change.setting} {change.old:g} -> {change.new:g} from the next step on")
        if decisions.stop:
            progress.say(f"stopping: {decisions.stop}")
        if decisions.interrupted:
            self.stopping.count_interrupt()
        self.callbacks.raise_failure(decisions)

    def _save_checkpoint(self, progress: Progress) -> None:
        self.work.wait_for_rollout()
        path = self.saver.save_checkpoint()
        self._decide(self.work.told("on_checkpoint", path), "checkpoint", progress)

    def _evaluate(self, progress: Progress) -> None:
        assert self.evaluator is not None
        progress.evaluating()
        measured, (performance, self.convergence), decisions = self.work.evaluation(self.evaluator)
        metrics = measured.metrics
        self.folder.log_metrics(evaluation_row(measured, self.convergence), kind="eval")
        facts = evaluation_done(measured, self.convergence)
        self.loggers.tell(self.callbacks.control, "on_evaluation", facts)
        self.folder.log_samples(int(metrics["step"]), measured.samples, kind="eval")
        judged = f"judge {metrics['judge']:.4g}  " if "judge" in metrics else ""
        progress.evaluated(
            f"evaluation at step {metrics['step']}: reward {metrics['avg_reward']:.4g}  {judged}"
            f"kl {metrics['kl']:.3g}  entropy {metrics['entropy']:.3g}  length {metrics['response_length']:.1f}  "
            f"{self.convergence.status}: {'; '.join(self.convergence.reasons)}"
        )
        if performance.performance_improved and not (self.convergence.collapsed or self.convergence.over_optimised):
            self.saver.save_best({**metrics, "chosen_by": "highest reward on the held-out prompts"})
        self._decide(decisions, "evaluation", progress)

    def _results(self, stopped: str = "finished") -> TrainingResults:
        if stopped == "finished" and self._stops:
            stopped = self.convergence.status if self.convergence.should_stop else "stopped"
        performance, verdict = None, self.convergence
        if self.evaluator and self.evaluator.history:
            performance, verdict = judge_run(self.evaluator.history, self.evaluator.limits)
        return TrainingResults(
            run_dir=self.folder.path,
            best_dir=self.folder.path / "best",
            steps=self.trainer.step,
            stopped=stopped,
            why=(self.callbacks.stopped or "") if stopped == "stopped" else "",
            verdict=verdict.status,
            reasons=verdict.reasons,
            performance=performance,
            metrics=self.metrics,
            evaluations=list(self.evaluator.history) if self.evaluator else [],
            doubts=self.doubts,
        )
