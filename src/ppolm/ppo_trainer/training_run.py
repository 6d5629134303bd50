"""A training run from its first step to its report: the loop around ``ppo_step``."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppolm.config.idle import defaults, without_idle
from ppolm.errors import ConfigError, RunFolderError, TrainingDivergedError
from ppolm.evaluation.evaluator import Evaluator
from ppolm.evaluation.verdict import Convergence, judge, judge_run
from ppolm.ppo_trainer.progress import Progress
from ppolm.ppo_trainer.prompt_schedule import plan_prompts
from ppolm.ppo_trainer.results import TrainingResults
from ppolm.ppo_trainer.reward_computer import RewardComputer
from ppolm.ppo_trainer.trainer_state import load_state, save_state, scale_state
from ppolm.rollout.generated_text import sample_rows
from ppolm.runs.refuse_changes import refuse_changes
from ppolm.runs.report import write_report
from ppolm.runs.resume import find_checkpoint
from ppolm.runs.run_folder import RunFolder, read_run_config

if TYPE_CHECKING:
    from ppolm.config import PPOConfig
    from ppolm.ppo_trainer.ppo_trainer import PPOTrainer


log = logging.getLogger(__name__)


def run_path(config: PPOConfig) -> Path:
    """Where a new run goes."""
    name = config.run_name or f"{Path(config.model_name).name}-{datetime.now():%Y%m%d-%H%M%S}"
    return Path(config.output_dir) / name


class TrainingRun:
    """Drives a trainer over its prompts, evaluates, keeps the best policy, checkpoints, and knows when to stop."""

    def __init__(
        self,
        trainer: PPOTrainer,
        prompts: Sequence[Any],
        num_epochs: int | None,
        eval_prompts: Sequence[Any] | None,
        resume: str | Path | None,
    ) -> None:
        self.trainer, self.config = trainer, trainer.config
        if trainer.step and resume is None:
            raise ConfigError(
                f"This trainer has already taken {trainer.step} PPO steps, and a run starts from the reference. "
                "Make a new PPOTrainer, or resume."
            )
        self.schedule = plan_prompts(self.config, trainer.generator, prompts, num_epochs, eval_prompts)
        trainer.total_steps = self.schedule.total_steps
        make_evaluator = trainer.make_evaluator or Evaluator
        self.evaluator = make_evaluator(trainer, self.schedule.held_out) if self.schedule.held_out else None
        for rewards in (trainer.reward_computer, self.evaluator.judge if self.evaluator else None):
            if isinstance(rewards, RewardComputer):
                rewards.expect_prompts([*self.schedule.train, *self.schedule.held_out])
        self.metrics: list[dict[str, Any]] = []
        why = "there are no evaluation prompts" if self.config.eval_every else "eval_every is 0"
        self.convergence = Convergence("not evaluated", (why,))
        if resume is None:
            self.folder = RunFolder.create(run_path(self.config), self.config)
            self.folder.note("capabilities", trainer.models.setup.capabilities.to_dict())
        else:
            self._resume(Path(resume))

    def _resume(self, path: Path) -> None:
        run, checkpoint = find_checkpoint(path)
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
        self.folder = RunFolder.open(run, self.config)
        if self.evaluator and self.evaluator.history:
            self.convergence = judge(self.evaluator.history, self.evaluator.limits)[1]

    def run(self) -> TrainingResults:
        """Train to the end, to convergence, or to collapse."""
        trainer, total = self.trainer, self.schedule.total_steps
        progress = Progress(total, trainer.step)
        try:
            if trainer.step == 0:  # so that there is something to go on from, whatever happens in the first steps
                self.folder.save_checkpoint(0, self._fill_checkpoint)
            else:
                progress.say(f"resuming after step {trainer.step} of {total}")
            if self.evaluator and not self.evaluator.history:
                self._evaluate(progress)
            while trainer.step < total and not self._stops:
                self._step(progress)
        except TrainingDivergedError as error:
            last = f"The last good checkpoint is {self.folder.checkpoints()[-1]}."
            advice = "Start a new run with a lower learning_rate or a higher kl_coef."
            raise TrainingDivergedError(f"{error} {last} {advice}") from error
        finally:
            progress.close()
            self.folder.close()
        if not self.evaluator:
            self._save_best({"step": trainer.step, "chosen_by": "last step: there are no evaluation prompts"})
        results = self._results()
        write_report(results)
        return results

    @property
    def _stops(self) -> bool:
        """Whether the last evaluation ends the run."""
        return self.convergence.should_stop and self.config.stop_on_alarm

    def _step(self, progress: Progress) -> None:
        trainer, config = self.trainer, self.config
        results = trainer.ppo_step(self.schedule.batch(trainer.step))
        step, metrics = trainer.step, results["metrics"]
        metrics["epoch"] = self.schedule.epoch(step - 1)
        if metrics["num_responses"] > 1 and metrics["reward_std"] == 0:
            log.warning("all responses of step %d have the same reward: there is nothing to learn from them", step)
        self.metrics.append(metrics)
        self.folder.log_metrics(metrics)
        samples = sample_rows(results["generated_texts"], results["rewards"])
        self.folder.log_samples(step, samples[: config.samples_per_step])
        if config.table_every and (step == 1 or step % config.table_every == 0):
            self.folder.write_table(step, results["sa_pairs"], kl_coef=metrics["kl_coef"])
        progress.step(metrics)
        last = step == self.schedule.total_steps
        if self.evaluator and (step % config.eval_every == 0 or last):
            self._evaluate(progress)
        if step % config.checkpoint_every == 0 or last or self._stops:
            self.folder.save_checkpoint(step, self._fill_checkpoint)

    def _evaluate(self, progress: Progress) -> None:
        assert self.evaluator is not None
        metrics = self.evaluator.measure()
        performance, self.convergence = self.evaluator.evaluate(metrics)
        self.folder.log_metrics({**metrics, "status": self.convergence.status}, kind="eval")
        self.folder.log_samples(int(metrics["step"]), self.evaluator.samples, kind="eval")
        judged = f"judge {metrics['judge']:.4g}  " if "judge" in metrics else ""
        progress.say(
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
            (folder / "best.json").write_text(json.dumps(about | facts | scale_state(self.trainer), indent=1))

        self.folder.save_best(fill)

    def _fill_checkpoint(self, folder: Path) -> None:
        save_state(
            self.trainer,
            self.evaluator,
            folder,
            prompts=self.schedule.fingerprint,
            total_steps=self.schedule.total_steps,
            config=self.config.to_dict(),
        )

    def _results(self) -> TrainingResults:
        stopped = self.convergence.status if self._stops else "finished"
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
        )
