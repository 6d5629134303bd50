"""The three tiny trainings that are attacked, on the embedded model; and the comparison of their results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppolm.errors import RunFolderError
from ppolm.storage.atomic import verify_folder
from ppolm.storage.metrics_log import read_metrics

COMPARISONS = Path(__file__).resolve().parent.parent / "examples" / "comparisons.jsonl"


@dataclass(frozen=True)
class Training:
    """A command that trains into a folder."""

    name: str
    flags: tuple[str, ...]

    def begin(self, folder: Path, *more: str) -> list[str]:
        """The command that starts it."""
        if self.name == "train":
            place: Sequence[str] = ("--output-dir", str(folder.parent), "--run-name", folder.name)
        else:
            place = ("--output", str(folder))
        return [self.name, "--model-name", "embedded", "--threads", "1", *self.flags, *place, *more]

    def resume(self, folder: Path) -> list[str]:
        """The command that resumes it."""
        return [self.name, "--resume", str(folder)]

    def saved_step(self, folder: Path) -> int | None:
        """The step of the newest checkpoint."""
        found = sorted(folder.glob("checkpoints/step-*" if self.name == "train" else "checkpoint"))
        states = [folder / "state.json" for folder in found if (folder / "state.json").exists()]
        return int(json.loads(states[-1].read_text())["step"]) if states else None

    def lost_steps(self, folder: Path, done: int) -> int:
        """Finished steps that are neither in a checkpoint nor in a complete result, which needs no checkpoint."""
        whole = self.name != "train" and (folder / "training.json").exists()
        return 0 if whole else done - (self.saved_step(folder) or 0)

    def differences(self, folder: Path, whole: Path) -> list[str]:
        """What is damaged, or differs in any bit from an undisturbed run."""
        if self.name == "train":
            found = [kind for kind in ("train", "eval") if _numbers(folder, kind) != _numbers(whole, kind)]
            last = max(whole.glob("checkpoints/step-*")).name
            pairs = [(folder / "best", whole / "best"), (folder / "checkpoints" / last, whole / "checkpoints" / last)]
        else:
            found, pairs = [], [(folder, whole)]
        for mine, other in pairs:
            found += _damages(mine) + _different_files(mine, other, (folder.name, whole.name))
        return found

    def leftovers(self, folder: Path) -> list[str]:
        """Hidden files that should have been removed."""
        return sorted(path.name for path in folder.rglob(".*"))


def trainings(folder: Path) -> dict[str, Training]:
    """The trainings, with their data written into ``folder``."""
    lines = COMPARISONS.read_text(encoding="utf-8").splitlines()[:48]
    rows = [json.loads(line) for line in lines]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "judged.jsonl").write_text("\n".join(lines), encoding="utf-8")
    shown = [json.dumps({"prompt": row["prompt"], "completion": row["chosen"]}) for row in rows]
    (folder / "shown.jsonl").write_text("\n".join(shown), encoding="utf-8")
    ppo = ("--max-steps", "6", "--eval-every", "2", "--checkpoint-every", "3", "--keep-checkpoints", "9")
    sizes = ("--batch-size", "8", "--minibatch-size", "4", "--max-eval-prompts", "8", "--max-new-tokens", "16")
    fast = ("--learning-rate", "0.003")  # so that a policy other than the first becomes the best
    settings = ("--batch-size", "4", "--num-epochs", "2", "--eval-every", "4", "--checkpoint-every", "5")
    dropout, tables = ("--lora-dropout", "0.1"), ("--table-every", "2", "--log-to")
    return {
        "train": Training("train", (*ppo, *sizes, *fast, *tables)),
        "sft": Training("sft", ("--data", str(folder / "shown.jsonl"), *settings, *dropout)),
        "reward": Training("reward", ("--data", str(folder / "judged.jsonl"), *settings, *dropout)),
    }


def _numbers(run: Path, kind: str) -> list[dict[str, Any]]:
    """The metrics of a run without timings."""
    rows = read_metrics(run, kind)
    return [{name: value for name, value in row.items() if not name.startswith("seconds/")} for row in rows]


def _damages(folder: Path) -> list[str]:
    try:
        verify_folder(folder)
    except RunFolderError as error:
        return [str(error)]
    return []


def _different_files(folder: Path, whole: Path, names_of_runs: tuple[str, str]) -> list[str]:
    """Files that differ; the names of the two runs are treated as equal."""
    mine_is, other_is = (name.encode() for name in names_of_runs)
    names = {file.relative_to(whole) for file in whole.rglob("*") if file.is_file()} - {Path("manifest.json")}
    different = []
    for name in sorted(names):
        mine, other = ((one / name).read_bytes() if (one / name).is_file() else b"" for one in (folder, whole))
        if mine.replace(mine_is, other_is) != other and name.suffix != ".png":
            different.append(f"{folder.name}/{name}")
    return different
