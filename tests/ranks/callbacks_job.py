"""A job for tests: runs with callbacks in several processes, and what each process has of them at their end.

python -m tests.ranks.callbacks_job FILE FOLDER
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from ppolm import Callback, PPOConfig, PPOTrainer, RunControl, StepDone, load_prompts
from ppolm.errors import CallbackError
from ppolm.ranks import join_ranks


class Steering(Callback):
    """Changes settings, stops after step 3, and notes the process that it runs in."""

    def __init__(self, fails: bool) -> None:
        self.fails, self.called_in = fails, list[int]()

    def on_step(self, step: StepDone, run: RunControl) -> None:
        """Change, fail or stop."""
        self.called_in.append(os.getpid())
        if step.step == 1:
            run.change(kl_coef=0.25, learning_rate=3e-4)
        if step.step == 2 and self.fails:
            raise ZeroDivisionError("of cheese")
        if step.step == 3:
            run.stop("enough")


def run(folder: str, name: str, fails: bool) -> dict[str, Any]:
    """A run of at most five steps: how it ended here."""
    small: dict[str, Any] = {
        "batch_size": 4,
        "minibatch_size": 4,
        "max_new_tokens": 6,
        "threads": 1,
        "eval_every": 0,
        "max_steps": 5,
    }
    config = PPOConfig(model_name="embedded", device="cpu", output_dir=folder, run_name=name, log_to=(), **small)
    trainer, callback = PPOTrainer(config), Steering(fails)
    try:
        said = trainer.train(load_prompts("embedded")[:40], callbacks=[callback]).why
    except CallbackError as error:
        said = str(error)
    rates = trainer.model_trainer.adjustable()
    return {"said": said, "step": trainer.step, "kl": trainer.kl.coef, **rates, "calls": len(callback.called_in)}


def main(target: str, folder: str) -> None:
    """Both runs, and what every process has."""
    torch.set_num_threads(1)
    every = join_ranks().gather({name: run(folder, name, name == "fails") for name in ("stops", "fails")})
    if join_ranks().first:
        torch.save(every, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
