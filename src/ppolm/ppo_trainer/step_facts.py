"""What all processes of a job must have in common after a step: everything that later steps are computed from.

Gradients are summed before an update, so the weights stay equal even if the processes compute with different prompts,
rewards or settings. So the table, the random numbers and the state of every component are compared as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ppolm.components import Trainer
from ppolm.ranks.checksums import checksums, digest
from ppolm.state import State, Stateful
from ppolm.token_attribution import SAPairs

PLAIN = (int, float, str)
Facts = dict[str, list[object]]
"""What belongs together, by its name."""


def step_facts(trainer: Trainer, pairs: SAPairs, rewards: Sequence[Any]) -> dict[str, object]:
    """What a step has computed and what it leaves, by name, as short texts: causes before what follows from them."""
    facts: Facts = defaultdict(list)
    tensors: dict[tuple[str, int], Tensor] = {}
    _collect("prompts and responses", {"prompts": pairs.prompts, "offsets": pairs.offsets}, facts, tensors)
    _collect("rewards", list(rewards), facts, tensors)
    for name, part in trainer.components().items():
        _collect(f"state of {name}", compared_state(part), facts, tensors)
    facts["settings of the update"] += [trainer.step, trainer.kl.coef, dict(trainer.model_trainer.metrics())]
    for name, column in pairs.columns.items():
        _collect(f"column {name}", column, facts, tensors)
    for name, model in (("policy", trainer.models.policy), ("value model", trainer.models.value)):
        _collect(f"weights of the {name}", model.parameters(), facts, tensors)
    read = checksums(tensors)
    return {name: digest([parts, *(read[key] for key in tensors if key[0] == name)]) for name, parts in facts.items()}


def compared_state(part: Stateful) -> State:
    """The state of a component, or what it gives instead where its state takes long to get."""
    give = getattr(part, "compared_state", part.state_dict)
    state: State = give()
    return state


def _collect(name: str, value: Any, facts: Facts, tensors: dict[tuple[str, int], Tensor]) -> None:
    """Take apart what belongs to ``name``: its tensors, and everything else."""
    facts[name]  # has its place in the order also if it has tensors only
    if isinstance(value, Tensor):
        tensors[name, len(tensors)] = value
        facts[name].append(tuple(value.shape))
    elif isinstance(value, SAPairs):
        _collect(name, {**value.columns, "offsets": value.offsets, "prompts": value.prompts}, facts, tensors)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            facts[name].append(key)
            _collect(name, item, facts, tensors)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        if all(isinstance(item, PLAIN) for item in value):
            facts[name].append(list(value))
            return
        facts[name].append(len(value))
        for item in value:
            _collect(name, item, facts, tensors)
    else:
        facts[name].append(value)
