"""Checkpoints from which SFT and reward-model training resume bit for bit: safetensors and JSON, never pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ppolm.errors import ModelError, RunFolderError
from ppolm.storage.atomic import explained, recover_folder, verify_folder, write_folder

if TYPE_CHECKING:
    from ppolm.supervised.supervised_trainer import SupervisedTrainer


def save_checkpoint(trainer: SupervisedTrainer[Any], folder: Path) -> None:
    """Write weights, best weights, optimiser, random state and progress, atomically."""

    def fill(target: Path) -> None:
        _save(trainer.model.parameters(), target / "weights.safetensors")
        _save(trainer.best, target / "best.safetensors")
        updater = dict(trainer.updater.state_dict())
        _save(updater.pop("moments"), target / "optimizer.safetensors")
        _save(random_states(trainer.model.setup.device), target / "random.safetensors")
        state = {
            "step": trainer.step,
            "precision": trainer.model.setup.precision,
            "history": trainer.history,
            "losses": trainer.losses,
            "updater": updater,
            "rows": rows_digest(trainer),
        }
        (target / "state.json").write_text(json.dumps(state, indent=1))

    with explained(folder, f"resume: --resume {folder.parent}"):
        write_folder(folder, fill)


def load_checkpoint(trainer: SupervisedTrainer[Any], folder: Path) -> None:
    """Restore a trainer's saved state; its precision must already be that of the checkpoint (``load_precision``).

    This also works on another device, but there rounding and dropout differ, so training is not bit for bit the same.
    """
    try:
        state = json.loads((folder / "state.json").read_text())
        if state["rows"] != rows_digest(trainer):
            raise RunFolderError(
                f"{folder} was written by a training on other rows. Resume it with the data it was started with."
            )
        weights = load_file(folder / "weights.safetensors")
        with torch.no_grad():
            for name, value in trainer.model.parameters().items():
                value.copy_(weights[name])
        trainer.best = load_file(folder / "best.safetensors")
        trainer.updater.load_state_dict({**state["updater"], "moments": load_file(folder / "optimizer.safetensors")})
        set_random_states(load_file(folder / "random.safetensors"), trainer.model.setup.device)
        trainer.step, trainer.history, trainer.losses = int(state["step"]), state["history"], state["losses"]
    except (KeyError, ValueError, RuntimeError, OSError, SafetensorError) as error:
        raise _unfit(folder, error) from error


def load_precision(trainer: SupervisedTrainer[Any], folder: Path) -> None:
    """Set a trainer to the precision of the checkpoint; called before anything is computed."""
    recover_folder(folder)
    if not folder.exists():
        return
    verify_folder(folder)
    try:
        trainer.model.setup.use_precision(json.loads((folder / "state.json").read_text())["precision"])
    except (KeyError, ValueError, OSError, ModelError) as error:
        raise _unfit(folder, error) from error


def _unfit(folder: Path, error: Exception) -> RunFolderError:
    return RunFolderError(f"Checkpoint {folder} does not fit this training: {error}")


def rows_digest(trainer: SupervisedTrainer[Any]) -> str:
    """A fingerprint of the training and validation rows."""
    digest = hashlib.sha256()
    for row in (*trainer.rows, None, *trainer.held_out):
        digest.update(repr(row and trainer.numbers_of(row)).encode())
    return digest.hexdigest()


def random_states(device: torch.device) -> dict[str, Tensor]:
    """States of the random generators used for dropout, by device type: the CPU's and the training device's.

    Other devices are not used, and the machine that resumes may not have them.
    """
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore the generators. One that is not in the checkpoint keeps the state set by the seed."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    if device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    save_file({name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}, path)
