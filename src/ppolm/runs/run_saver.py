"""What a run saves so that nothing is lost: checkpoints, and the best policy so far."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppolm.components import Trainer
from ppolm.evaluation.evaluator import Evaluator
from ppolm.runs.abandoned_steps import keep_best
from ppolm.runs.ppo_checkpoint import save_state, scale_state
from ppolm.runs.prompt_schedule import PromptSchedule
from ppolm.runs.run_folder import RunFolder
from ppolm.state import Stateful


class RunSaver:
    """Writes the state of a run into its folder, and knows what is already there."""

    def __init__(
        self,
        trainer: Trainer,
        evaluator: Evaluator | None,
        callbacks: Stateful,
        schedule: PromptSchedule,
        folder: RunFolder,
    ) -> None:
        self.trainer, self.evaluator, self.schedule, self.folder = trainer, evaluator, schedule, folder
        self.others: dict[str, Stateful] = {"callbacks": callbacks, **({"evaluator": evaluator} if evaluator else {})}
        """What has a state besides the trainer's components."""
        self.saved: tuple[int, int] | None = None
        """Step and number of evaluations of the last checkpoint; None before the first one."""

    @property
    def progress(self) -> tuple[int, int]:
        """Step and number of evaluations."""
        return self.trainer.step, len(self.evaluator.history) if self.evaluator else 0

    @property
    def is_behind(self) -> bool:
        """Whether something has been done since the last checkpoint."""
        return self.saved != self.progress

    def save_best(self, about: Mapping[str, Any]) -> None:
        """Make the policy of this moment the best one."""

        def fill(folder: Path) -> None:
            self.trainer.models.policy.save(folder)
            self.trainer.models.value.save(folder / "value")
            facts = {"chat": not any(isinstance(prompt.content, str) for prompt in self.schedule.train)}
            (folder / "best.json").write_text(json.dumps({**about, **facts, **scale_state(self.trainer)}, indent=1))

        self.folder.save_best(fill)

    def save_checkpoint(self) -> Path:
        """Save everything that a resume needs; returns where."""
        path = self.folder.save_checkpoint(self.trainer.step, self._fill_checkpoint)
        self.saved = self.progress
        return path

    def _fill_checkpoint(self, folder: Path) -> None:
        keep_best(self.folder.path, folder)
        save_state(
            self.trainer,
            self.others,
            folder,
            prompts=self.schedule.fingerprint,
            total_steps=self.schedule.total_steps,
            config=self.folder.stored_config.to_dict(),
        )
