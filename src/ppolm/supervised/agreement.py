"""What all processes of a training must have in common: the rows, and what each update leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ppolm.config.compared import compared
from ppolm.ranks.checksums import checksums, digest
from ppolm.supervised.checkpoint import rows_digest

if TYPE_CHECKING:
    from ppolm.supervised.supervised_trainer import SupervisedTrainer


def agree_on_training(trainer: SupervisedTrainer[Any]) -> None:
    """Raise before the first update if the processes would not train on the same rows in the same way."""
    if trainer.ranks.shares:
        facts = {**compared(trainer.config), "rows": rows_digest(trainer), "updates": trainer.total_steps}
        trainer.ranks.agree_on(" before the first update", facts)


def agree_on_update(trainer: SupervisedTrainer[Any], rows: Sequence[Any]) -> None:
    """Raise in the update in which the processes have drifted apart.

    The random numbers of dropout are not compared: each process draws its own.
    """
    if not trainer.ranks.shares:
        return
    sums = checksums({"order": trainer.random.get_state(), **trainer.model.parameters()})
    facts = {
        "rows of the batch": digest([trainer.numbers_of(row) for row in rows]),
        "order of the rows": sums.pop("order"),
        "learning rate": trainer.updater.learning_rate,
        "validations": digest(trainer.history),
        "skipped updates": trainer.updater.skipped,
        "weights": digest(sums),
    }
    trainer.ranks.agree_on(f" in update {trainer.step}", facts)
