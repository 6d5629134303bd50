"""The training loop shared by SFT and reward models: shuffled batches, validation, and keeping the best weights."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from tqdm import tqdm

from ppolm.batches.packing import Answers
from ppolm.batches.packing_cost import topics
from ppolm.batches.sequences import Microbatch
from ppolm.config import SupervisedConfig
from ppolm.errors import TrainingDivergedError
from ppolm.models.base_model import BaseModel
from ppolm.storage.atomic import explained, recover_folder, write_into
from ppolm.storage.output_folder import DONE
from ppolm.storage.prompt_record import write_trained_on
from ppolm.storage.starting_point import ancestors_of
from ppolm.storage.stop_signals import AT_ONCE, Stopped, stopping_of
from ppolm.supervised.agreement import agree_on_training, agree_on_update
from ppolm.supervised.checkpoint import (
    load_checkpoint,
    load_precision,
    random_states,
    save_checkpoint,
    set_random_states,
)
from ppolm.supervised.validation_split import batch_groups, split_rows
from ppolm.training.schedule import learning_rate_factor
from ppolm.training.updater import Updater

log = logging.getLogger(__name__)
READ_AT_ONCE = 1024
"""Rows per chunk when all rows are precomputed; the progress bar advances after each chunk."""

Row = TypeVar("Row")


class SupervisedTrainer(Generic[Row]):
    """Trains one role on rows. Subclasses define the loss of a batch and what to measure."""

    name = "training"

    def __init__(
        self, config: SupervisedConfig, model: BaseModel, rows: Sequence[Row], held_out: Sequence[Row] | None
    ) -> None:
        config = config.anchored()  # stored paths must work from any folder
        self.config, self.model = dataclasses.replace(config, dtype=model.setup.precision["weights"]), model
        self.ancestors = [] if config.start_from is None else ancestors_of(config.start_from)
        """The runs that the weights come from, the nearest first."""
        self.random = torch.Generator().manual_seed(config.seed)
        self.ranks = model.setup.ranks
        """The processes that share the passes; the first one writes."""
        self.rows, self.held_out = split_rows(list(rows), held_out, config, self.prompt_key, self.random)
        longest = max(self.answers_of(row).size for row in (*self.rows, *self.held_out))
        self.packing = config.packing and model.setup.capabilities.masks("packed_prompts", longest)
        """Whether rows are packed into shared sequences: if configured and the model accepts our mask."""
        model.adapters.packs_prompts = self.packing
        self.step = 0
        """Number of updates done."""
        self.history: list[dict[str, float]] = []
        """The results of each validation."""
        self.losses: list[float] = []
        """Training losses since the last validation."""
        self.stopping = stopping_of(self.ranks)
        """Signals received during training."""
        self.saved: tuple[int, int] | None = None
        """Number of updates and validations in the last checkpoint."""
        self.best: dict[str, Tensor] = {}
        """The weights at the lowest validation loss so far."""
        rules = (config.adam_eps, config.weight_decay, config.max_grad_norm, config.max_skipped_updates)
        self.updater = Updater(self.name, model.parameters(), config.learning_rate, *rules, self.ranks)

    def answers_of(self, row: Row) -> Answers:
        """Token ids of a row."""
        raise NotImplementedError

    def prompt_key(self, row: Row) -> bytes:
        """The key of a row's prompt, as it was before cutting."""
        raise NotImplementedError

    def numbers_of(self, row: Row) -> list[float]:
        """Everything that training uses of a row, so that a resume can check that the rows are the same."""
        return self.answers_of(row).numbers()

    def batch(self, rows: list[Row]) -> tuple[Iterable[Any], Callable[[Any], Tensor]]:
        """Microbatches of some rows, and a function for the loss of one: its share of the mean over the rows."""
        raise NotImplementedError

    def microbatches(self, rows: Sequence[Row]) -> Iterable[Microbatch]:
        """Forward passes over some rows."""
        raise NotImplementedError

    @torch.no_grad()
    def _read_all(self) -> None:
        """Compute the hidden states below the trainable layers once for all rows, if they fit into memory.

        Always before the first update, also on resume, and in the same order: states computed in a different microbatch
        may differ in their last bit.
        """
        adapters, rows = self.model.adapters, [*self.rows, *self.held_out]
        if adapters.trunk is None:
            return
        chunks = [rows[start : start + READ_AT_ONCE] for start in range(0, len(rows), READ_AT_ONCE)]
        found = [topic for chunk in chunks for topic in topics(list(map(self.answers_of, chunk)))]
        tokens = sum(topic.prompt + sum(topic.answers) for topic in found)
        if not self.packing or adapters.trunk.size(tokens) > adapters.trunk.budget:
            if self.packing:
                needed = adapters.trunk.size(tokens) / 2**20
                log.warning("trunk_mib is too small to compute the lower layers only once: about %d needed.", needed)
            adapters.trunk = None
            return
        bar = tqdm(total=len(rows), desc="reading", unit="row", disable=not self._shows)
        with bar, self.model.active():
            for chunk in chunks:
                for batch in self.microbatches(chunk):
                    adapters.trunk.states(batch)
                bar.update(len(chunk))

    def begin(self) -> None:
        """Called before the first validation of a new training."""

    def measure(self) -> dict[str, float]:
        """Metrics on the held-out rows, including ``loss``."""
        raise NotImplementedError

    def train(self, checkpoint: Path | None = None) -> list[dict[str, float]]:
        """Train to the end, or until validation stops improving; leaves the best weights in the model.

        ``checkpoint`` is a folder for checkpoints; if it exists, training resumes from it: bit for bit on the same
        device, and up to rounding and dropout on another. Ctrl-C or SIGTERM ends training with ``Stopped``, a
        KeyboardInterrupt, after all finished updates have been saved there.
        """
        config, self.stopping = self.config, stopping_of(self.ranks)
        if checkpoint is not None:
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
        agree_on_training(self)
        with self.stopping, torch.random.fork_rng():
            torch.manual_seed(config.seed)  # dropout
            with self.stopping.interruptible(1):
                if checkpoint is not None:
                    self.ranks.do_once(lambda: recover_folder(checkpoint))
                    load_precision(self, checkpoint)
                self._read_all()
                if checkpoint is not None and checkpoint.exists():
                    load_checkpoint(self, checkpoint)
                else:
                    self.begin()
            self._train_on(checkpoint)
        self._restore(self.best)
        if self.best_step == 0 and self.step > 0:
            log.warning(
                "No validation was better than the one before training, so the weights are the untrained ones. "
                "Give more or cleaner data, or change learning_rate."
            )
        return self.history

    @property
    def best_step(self) -> int:
        """The update with the lowest validation loss, whose weights are kept."""
        return int(min(self.history, key=lambda row: row["loss"])["step"])

    def _train_on(self, checkpoint: Path | None) -> None:
        self.saved = self._progress  # nothing new since the start or the loaded checkpoint
        try:
            self._loop(checkpoint)
        except Stopped as stop:
            self.stopping.shield()
            if self.step:
                self._save_checkpoint(checkpoint)
            raise Stopped(stop.number, None, f"after update {self.step} of {self.total_steps}") from None
        self._save_checkpoint(checkpoint)  # what follows the training may be stopped too

    def _save_checkpoint(self, checkpoint: Path | None) -> None:
        if checkpoint is not None and self.saved != self._progress:
            self.ranks.do_once(lambda: save_checkpoint(self, checkpoint))
            self.saved = self._progress

    def _loop(self, checkpoint: Path | None) -> None:
        config, total = self.config, self.total_steps
        bar = tqdm(total=total, initial=self.step, desc=self.name, unit="update", disable=not self._shows)
        with bar, self.model.active(trainable=True):  # once for all updates
            if self._validation_is_due:  # the first one, or one that was skipped by a stop
                self._validate()
            for rows in self._batches():
                if self._waited() >= (config.patience or math.inf):
                    break
                self.stopping.check(1)
                self.losses.append(self._update(rows))
                bar.update()
                bar.set_postfix(loss=f"{self.losses[-1]:.4g}", refresh=False)
                if self._validation_is_due:
                    self._validate()
                    if self.ranks.first:
                        bar.write(self._line(total), file=sys.stderr)
                if self.step % config.checkpoint_every == 0:
                    self._save_checkpoint(checkpoint)

    @property
    def _progress(self) -> tuple[int, int]:
        return self.step, len(self.history)

    @property
    def _shows(self) -> bool:
        """Whether progress bars are drawn."""
        return self.ranks.first and sys.stderr.isatty()

    @property
    def _validation_is_due(self) -> bool:
        every = self.config.eval_every
        due = self.step == self.total_steps or (every and self.step % every == 0)
        return not self.history or bool(due and self.history[-1]["step"] != self.step)

    @property
    def total_steps(self) -> int:
        """Updates of the whole training."""
        return self.config.num_epochs * -(-len(self.rows) // self.config.batch_size)

    def _batches(self) -> Iterator[list[Row]]:
        """The remaining batches; their order depends only on the seed."""
        number = 0
        groups = batch_groups(self.rows, self.answers_of, self.config.shuffle)
        for _ in range(self.config.num_epochs):
            order = [i for group in torch.randperm(len(groups), generator=self.random).tolist() for i in groups[group]]
            for start in range(0, len(order), self.config.batch_size):
                number += 1
                if number > self.step:
                    yield [self.rows[i] for i in order[start : start + self.config.batch_size]]

    def _update(self, rows: list[Row]) -> float:
        config = self.config
        factor = learning_rate_factor(self.step, self.total_steps, config.lr_schedule, config.warmup_steps)
        self.updater.set_learning_rate(factor)
        device, before = self.model.setup.device, random_states(self.model.setup.device)
        batches, loss = self.batch(rows)
        self.model.setup.causal_lm.train()  # for dropout
        try:
            with self.model.active(trainable=True):
                self.updater.update(self._polled(batches), loss)
        except Stopped:  # the weights have not changed yet, only the generators
            set_random_states(before, device)
            raise
        finally:
            self.model.setup.causal_lm.eval()
        self.step += 1
        agree_on_update(self, rows)
        return sum(self.updater.losses)

    def _polled(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The microbatches of an update, which can be abandoned between any two of them."""
        for batch in batches:
            if not self.ranks.shares:  # several processes have different numbers of microbatches
                self.stopping.check(AT_ONCE)
            yield batch

    def _validate(self) -> None:
        """Measure, and keep the weights if they are the best so far. If stopped, a resume repeats the validation."""
        with self.model.active(trainable=False), self.stopping.interruptible(1):
            measured = self.measure()
        if not math.isfinite(measured["loss"]):
            raise TrainingDivergedError(
                f"The validation loss is {measured['loss']} at update {self.step}. Lower learning_rate, or look for "
                "extreme margins and confidences in the data."
            )
        mean = {"training_loss": statistics.fmean(self.losses)} if self.losses else {}
        self.history.append({"step": self.step, **mean, **measured})
        self.losses = []
        if self._waited() == 0:
            self.best = {name: value.detach().cpu().clone() for name, value in self.model.parameters().items()}

    def _line(self, total: int) -> str:
        """The last validation as a line of text."""
        numbers = [f"{name} {value:.4g}" for name, value in self.history[-1].items() if name != "step"]
        return f"{self.name}: update {self.step}/{total}  " + "  ".join(numbers).replace(
            "training_loss", "training loss"
        )

    def _waited(self) -> int:
        """Validations since the lowest loss."""
        losses = [row["loss"] for row in self.history]
        return len(losses) - 1 - losses.index(min(losses))

    def _restore(self, best: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, value in self.model.parameters().items():
                value.copy_(best[name])

    def about(self) -> dict[str, Any]:
        """How the model was trained, for ``training.json``."""
        ancestors = [dataclasses.asdict(one) for one in self.ancestors]
        return {
            "config": self.config.to_dict(),
            **({"ancestors": ancestors} if ancestors else {}),
            "capabilities": self.model.setup.capabilities.to_dict(),
            "training_rows": len(self.rows),
            "validation_rows": len(self.held_out),
            "training_prompts": len(set(map(self.prompt_key, self.rows))),
            "validation_prompts": len(set(map(self.prompt_key, self.held_out))),
            "best_step": self.best_step,
            "validation": self.history,
        }

    def save(self, folder: str | Path, add: Callable[[Path], None] = lambda _: None) -> None:
        """Write the trained model; ``training.json``, which describes the training, comes last and marks completion.

        ``add`` may write more files. Other files of the folder are left alone.
        """

        def fill(target: Path) -> None:
            self.model.save(target)
            write_trained_on(target, map(self.prompt_key, self.rows))
            (target / DONE).write_text(json.dumps(self.about(), indent=1))
            add(target)

        def write() -> None:
            with explained(Path(folder), f"resume: --resume {folder}"):
                Path(folder).mkdir(parents=True, exist_ok=True)
                write_into(Path(folder), fill, DONE)

        self.ranks.do_once(write)
