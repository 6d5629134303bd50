"""The loop that SFT and reward-model training share: shuffled batches, validation, and the best weights kept."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from tqdm import tqdm

from ppolm.config import SupervisedConfig
from ppolm.errors import DataError
from ppolm.models.base_model import BaseModel
from ppolm.runs.atomic import write_folder
from ppolm.training.schedule import learning_rate_factor
from ppolm.training.updater import Updater

log = logging.getLogger(__name__)
Row = TypeVar("Row")


class SupervisedTrainer(Generic[Row]):
    """Trains one role on rows. Subclasses say what the loss of a batch is and what to measure."""

    name = "training"

    def __init__(
        self, config: SupervisedConfig, model: BaseModel, rows: Sequence[Row], held_out: Sequence[Row] | None
    ) -> None:
        self.config, self.model = config, model
        self.random = torch.Generator().manual_seed(config.seed)
        self.rows, self.held_out = split_rows(list(rows), held_out, config, self.random)
        self.history: list[dict[str, float]] = []
        """The numbers of each validation."""
        rules = (config.adam_eps, config.weight_decay, config.max_grad_norm, config.max_skipped_updates)
        self.updater = Updater(self.name, model.parameters(), config.learning_rate, *rules)

    def batch(self, rows: list[Row]) -> tuple[Iterable[Any], Callable[[Any], Tensor]]:
        """Microbatches of some rows, and the loss of one of them as its share of the mean over the rows."""
        raise NotImplementedError

    def measure(self) -> dict[str, float]:
        """Numbers on the held-out rows, ``loss`` among them."""
        raise NotImplementedError

    def train(self) -> list[dict[str, float]]:
        """Train to the end, or until validation stops improving; leaves the best weights in the model."""
        config, total = self.config, self.total_steps
        best = self._validate(0)
        with (
            torch.random.fork_rng(),
            tqdm(total=total, desc=self.name, unit="update", disable=not sys.stderr.isatty()) as bar,
        ):
            torch.manual_seed(config.seed)  # dropout
            for step, rows in enumerate(self._batches(), 1):
                loss = self._update(step, rows)
                bar.update()
                bar.set_postfix(loss=f"{loss:.4g}", refresh=False)
                if (config.eval_every and step % config.eval_every == 0) or step == total:
                    best = self._validate(step, best)
                    shown = "  ".join(f"{name} {value:.4g}" for name, value in self.history[-1].items())
                    bar.write(f"{self.name}: training loss {loss:.4g}, validation {shown}", file=sys.stderr)
                    if self._waited() >= (config.patience or math.inf):
                        break
        self._restore(best)
        return self.history

    @property
    def total_steps(self) -> int:
        """Updates of the whole training."""
        return self.config.num_epochs * -(-len(self.rows) // self.config.batch_size)

    def _batches(self) -> Iterable[list[Row]]:
        for _ in range(self.config.num_epochs):
            order = torch.randperm(len(self.rows), generator=self.random).tolist()
            for start in range(0, len(order), self.config.batch_size):
                yield [self.rows[i] for i in order[start : start + self.config.batch_size]]

    def _update(self, step: int, rows: list[Row]) -> float:
        config = self.config
        factor = learning_rate_factor(step - 1, self.total_steps, config.lr_schedule, config.warmup_steps)
        self.updater.set_learning_rate(factor)
        self.model.activate(trainable=True)
        self.model.setup.causal_lm.train()  # dropout belongs here
        losses: list[float] = []
        batches, loss = self.batch(rows)

        def counted(batch: Any) -> Tensor:
            part = loss(batch)
            losses.append(float(part.detach()))
            return part

        self.updater.update(batches, counted)
        self.model.setup.causal_lm.eval()
        return sum(losses)

    def _validate(self, step: int, best: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Measure; the weights to keep: these if they are the best so far."""
        self.model.activate()
        self.history.append({"step": step, **self.measure()})
        if best is None or self._waited() == 0:
            return {name: value.detach().cpu().clone() for name, value in self.model.parameters().items()}
        return best

    def _waited(self) -> int:
        """Validations since the lowest loss."""
        losses = [row["loss"] for row in self.history]
        return len(losses) - 1 - losses.index(min(losses))

    def _restore(self, best: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, value in self.model.parameters().items():
                value.copy_(best[name])

    def save(self, folder: str | Path) -> None:
        """Write the trained model, with how it was trained, whole or not at all."""

        def fill(target: Path) -> None:
            self.model.save(target)
            about = {"config": self.config.to_dict(), "validation": self.history}
            (target / "training.json").write_text(json.dumps(about, indent=1))

        write_folder(Path(folder), fill)


def split_rows(
    rows: list[Row], held_out: Sequence[Row] | None, config: SupervisedConfig, random: torch.Generator
) -> tuple[list[Row], list[Row]]:
    """Rows to train on and rows to validate with."""
    if held_out is not None:
        return rows, list(held_out)[: config.max_eval_rows]
    count = min(max(1, int(len(rows) * config.eval_fraction)), config.max_eval_rows)
    if len(rows) <= count:
        raise DataError(f"{len(rows)} rows are too few to train on and to validate with. Give more, or eval_data.")
    order = torch.randperm(len(rows), generator=random).tolist()
    return [rows[i] for i in sorted(order[count:])], [rows[i] for i in sorted(order[:count])]
