"""What the form of a new study says, as arguments of ``ppolm feedback study``. Runs by id, never by a path."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppolm.feedback.study import LONGEST_GUIDELINES, LONGEST_NAME, MOST_AXES
from ppolm.messages import brief
from ppolm.runs.run_status import read_object
from ppolm.studio.answers import BadRequestError
from ppolm.studio.judge_words import ASKS
from ppolm.studio.workspace import Workspace

BEST, REFERENCE = "best", "reference"
WAYS = ("policies", "policy", "step")
CHECKPOINT = re.compile(r"step-\d{1,9}")
MOST_ITEMS = 100_000


def choices(run: Path) -> dict[str, Any]:
    """What can be judged of a run: its policies, and the steps whose responses were logged."""
    checkpoints = sorted(name for name in _names(run / "checkpoints") if CHECKPOINT.fullmatch(name))
    best = [BEST] if (run / "best").is_dir() else []
    tables = (re.fullmatch(r"step-(\d{1,9})\.parquet", name) for name in _names(run / "table"))
    step = read_object(run / "best" / "best.json").get("step")
    return {
        "policies": [*best, *checkpoints, REFERENCE],
        "best_step": step if isinstance(step, int) else None,
        "steps": sorted(int(found.group(1)) for found in tables if found),
    }


def study_arguments(workspace: Workspace, body: Mapping[str, Any], store: str) -> list[str]:
    """The arguments after ``ppolm``; every value is one that was checked, and none can be taken for a flag."""
    way = _one_of(body, "way", WAYS)
    ask = _one_of(body, "ask", ASKS)
    name = _text(body, "name", LONGEST_NAME)
    if not name or name.startswith("-"):
        raise BadRequestError(f"The study's name is {brief(name)}: expected 1 to {LONGEST_NAME} letters, no '-' first.")
    arguments = ["feedback", "study", name, f"--store={store}", f"--ask={ask}", *_source(workspace, way, ask, body)]
    if (count := _whole(body, "count", 1, MOST_ITEMS)) is not None:
        arguments.append(f"--count={count}")
    arguments.append(f"--judgements-per-item={_whole(body, 'wanted', 1, 1000) or 1}")
    if guidelines := _text(body, "guidelines", LONGEST_GUIDELINES, lines=True):
        arguments.append(f"--guidelines={guidelines}")
    if ask == "preference":
        arguments.append(f"--repeats={_share(body)}")
    elif axes := _axes(body) if ask == "score" else []:
        arguments += ["--axes", *axes]
    if body.get("second_look") is True:
        arguments.append("--second-look")
    return arguments


def _source(workspace: Workspace, way: str, ask: str, body: Mapping[str, Any]) -> list[str]:
    if way == "step":
        run = _run(workspace, body, "first")
        step = _whole(body, "step", 0, 10**9)
        if step not in choices(run)["steps"]:
            raise BadRequestError(f"That run has no table of step {brief(step)}. Choose one of those it has.")
        return [f"--step-of={shown(run)}", f"--step={step}"]
    if way == "policy":
        samples = _whole(body, "samples", 2 if ask == "preference" else 1, 100)
        return [f"--policy={_policy(workspace, body, 'first')}", *([f"--samples={samples}"] if samples else [])]
    first, second = _policy(workspace, body, "first"), _policy(workspace, body, "second")
    if REFERENCE in (first, second) and body.get("first", {}).get("run") != body.get("second", {}).get("run"):
        raise BadRequestError("The reference is that of the run beside it: choose the same run on both sides.")
    return ["--policies", first, second]


def _policy(workspace: Workspace, body: Mapping[str, Any], side: str) -> str:
    run, given = _run(workspace, body, side), body[side].get("policy")
    if given not in choices(run)["policies"]:
        raise BadRequestError(f"That run has no policy {brief(given)}. Choose one of those it has.")
    if given == REFERENCE:
        return REFERENCE
    return shown(run) if given == BEST else shown(run / "checkpoints" / given)


def _run(workspace: Workspace, body: Mapping[str, Any], side: str) -> Path:
    given = body.get(side)
    if not isinstance(given, dict) or not isinstance(given.get("run"), str):
        raise BadRequestError(f"Choose a run for the {side} side.")
    return workspace.run(given["run"])


def shown(path: Path) -> str:
    """A folder as win rates will name it: from where the studio runs, if it is below."""
    try:
        name = str(path.relative_to(Path.cwd()))
    except ValueError:
        name = str(path)
    return f".{os.sep}{name}" if name.startswith("-") else name


def _one_of(body: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> str:
    given = body.get(name)
    if given not in allowed:
        raise BadRequestError(f"{name} is {brief(given)}, expected one of {', '.join(allowed)}.")
    return str(given)


def _text(body: Mapping[str, Any], name: str, longest: int, lines: bool = False) -> str:
    given = body.get(name) or ""
    kept = given.replace("\n", "").replace("\t", "") if isinstance(given, str) and lines else given
    if not isinstance(given, str) or len(given) > longest or not kept.isprintable():
        raise BadRequestError(f"{name} is {brief(given)}, expected at most {longest:,} printable characters.")
    return given.strip()


def _whole(body: Mapping[str, Any], name: str, lowest: int, highest: int) -> int | None:
    given = body.get(name)
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool) or not lowest <= given <= highest:
        raise BadRequestError(f"{name} is {brief(given)}, expected a whole number from {lowest} to {highest:,}.")
    return given


def _share(body: Mapping[str, Any]) -> float:
    given = body.get("repeats", 0.05)
    if not isinstance(given, (int, float)) or isinstance(given, bool) or not 0 <= given <= 0.5:
        raise BadRequestError(f"repeats is {brief(given)}, expected a share from 0 to 0.5.")
    return float(given)


def _axes(body: Mapping[str, Any]) -> list[str]:
    given = body.get("axes") or []
    if not isinstance(given, list) or len(given) > MOST_AXES:
        raise BadRequestError(f"axes is {brief(given)}, expected at most {MOST_AXES} names.")
    names = [_text({"axis": one}, "axis", LONGEST_NAME) for one in given]
    if any(not name or name.startswith("-") for name in names):
        raise BadRequestError(f"axes is {brief(given)}, expected names that do not begin with '-'.")
    return names


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []
