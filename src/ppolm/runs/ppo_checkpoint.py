"""The full state of a trainer, saved as safetensors, JSON and Parquet, never pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppolm.base_setup.capabilities import warn_of_other_capabilities
from ppolm.components import Trainer
from ppolm.errors import CallbackError, RunFolderError
from ppolm.messages import reason
from ppolm.state import State, Stateful
from ppolm.storage.state_files import load_states, save_states

SCALE = ("kl", "reward_computer")
"""The components that determine the scale of rewards, and so of values."""


def save_state(trainer: Trainer, others: Mapping[str, Stateful], folder: Path, **progress: Any) -> None:
    """Write both adapters and the state of every component, and of what else has one, into ``folder``."""
    trainer.models.policy.save(folder / "policy")
    trainer.models.value.save(folder / "value")
    states = {name: part.state_dict() for name, part in {**trainer.components(), **others}.items()}
    state = {
        "step": trainer.step,
        "reward_failures": trainer.reward_failures,
        "precision": trainer.models.setup.precision,
        "capabilities": trainer.models.setup.capabilities.to_dict(),
        "components": save_states(folder, states),
        "progress": progress,
    }
    (folder / "state.json").write_text(json.dumps(state, indent=1))


def load_state(trainer: Trainer, others: Mapping[str, Stateful], folder: Path) -> dict[str, Any]:
    """Restore a trainer from a checkpoint; returns the progress saved with it.

    Training continues bit for bit on the device it was saved on; on another one, up to rounding.
    """
    try:
        state = json.loads((folder / "state.json").read_text())
        trainer.models.setup.use_precision(state["precision"])
        warn_of_other_capabilities(trainer.models.setup, state.get("capabilities"), folder)
        trainer.models.policy.load_weights(folder / "policy")
        trainer.models.value.load_weights(folder / "value")
        states = load_states(folder, state["components"], trainer.models.setup.tokenizer)
        for name, part in {**trainer.components(), **others}.items():
            if name != "callbacks" or name in states:  # earlier versions had none
                part.load_state_dict(states[name])
        trainer.step, trainer.reward_failures = int(state["step"]), int(state["reward_failures"])
        return dict(state["progress"])
    except (RunFolderError, CallbackError, MemoryError):
        raise
    except Exception as error:  # a file written by another program may hold anything
        said = f"{type(error).__name__}: {reason(error)}"
        raise RunFolderError(f"Checkpoint {folder} does not fit this run: {said}") from error


def scale_state(trainer: Trainer) -> State:
    """The state of the ``SCALE`` components, in a form that JSON can hold."""
    parts = trainer.components()
    return {"components": {name: dict(parts[name].state_dict()) for name in SCALE}}


def load_scale_state(trainer: Trainer, state: State) -> None:
    """Restore the scale of rewards."""
    parts = trainer.components()
    try:
        for name in SCALE:
            parts[name].load_state_dict(state["components"][name])
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        said = f"{type(error).__name__}: {reason(error)}"
        raise RunFolderError(
            f"The scale of rewards cannot be read from the run ({said}): its files are damaged."
        ) from error
