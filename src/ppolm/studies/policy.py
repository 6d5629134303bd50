"""A policy as people name it on the command line: a run, one of its checkpoints, or the reference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ppolm.config import PPOConfig
from ppolm.errors import ConfigError
from ppolm.feedback.record import Source
from ppolm.storage.code_consent import ask_consent
from ppolm.storage.stored_run import find_best, find_checkpoint, read_run_config, run_of, run_of_best

REFERENCE = "reference"


@dataclass(frozen=True)
class Policy:
    """What is sampled from, and what its answers are called."""

    label: str
    """As win rates name it: runs/a/best, runs/a/checkpoints/step-000010, reference."""
    run: Path | None
    """None: a model that no run has trained."""
    config: PPOConfig
    adapter: Path | None
    """Its adapter; None: the reference of the run, which is the SFT adapter or the bare base."""
    step: int | None

    @property
    def source(self) -> Source:
        """Where its responses come from."""
        run = None if self.run is None else self.run.resolve().name
        return Source(run=run, step=self.step, policy=self.label)


def find_policies(
    names: Sequence[str], flags: Sequence[str] = (), machine: Mapping[str, Any] = MappingProxyType({})
) -> list[Policy]:
    """The policies of these names; ``reference`` is that of the run beside it.

    A run that somebody else started is used only if the user agrees to the code that loading its model would run:
    ``flags`` are what was typed. ``machine`` are settings of device and precision in place of the run's.
    """
    runs = [name for name in names if name != REFERENCE]
    if not runs:
        raise ConfigError("'reference' is the reference of a run. Name a run beside it.")
    found = [_find(name if name != REFERENCE else runs[0], name == REFERENCE, flags, machine) for name in names]
    labels = [policy.label for policy in found]
    if len(set(labels)) < len(labels):
        raise ConfigError(f"Both policies are {labels[0]}. Name two different ones, or sample one with --policy.")
    return found


def model_policy(
    model: str, adapter: str | None = None, machine: Mapping[str, Any] = MappingProxyType({}), max_new_tokens: int = 64
) -> Policy:
    """A model that no run has trained yet, with the adapter of its SFT if there is one."""
    # A server that takes the adapters of a run takes a new one of rank 1, which has no effect either.
    config = PPOConfig(model_name=model, max_new_tokens=max_new_tokens, lora_r=1).overridden(**machine)
    return Policy(adapter or model, None, config, None if adapter is None else Path(adapter), 0)


def _find(name: str, reference: bool, flags: Sequence[str], machine: Mapping[str, Any]) -> Policy:
    path = Path(name)
    run = run_of(run_of_best(path))
    stored = read_run_config(run)
    ask_consent(run, stored, flags, "feedback study NAME --policy", rewards=False)
    config = stored.overridden(**machine)
    if reference:
        return Policy(REFERENCE, run, config, None, 0)
    if path.parent.name == "checkpoints":
        checkpoint = find_checkpoint(path, resumes=False)[1]
        step = checkpoint.name.rpartition("-")[2]
        return Policy(str(path), run, config, checkpoint / "policy", int(step) if step.isdigit() else None)
    return Policy(str(run / "best"), run, config, find_best(run), _step_of(run / "best"))


def _step_of(best: Path) -> int | None:
    """The step of a best policy, if it says so."""
    try:
        return int(json.loads((best / "best.json").read_text(encoding="utf-8"))["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
