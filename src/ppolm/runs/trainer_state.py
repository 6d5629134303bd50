"""Everything a trainer needs to go on exactly where it was: saved as safetensors, JSON and Parquet, never pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from ppolm.base_setup.capabilities import warn_of_other_capabilities
from ppolm.errors import RunFolderError
from ppolm.messages import reason
from ppolm.token_attribution.sa_pairs_io import from_parquet, to_parquet
from ppolm.training.updater import Updater

if TYPE_CHECKING:
    from ppolm.evaluation.evaluator import Evaluator
    from ppolm.ppo_trainer.ppo_trainer import PPOTrainer


def save_state(trainer: PPOTrainer, evaluator: Evaluator | None, folder: Path, **progress: Any) -> None:
    """Write adapters, optimisers, generators, statistics and the buffer into ``folder``."""
    trainer.models.policy.save(folder / "policy")
    trainer.models.value.save(folder / "value")
    for updater in updaters_of(trainer):
        save_file({name: value.contiguous() for name, value in updater.tensors().items()}, _moments(folder, updater))
    save_file(
        {name: random.get_state() for name, random in generators_of(trainer).items()}, folder / "random.safetensors"
    )
    state = {
        "step": trainer.step,
        "precision": trainer.models.setup.precision,
        "capabilities": trainer.models.setup.capabilities.to_dict(),
        **scale_state(trainer),
        "sampler_agrees": trainer.attributor.sampler_agrees,
        "reward_failures": trainer.reward_computer.failures,
        "evicted_tokens": trainer.buffer.evicted_tokens,
        "updaters": {updater.name: updater.state_dict() for updater in updaters_of(trainer)},
        "evaluations": evaluator.history if evaluator else [],
        "first_scores": evaluator.first_scores if evaluator else {},
        "progress": progress,
    }
    (folder / "state.json").write_text(json.dumps(state, indent=1))
    # Only what a later step trains on again has to be kept.
    for number, table in enumerate(_replayed(trainer)):
        to_parquet(table, folder / f"buffer-{number:03d}.parquet")


def load_state(trainer: PPOTrainer, evaluator: Evaluator | None, folder: Path) -> dict[str, Any]:
    """Put a trainer into the saved state; the progress that was saved with it.

    It goes on bit for bit on the device it was saved on; on another one, but for rounding.
    """
    try:
        state = json.loads((folder / "state.json").read_text())
        trainer.models.setup.use_precision(state["precision"])
        warn_of_other_capabilities(trainer.models.setup, state.get("capabilities"), folder)
        trainer.models.policy.load_weights(folder / "policy")
        trainer.models.value.load_weights(folder / "value")
        for updater in updaters_of(trainer):
            updater.load(load_file(_moments(folder, updater)), state["updaters"][updater.name])
        generators = generators_of(trainer)
        for name, value in load_file(folder / "random.safetensors").items():
            generators[name].set_state(value)
        trainer.step = int(state["step"])
        load_scale_state(trainer, state)
        trainer.attributor.sampler_agrees = bool(state["sampler_agrees"])
        trainer.reward_computer.failures = int(state["reward_failures"])
        trainer.buffer.evicted_tokens = int(state["evicted_tokens"])
        tokenizer = trainer.models.setup.tokenizer
        trainer.buffer.tables = [from_parquet(path, tokenizer) for path in sorted(folder.glob("buffer-*.parquet"))]
        if evaluator:
            evaluator.history = list(state["evaluations"])
            evaluator.first_scores = dict(state.get("first_scores", {}))
        return dict(state["progress"])
    except (RunFolderError, MemoryError):
        raise
    except Exception as error:  # a file that another program wrote may hold anything
        said = f"{type(error).__name__}: {reason(error)}"
        raise RunFolderError(f"Checkpoint {folder} does not fit this run: {said}") from error


def scale_state(trainer: PPOTrainer) -> dict[str, Any]:
    """What decides the scale of rewards, and with it the meaning of values."""
    return {"kl_coef": trainer.kl.coef, "normalizer": trainer.reward_computer.normalizer.state_dict()}


def load_scale_state(trainer: PPOTrainer, state: dict[str, Any]) -> None:
    """Bring rewards to the scale they had."""
    try:
        trainer.kl.coef = float(state["kl_coef"])
        trainer.reward_computer.normalizer.load_state_dict(state["normalizer"])
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        said = f"{type(error).__name__}: {reason(error)}"
        raise RunFolderError(
            f"The scale of rewards cannot be read from the run ({said}): its files are damaged."
        ) from error


def updaters_of(trainer: PPOTrainer) -> tuple[Updater, Updater]:
    return trainer.model_trainer.policy_updater, trainer.model_trainer.value_updater


def _moments(folder: Path, updater: Updater) -> Path:
    return folder / f"optimizer_{updater.name}.safetensors"


def generators_of(trainer: PPOTrainer) -> dict[str, torch.Generator]:
    return {"sampling": trainer.generator.random, "minibatches": trainer.model_trainer.random}


def _replayed(trainer: PPOTrainer) -> list[Any]:
    keep = trainer.buffer.max_rollouts - 1
    return trainer.buffer.tables[-keep:] if keep else []
