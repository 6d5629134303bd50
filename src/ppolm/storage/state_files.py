"""Saving component states: tensors in safetensors, tables in Parquet, everything else in JSON. No pickle."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from ppolm.rollout.sampling_base import Tokenizer
from ppolm.state import State
from ppolm.token_attribution import SAPairs
from ppolm.token_attribution.sa_pairs_io import from_parquet, to_parquet

TABLE = "$table"
"""Key that marks a table in the JSON part; its value is the file name."""
STEP = "::"
"""Separates the keys on the path to a tensor."""


def save_states(folder: Path, states: Mapping[str, State]) -> dict[str, Any]:
    """Write the tensors and tables of each component into ``folder``; returns the rest, which JSON can hold."""
    rest = {}
    for name, state in states.items():
        tensors: dict[str, Tensor] = {}
        tables: dict[str, SAPairs] = {}
        rest[name] = _part(state, (), tensors, tables, name)
        if tensors:
            save_file(tensors, folder / f"{name}.safetensors")
        for file, table in tables.items():
            to_parquet(table, folder / file)
    return rest


def _part(value: Any, path: tuple[str, ...], tensors: dict[str, Tensor], tables: dict[str, SAPairs], name: str) -> Any:
    """The part of a state for JSON; its tensors and tables are collected, tensors under their path in the state."""
    if isinstance(value, SAPairs):
        file = f"{name}-{len(tables):03d}.parquet"
        tables[file] = value
        return {TABLE: file}
    if isinstance(value, Mapping):
        for key, tensor in value.items():
            if isinstance(tensor, Tensor):
                tensors[STEP.join((*path, key))] = tensor.detach().cpu().contiguous()
        others = {key: item for key, item in value.items() if not isinstance(item, Tensor)}
        return {key: _part(item, (*path, key), tensors, tables, name) for key, item in others.items()}
    if isinstance(value, (list, tuple)):
        return [_part(item, path, tensors, tables, name) for item in value]
    if isinstance(value, Tensor):
        raise TypeError(f"the state of {name} has a tensor in a list; put it into a mapping, under a name")
    return value


def load_states(folder: Path, rest: Mapping[str, Any], tokenizer: Tokenizer) -> dict[str, State]:
    """Load saved states; ``rest`` is what ``save_states`` returned, and tables get the tokenizer."""
    states = {}
    for name, part in rest.items():
        state = _with_tables(part, folder, tokenizer)
        file = folder / f"{name}.safetensors"
        for path, tensor in load_file(file).items() if file.exists() else ():
            *way, last = path.split(STEP)
            parent: MutableMapping[str, Any] = state
            for key in way:
                parent = parent[key]
            parent[last] = tensor
        states[name] = state
    return states


def _with_tables(part: Any, folder: Path, tokenizer: Tokenizer) -> Any:
    if isinstance(part, Mapping):
        if TABLE in part:
            return from_parquet(folder / part[TABLE], tokenizer)
        return {key: _with_tables(item, folder, tokenizer) for key, item in part.items()}
    return [_with_tables(item, folder, tokenizer) for item in part] if isinstance(part, list) else part


def copied(value: Any) -> Any:
    """A copy of a state that later steps do not change, with every tensor copied to the CPU."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, (list, tuple)) else value  # tables are immutable
