"""Reward models: those below the folders of a studio, and those its runs were trained on. No request names a path."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppolm.embedded import REWARD
from ppolm.names import EMBEDDED
from ppolm.readiness.stored import read_json_object, stored_readiness
from ppolm.runs.run_overview import DEEPEST, is_run, number
from ppolm.storage.output_folder import DONE, SETTINGS

MOST_FOUND = 1_000
MOST_LOOKED_AT = 20_000
MARKS = ("reward.json", "adapter_config.json")
"""Files that every reward model has, the one of the package included."""
UNFINISHED = next(name for kind, name in SETTINGS.items() if kind.__name__ == "RewardConfig")
CURVE = ("step", "loss", "training_loss", "accuracy")


@dataclass(frozen=True)
class RewardFolder:
    """A reward model that was found."""

    id: str
    path: Path
    runs: tuple[str, ...]
    """Ids of the runs that were trained on it."""

    @property
    def name(self) -> str:
        """For people."""
        return "embedded" if self.path == REWARD else self.path.name


def is_reward_model(folder: Path) -> bool:
    """Whether a folder holds a reward model, or one in the making."""
    try:
        return all((folder / mark).is_file() for mark in MARKS) or (folder / UNFINISHED).is_file()
    except OSError:
        return False


def find_reward_models(
    folders: Iterable[Path], runs: Mapping[str, Path], settings: Mapping[str, Mapping[str, Any]]
) -> dict[str, RewardFolder]:
    """Reward models by id: those below ``folders``, and those that the settings of ``runs`` name."""
    users: dict[Path, list[str]] = {}
    looked = 0
    for folder in folders:
        for path in _below(folder.absolute(), DEEPEST):
            looked += 1
            if looked > MOST_LOOKED_AT or len(users) >= MOST_FOUND:
                break
            if is_reward_model(path):
                users.setdefault(path, [])
    for run, values in settings.items():
        for path in named_by(values):
            if run in runs and len(users) < MOST_FOUND and is_reward_model(path):
                users.setdefault(path, []).append(run)
    found = [RewardFolder(_id(path), path, tuple(users[path])) for path in users]
    return {one.id: one for one in sorted(found, key=lambda one: (one.name, one.id))}


def _below(folder: Path, depth: int) -> Iterator[Path]:
    """A folder and those in it; what runs and reward models hold is their own."""
    if not folder.is_dir():
        return
    yield folder
    if depth == 0 or is_run(folder) or is_reward_model(folder):
        return
    try:
        inner = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return
    for path in inner:
        yield from _below(path, depth - 1)


def named_by(settings: Mapping[str, Any]) -> list[Path]:
    """The reward models that a run's settings name, as far as they are absolute paths: its own folder holds those."""
    rewards = settings.get("reward", ["model"])
    uses = "model" in (*(rewards if isinstance(rewards, list) else [rewards]), settings.get("judge"))
    if not uses and settings.get("human_fallback") != "model":
        return []
    named = settings.get("reward_model") or ([EMBEDDED] if settings.get("model_name") == EMBEDDED else [])
    names = [name for name in (named if isinstance(named, list) else [named]) if isinstance(name, str)]
    paths = [REWARD if name == EMBEDDED else Path(name) for name in names[:MOST_FOUND] if "\0" not in name]
    return [path for path in paths if path.is_absolute()]


def _id(path: Path) -> str:
    """A name for addresses, the same as long as the folder stays where it is."""
    digest = hashlib.sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()[:10]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name)[:60].strip(".-")
    return f"{readable or 'reward'}~{digest}"


def at_a_glance(folder: RewardFolder) -> dict[str, Any]:
    """What a list shows of a reward model."""
    stored = stored_readiness(folder.path)
    report, trained = stored.report or {}, training_of(folder.path)
    reasons = report.get("reasons") or []
    return {
        "id": folder.id,
        "name": folder.name,
        "folder": str(folder.path),
        "runs": list(folder.runs),
        "state": _state(folder.path),
        "verdict": report.get("verdict"),
        "reason": reasons[0]["text"] if reasons and reasons[0] else None,
        "accuracy": report.get("accuracy"),
        "rows": report.get("rows"),
        "model_name": trained["model_name"],
        "problem": stored.problem,
        "time": _time(folder.path),
    }


def _state(path: Path) -> str:
    """finished, training (or interrupted: the folder looks the same), or without a note of its training."""
    if (path / UNFINISHED).is_file():
        return "unfinished"
    return "finished" if (path / DONE).is_file() else "given"


def _time(path: Path) -> float | None:
    for name in (DONE, UNFINISHED, MARKS[0]):
        try:
            return (path / name).stat().st_mtime
        except OSError:
            continue
    return None


def training_of(path: Path) -> dict[str, Any]:
    """How a reward model was trained, as far as its folder says so."""
    found, problem = read_json_object(path / DONE)
    told = found or {}
    about = told.get("config")
    config: dict[str, Any] = about if isinstance(about, dict) else {}
    adapter, _ = read_json_object(path / MARKS[1])
    base = config.get("model_name") or (adapter or {}).get("base_model_name_or_path")
    rows = told.get("validation")
    curve = [row for row in rows if isinstance(row, dict)][:MOST_FOUND] if isinstance(rows, list) else []
    counts = ("training_rows", "validation_rows", "training_prompts", "validation_prompts", "best_step")
    data = config.get("data")
    return {
        "model_name": base[:500] if isinstance(base, str) else None,
        "data": [str(name)[:500] for name in data[:20]] if isinstance(data, list) else [],
        **{name: number(told.get(name)) for name in counts},
        "validation": [{name: number(row.get(name)) for name in CURVE} for row in curve],
        "problem": problem,
    }


def in_full(folder: RewardFolder) -> dict[str, Any]:
    """Everything that the page of one reward model shows."""
    stored = stored_readiness(folder.path)
    about, _ = read_json_object(folder.path / MARKS[0])
    scale = {name: number((about or {}).get(name)) for name in ("mean", "std", "max_tokens", "max_prompt_tokens")}
    return {
        **at_a_glance(folder),
        "report": stored.report,
        "training": training_of(folder.path),
        "scale": scale,
    }
