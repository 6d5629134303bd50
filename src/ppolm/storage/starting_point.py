"""What a training finds in the run that it starts from: checked before anything large is loaded, noted afterwards."""

from __future__ import annotations

import dataclasses
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from ppolm.config import PPOConfig, SupervisedConfig
from ppolm.config.paths import absolute
from ppolm.config.start import START, policy_of, value_of
from ppolm.errors import ConfigError, RunFolderError
from ppolm.ranks import join_ranks
from ppolm.storage.atomic import describe, verify_folder
from ppolm.storage.claim import refuse_claimed
from ppolm.storage.prompt_record import TRAINED_ON, read_trained_on
from ppolm.storage.stored_run import find_best, find_checkpoint, is_start, read_run_config, run_of

NOTE = "start.json"
"""In the copy of the start: the runs that it came from, the nearest first."""
SHAPE = ("lora_r", "lora_alpha", "lora_target_modules", "trainable_layers")
"""Settings of the adapters, which keep their shape."""
WEIGHTS = "adapter_model.safetensors"

S = TypeVar("S", bound=SupervisedConfig)


@dataclass(frozen=True)
class Ancestor:
    """A run that another one started from."""

    path: str
    """What ``start_from`` named: the run or checkpoint."""
    step: int | None
    """PPO steps that its policy was trained for."""
    digest: str
    """SHA-256 of the policy's weights."""


def started(config: PPOConfig, all_said: bool = False) -> PPOConfig:
    """The settings of a run that starts from another, with that run's reference and shape of adapters filled in.

    Raises for a run that cannot be started from with these settings. Without ``start_from`` nothing changes.
    ``all_said``: settings that are the defaults were not left out, but chosen.
    """
    if config.start_from is None:
        return config
    stored = _checked(config)
    shape = {name: _shape(config, stored, name, all_said) for name in SHAPE}
    if not value_of(config.start_from).is_dir() and config.start_value:
        raise ConfigError(f"{config.start_from} has no value model. Set start_value: false.")
    if config.start_reference == "policy":
        return dataclasses.replace(config, **shape)
    reference = stored.reference_adapter
    same = {_place(reference), _place(stored.sft_adapter)}  # a copy, and what it was copied from
    if config.sft_adapter is not None and _place(config.sft_adapter) not in same:
        kept = stored.sft_adapter or reference or "that is the base itself"
        raise ConfigError(
            f"sft_adapter is {config.sft_adapter}, but {config.start_from} has the reference {kept}, which is kept. "
            "Leave sft_adapter out, or set start_reference: policy."
        )
    return dataclasses.replace(config, sft_adapter=config.sft_adapter or stored.sft_adapter or reference, **shape)


def starting_adapter(config: S) -> Path | None:
    """The adapter that SFT or reward training starts from, if it is the policy of a run."""
    if config.start_from is None:
        return None
    _checked(config)
    return policy_of(config.start_from)


def _checked(config: PPOConfig | SupervisedConfig) -> PPOConfig:
    """The settings of the run that is started from, once it is known that its policy is whole and fits."""
    start = Path(str(config.start_from))
    stored = join_ranks().once(lambda: _read(start))
    if _place(stored.model_name) != _place(config.model_name):
        raise ConfigError(
            f"{start} was trained on the base {stored.model_name}, and model_name is {config.model_name}. An adapter "
            f"means nothing on another base: set model_name to {stored.model_name}, or start from another run."
        )
    return stored


def _read(start: Path) -> PPOConfig:
    """The settings of a run whose policy is whole; raises if there is none, or if it may still change."""
    run = run_of(start)
    stored = read_run_config(run)
    if is_start(start):
        verify_folder(start)
    else:
        refuse_claimed(run, "Wait until it ends, or stop it; then start from it.")
        if run != start:
            find_checkpoint(start, resumes=False)
        elif find_best(run) != run / "best":
            raise RunFolderError(f"{run}/best was being replaced when the run was killed. Resume it first.")
    return stored


def _shape(config: PPOConfig, stored: PPOConfig, name: str, all_said: bool) -> Any:
    """A setting of the adapters: that of the run they come from, whether it is left out or said again."""
    wanted, kept = getattr(config, name), getattr(stored, name)
    usual = next(field.default for field in dataclasses.fields(PPOConfig) if field.name == name)
    if wanted != kept and (all_said or wanted != usual):
        raise ConfigError(
            f"{name} is {wanted}, but the adapters of {config.start_from} have {kept}, and they keep their shape. "
            f"Leave {name} out."
        )
    return kept


def _place(name: str | None) -> str | None:
    return None if name is None else absolute(name)


# ---- what a run keeps of its start ------------------------------------------------------------------------------


def fill_start(folder: Path, start_from: str) -> None:
    """Write beside the copied adapters where they come from, and on which prompts they were trained."""
    note = {"ancestors": [asdict(one) for one in ancestors_of(start_from)]}
    (folder / NOTE).write_text(json.dumps(note, indent=1), encoding="utf-8")
    trained_on = _record(Path(start_from)) / TRAINED_ON
    if trained_on.is_file():
        shutil.copyfile(trained_on, folder / TRAINED_ON)


def ancestors_of(start_from: str) -> list[Ancestor]:
    """The runs that a start comes from, the nearest first."""
    start = Path(start_from)
    before = noted_ancestors(run_of(start))
    if is_start(start):
        return before
    policy = policy_of(start)
    return [Ancestor(str(start), _step(start), str(describe(policy / WEIGHTS)[1])), *before]


def trained_before(start_from: str | None) -> set[bytes]:
    """Keys of the prompts that a start was trained on."""
    return set() if start_from is None else read_trained_on(_record(Path(start_from)))


def _record(start: Path) -> Path:
    return start if is_start(start) else run_of(start)


def noted_ancestors(run: Path) -> list[Ancestor]:
    """The runs that a run came from, the nearest first; none if it started from its reference."""
    folder = run / START
    try:
        rows = json.loads((folder / NOTE).read_text(encoding="utf-8"))["ancestors"]
        return [Ancestor(**row) for row in rows]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunFolderError(f"{folder / NOTE} cannot be read: {error}. The run folder is damaged.") from error


def _step(start: Path) -> int | None:
    if run_of(start) != start:
        number = start.name.rpartition("-")[2]
        return int(number) if number.isdigit() else None
    try:
        step = json.loads((start / "best" / "best.json").read_text(encoding="utf-8")).get("step")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return step if isinstance(step, int) else None


def resumed_start(config: PPOConfig, run: Path) -> PPOConfig:
    """The settings to resume a run with: its own copy of the start takes the place of the run that it came from."""
    own = Path(absolute(str(run / START)))
    if config.start_from is None or not own.is_dir():
        return config
    given, (nearest, *_) = Path(absolute(config.start_from)), [*noted_ancestors(run), None]
    if given == own or nearest is None or str(given) != nearest.path:
        return config  # another start is a changed setting, which is refused as all others are
    if not (weights := policy_of(given) / WEIGHTS).is_file() or describe(weights)[1] != nearest.digest:
        raise RunFolderError(
            f"The policy of {given} has changed since {run} started from it. Resume with the copy that the run keeps: "
            f"ppolm train --resume {run}"
        )
    return dataclasses.replace(config, start_from=str(own))
