"""Compares a trained policy with its reference: same prompts, same random numbers, intervals by prompt."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ppolm.data.prompts import Prompt
from ppolm.errors import RunFolderError
from ppolm.evaluation.evaluator import Evaluator
from ppolm.evaluation.measurement import Measurement
from ppolm.measures.intervals import Interval, cluster_interval
from ppolm.messages import reason
from ppolm.ppo_trainer.ppo_trainer import PPOTrainer
from ppolm.runs.ppo_checkpoint import load_scale_state
from ppolm.storage.stored_run import find_best, find_checkpoint, read_run_config


@dataclass(frozen=True)
class Comparison:
    """Reference and policy on the same prompts."""

    before: Measurement
    after: Measurement
    clusters: Sequence[int]
    """A number per prompt, equal for equal prompts: their responses count as one observation."""

    @property
    def stands_on(self) -> str:
        """The sample size behind the intervals."""
        return f"{len(set(self.clusters))} different prompts, {len(self.clusters)} responses"

    def intervals(self) -> dict[str, tuple[Interval, Interval, Interval]]:
        """Before, after and change of each score."""
        pairs = {name: (self.before.scores[name], self.after.scores[name]) for name in self.after.scores}

        def interval(values: Sequence[float]) -> Interval:
            return cluster_interval(values, self.clusters)

        return {
            # The change is paired by prompt, so that differences between prompts cancel.
            name: (interval(before), interval(after), interval(np.subtract(after, before).tolist()))
            for name, (before, after) in pairs.items()
        }


class RunComparison:
    """Loads a run once, and compares its policy with its reference any number of times."""

    def __init__(
        self,
        run: Path,
        which: str = "best",
        reward: Sequence[str] = (),
        judge: str | None = None,
        machine: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """``machine`` holds device and precision settings that override the run's."""
        self.config = read_run_config(run)
        self.policy, self.value, state = policy_folders(run, which)
        asked: dict[str, Any] = {"reward": list(reward), "reward_weights": []} if reward else {}
        if judge:  # eval_every 0, which the run may have, does not go with a judge
            asked |= {"judge": judge, "eval_every": max(1, self.config.eval_every)}
        self.trainer = PPOTrainer(self.config.overridden(**machine).changed(**asked))
        self.trainer.occasion.run = run.resolve().name
        load_scale_state(self.trainer, read_state(state))

    def release(self) -> None:
        """Remove what sampling has put elsewhere; it can be used again afterwards."""
        self.trainer.release()

    def compare(
        self, prompts: Sequence[Prompt], greedy: Sequence[bool] = (False,), tick: Callable[[], object] = lambda: None
    ) -> list[Comparison]:
        """One comparison per decoding mode: sampled (False) or greedy (True)."""
        evaluator = Evaluator(self.trainer, prompts)

        def measure(most_likely: bool) -> Measurement:
            measured = evaluator.measure(most_likely)
            tick()
            return measured

        self.trainer.models.begin_at_reference()
        before = [measure(most_likely) for most_likely in greedy]
        for measurement in before:
            measurement.metrics.pop("value_accuracy")  # the reference has no value model of its own
        self.trainer.models.policy.load_weights(self.policy)
        self.trainer.models.value.load_weights(self.value)
        after = [measure(most_likely) for most_likely in greedy]
        return [Comparison(*pair, evaluator.clusters.tolist()) for pair in zip(before, after, strict=True)]


def read_state(path: Path) -> dict[str, Any]:
    """A JSON object from a run folder."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"{path} cannot be read: {reason(error)}. The run folder is damaged.") from error
    if not isinstance(state, dict):
        raise RunFolderError(f"{path} holds a {type(state).__name__}, expected an object. The run folder is damaged.")
    return state


def policy_folders(run: Path, which: str) -> tuple[Path, Path, Path]:
    """Adapter folders of the policy and its value model, and the file with the state of the reward scale."""
    if which == "best":
        best = find_best(run)
        return best, best / "value", best / "best.json"
    checkpoint = find_checkpoint(run if which == "last" else Path(which), resumes=False)[1]
    return checkpoint / "policy", checkpoint / "value", checkpoint / "state.json"
