"""A training run from its first step to its report: the loop around ``ppo_step``."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ppolm.components import Trainer
from ppolm.config import PPOConfig
from ppolm.config.compared import compared
from ppolm.config.without_effect import defaults, without_idle
from ppolm.embedded import reward_path
from ppolm.errors import ConfigError, EngineError, RunFolderError, TrainingDivergedError
from ppolm.evaluation.evaluator import Evaluator
from ppolm.evaluation.measurement import Measurement
from ppolm.evaluation.verdict import Convergence, judge, judge_run
from ppolm.messages import reason
from ppolm.ranks import Ranks
from ppolm.readiness.stored import doubts_about
from ppolm.rollout.generated_text import sample_rows
from ppolm.runs.abandoned_steps import keep_best, set_aside
from ppolm.runs.ppo_checkpoint import load_state, save_state, scale_state
from ppolm.runs.progress import Progress
from ppolm.runs.prompt_schedule import plan_prompts
from ppolm.runs.results import TrainingResults
from ppolm.runs.resume import find_checkpoint, run_of
from ppolm.runs.rollback import Snapshot
from ppolm.runs.run_folder import IN_USE, RunFolder, read_run_config, tidy_run
from ppolm.runs.run_report import write_report
from ppolm.runs.run_status import RunStatus, read_status, utc_now
from ppolm.storage.claim import Claim, claim_numbered, claim_together
from ppolm.storage.prompt_record import write_held_out, write_trained_on
from ppolm.storage.refuse_changes import refuse_changes
from ppolm.storage.stop_signals import AT_ONCE, Stopped, stopping_of

log = logging.getLogger(__name__)
LEAST_SHARE = 0.5
"""Effective share of the tokens below which responses from elsewhere are not the policy's; also how far the mean of
their importance weights may be from 1."""


def run_path(config: PPOConfig) -> Path:
    """The folder of a new run."""
    name = config.run_name or f"{Path(config.model_name).name}-{datetime.now():%Y%m%d-%H%M%S}"
    return Path(config.output_dir) / name


def reward_doubts(config: PPOConfig) -> tuple[str, ...]:
    """What the reward models' own readiness reports object to."""
    doubts = {name: doubts_about(Path(reward_path(name))) for name in config.reward_model}
    return tuple(
        f"The reward model {name} is not ready by its own readiness report, so its scores may not measure what you "
        f"want: {doubt}."
        for name, doubt in doubts.items()
        if doubt
    )


def claim_run(config: PPOConfig, resume: str | Path | None, ranks: Ranks) -> Claim:
    """The exclusive claim to the folder of a new or resumed run, held until the run ends."""

    def take() -> Claim:
        if resume is not None:
            run = run_of(Path(resume))
            read_run_config(run)  # raises before a folder is created for the lock
            return Claim(run, IN_USE)
        return Claim(run_path(config), IN_USE) if config.run_name else claim_numbered(run_path(config), IN_USE)

    return claim_together(take, ranks)


def show_waiting(trainer: Trainer, progress: Progress) -> None:
    """Let rewards that wait for people report the wait in the progress line."""
    for computer in (trainer.reward_computer, trainer.judge):
        for reward in getattr(computer, "rewards", {}).values():  # a replaced component may have none
            if hasattr(reward, "on_wait"):
                reward.on_wait = progress.waiting


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
    ) -> None:
        self.trainer, self.config, self.claim = trainer, trainer.config, claim
        self.ranks = trainer.models.setup.ranks
        """The processes of this run. All of them drive it; the first one writes its folder."""
        self.stopping = stopping_of(self.ranks)
        self.saved: tuple[int, int] | None = None
        """Step and number of evaluations of the last checkpoint."""
        self.aside: Path | None = None
        """Where a resume moved the files from after its checkpoint."""
        if trainer.step and resume is None:
            raise ConfigError(
                f"This trainer has already taken {trainer.step} PPO steps, and a run starts from the reference. "
                "Make a new PPOTrainer, or resume."
            )
        self.doubts = reward_doubts(self.config)
        for doubt in self.doubts:
            log.warning(doubt)
        self.schedule = plan_prompts(self.config, trainer.generator, prompts, num_epochs, eval_prompts)
        trainer.total_steps = self.schedule.total_steps
        self._agree()
        make_evaluator = trainer.make_evaluator or Evaluator
        self.evaluator = make_evaluator(trainer, self.schedule.held_out) if self.schedule.held_out else None
        for rewards in (trainer.reward_computer, trainer.judge if self.evaluator else None):
            if rewards is not None:
                rewards.expect_prompts([*self.schedule.train, *self.schedule.held_out])
        self.metrics: list[dict[str, Any]] = []
        why = "there are no evaluation prompts" if self.config.eval_every else "eval_every is 0"
        self.convergence = Convergence("not evaluated", (why,))
        if resume is None:
            self._create()
        else:
            self._resume(Path(resume))

    def _agree(self) -> None:
        """Of several processes: raise before the first step if they would not take the same ones."""
        if self.ranks.shares:
            prompts = {"prompts": self.schedule.fingerprint, "number of steps": self.schedule.total_steps}
            self.ranks.agree_on(" before the first step", {**compared(self.config), **prompts})

    def _create(self) -> None:
        def write(folder: RunFolder) -> None:
            folder.create()
            folder.note("capabilities", self.trainer.models.setup.capabilities.to_dict())
            write_held_out(folder.path, self.schedule.held_out)
            write_trained_on(folder.path, (prompt.key for prompt in self.schedule.train))

        self.folder = RunFolder(self.claim, self.config, self.ranks)
        self.ranks.do_once(lambda: write(self.folder))

    def _resume(self, path: Path) -> None:
        self.ranks.do_once(lambda: tidy_run(self.claim))
        run, checkpoint = self.ranks.once(lambda: find_checkpoint(path))
        refuse_changes(read_run_config(run).to_dict(), self.config, run)
        progress = load_state(self.trainer, self.evaluator, checkpoint)
        refuse_changes(without_idle(progress["config"], defaults(self.config)), self.config, checkpoint)
        if progress["prompts"] != self.schedule.fingerprint:
            raise RunFolderError(f"Run {run} was started with other prompts. Resume it with the same ones.")
        if self.config.lr_schedule != "constant" and progress["total_steps"] != self.schedule.total_steps:
            raise RunFolderError(
                f"Run {run} was started for {progress['total_steps']} steps, and its {self.config.lr_schedule} "
                f"schedule depends on that; it cannot become {self.schedule.total_steps}. Start a new run."
            )
        history = self.evaluator.history if self.evaluator else []
        self.folder = RunFolder(self.claim, self.config, self.ranks)
        self.ranks.do_once(self.folder.reopen)
        self.folder.last_step = self.trainer.step
        seen = {int(row["step"]) for row in history}
        self.aside = self.ranks.once(lambda: set_aside(run, checkpoint, self.trainer.step, seen))
        self.saved = (self.trainer.step, len(history))
        if self.evaluator and history:
            self.convergence = judge(history, self.evaluator.limits)[1]

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
        self._note_end(results.stopped, verdict=results.verdict, reasons=results.reasons)
        return results

    def _note_end(self, state: str, **facts: Any) -> None:
        ended = replace(self.status, state=state, ended=utc_now(), **facts)
        self.folder.note("status", ended.to_dict())

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
                if self.saved != self._progress:
                    self._give_up_rollout()
                    self._save_checkpoint()  # nothing that was trained is lost
                raise
            except Stopped as stop:
                self.stopping.shield()
                self.stopping.settle()
                self._end_early(stop.number)
            finally:
                progress.close()
                self.folder.close()
            if not self.evaluator:
                about = {"step": self.trainer.step, "chosen_by": "last step: there are no evaluation prompts"}
                self._save_best(about)
            self.folder.check_result()
            results = self._results()
            self.ranks.do_once(lambda: write_report(results))
        return results

    def _train(self, progress: Progress) -> None:
        trainer, total = self.trainer, self.schedule.total_steps
        if trainer.step == 0 and self.saved is None:
            self._save_checkpoint()  # so that there is something to resume from, whatever happens in the first steps
        elif self.saved is not None:
            moved = f"; everything from later steps was moved to {self.aside}" if self.aside else ""
            progress.say(f"resuming after step {trainer.step} of {total}{moved}")
        if self._evaluation_is_due:  # the first one, or one skipped by an earlier stop
            self._evaluate(progress)
            if trainer.step and self._checkpoint_is_due:
                self._wait_for_rollout()
                self._save_checkpoint()
        while trainer.step < total and not self._stops:
            self.stopping.check(1)
            self._step(progress)
            if self._evaluation_is_due:
                self._evaluate(progress)
            if self._checkpoint_is_due:
                self._wait_for_rollout()
                self._save_checkpoint()

    def _end_early(self, number: int) -> None:
        """Save the last finished step, write the report, and raise Stopped."""
        step, total = self.trainer.step, self.schedule.total_steps
        if self.saved != self._progress:
            with suppress(Stopped):
                self._wait_for_rollout()
            self.stopping.settle()
            self._give_up_rollout()
            self._save_checkpoint()
        results = self._results("interrupted")
        self._note_end("interrupted", verdict=results.verdict, reasons=results.reasons)
        with suppress(Stopped), self.stopping.interruptible(self.stopping.count + 1):
            self.ranks.do_once(lambda: write_report(results))
        raise Stopped(number, self.folder.path, f"after step {step} of {total}") from None

    @property
    def _progress(self) -> tuple[int, int]:
        return self.trainer.step, len(self.evaluator.history) if self.evaluator else 0

    @property
    def _is_last(self) -> bool:
        return self.trainer.step == self.schedule.total_steps

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
        """Whether the last evaluation ends the run."""
        return self.convergence.should_stop and self.config.stop_on_alarm

    def _step(self, progress: Progress) -> None:
        trainer, config = self.trainer, self.config
        self.ranks.do_once(self.claim.check)  # if the folder is gone, the result could not be saved
        reward_coef = trainer.kl.reward_coef  # an adaptive one changes at the end of the step
        results = self._undoable_step()
        step, metrics = trainer.step, results["metrics"]
        metrics["epoch"] = self.schedule.epoch(step - 1)
        if metrics["num_responses"] > 1 and metrics["reward_std"] == 0:
            log.warning("all responses of step %d have the same reward: there is nothing to learn from them", step)
        share, mean = metrics.get("importance_ess", 1.0), metrics.get("importance_mean", 1.0)
        if share < LEAST_SHARE or abs(mean - 1) > LEAST_SHARE:  # of the policy's own responses both are 1
            said = "step %d: the servers sample from something else than the policy (importance_ess %.2g, mean %.2g)"
            log.warning(said, step, share, mean)
        self.metrics.append(metrics)
        self.folder.log_metrics(metrics)
        samples = sample_rows(results["generated_texts"], results["rewards"])
        self.folder.log_samples(step, samples[: config.samples_per_step])
        if config.table_every and (step == 1 or step % config.table_every == 0):
            notes = {"kl_coef": metrics["kl_coef"], "reward_coef": reward_coef}
            self.folder.write_table(step, results["sa_pairs"], **notes)
        progress.step(metrics)

    def _undoable_step(self) -> dict[str, Any]:
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

    def _announce_next(self) -> None:
        """Tell a generator that samples ahead which prompts the step after this one will have."""
        expect, after = getattr(self.trainer.generator, "expect", None), self.trainer.step + 1
        if expect is not None:
            expect(self.schedule.batch(after) if after < self.schedule.total_steps else None)

    def _wait_for_rollout(self) -> None:
        """Wait for responses that are sampled ahead, which a checkpoint contains. A stop at once does without them."""
        wait = getattr(self.trainer.generator, "wait", None)
        if wait is not None:
            with self.stopping.interruptible(AT_ONCE):
                wait()

    def _give_up_rollout(self) -> None:
        """Let the next run sample responses afresh that are not there yet."""
        give_up = getattr(self.trainer.generator, "give_up", None)
        if give_up is not None:
            give_up()

    def _measure(self) -> Measurement:
        """An evaluation. The first signal interrupts it, since it changes no state and a resume repeats it."""
        assert self.evaluator is not None
        try:
            with self.stopping.interruptible(1):
                return self.evaluator.measure()
        except BaseException:
            self.stopping.shield()
            if self.stopping.interrupted(1):
                self.stopping.check(1)
            raise

    def _evaluate(self, progress: Progress) -> None:
        assert self.evaluator is not None
        progress.evaluating()
        measured = self._measure()
        metrics = measured.metrics
        performance, self.convergence = self.evaluator.evaluate(measured)
        self.folder.log_metrics({**metrics, **asdict(self.convergence)}, kind="eval")
        self.folder.log_samples(int(metrics["step"]), measured.samples, kind="eval")
        judged = f"judge {metrics['judge']:.4g}  " if "judge" in metrics else ""
        progress.evaluated(
            f"evaluation at step {metrics['step']}: reward {metrics['avg_reward']:.4g}  {judged}"
            f"kl {metrics['kl']:.3g}  entropy {metrics['entropy']:.3g}  length {metrics['response_length']:.1f}  "
            f"{self.convergence.status}: {'; '.join(self.convergence.reasons)}"
        )
        if performance.performance_improved and not (self.convergence.collapsed or self.convergence.over_optimised):
            self._save_best({**metrics, "chosen_by": "highest reward on the held-out prompts"})

    def _save_best(self, about: dict[str, Any]) -> None:
        def fill(folder: Path) -> None:
            self.trainer.models.policy.save(folder)
            self.trainer.models.value.save(folder / "value")
            facts = {"chat": not any(isinstance(prompt.content, str) for prompt in self.schedule.train)}
            (folder / "best.json").write_text(json.dumps({**about, **facts, **scale_state(self.trainer)}, indent=1))

        self.folder.save_best(fill)

    def _save_checkpoint(self) -> None:
        self.folder.save_checkpoint(self.trainer.step, self._fill_checkpoint)
        self.saved = self._progress

    def _fill_checkpoint(self, folder: Path) -> None:
        keep_best(self.folder.path, folder)
        save_state(
            self.trainer,
            self.evaluator,
            folder,
            prompts=self.schedule.fingerprint,
            total_steps=self.schedule.total_steps,
            config=self.config.to_dict(),
        )

    def _results(self, stopped: str = "finished") -> TrainingResults:
        stopped = self.convergence.status if self._stops else stopped
        performance, verdict = None, self.convergence
        if self.evaluator and self.evaluator.history:
            performance, verdict = judge_run(self.evaluator.history, self.evaluator.limits)
        return TrainingResults(
            run_dir=self.folder.path,
            best_dir=self.folder.path / "best",
            steps=self.trainer.step,
            stopped=stopped,
            verdict=verdict.status,
            reasons=verdict.reasons,
            performance=performance,
            metrics=self.metrics,
            evaluations=list(self.evaluator.history) if self.evaluator else [],
            doubts=self.doubts,
        )
