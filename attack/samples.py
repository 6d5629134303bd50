"""The good inputs that the attacks mutate, made once per worker."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SETTINGS = ("--batch-size", "2", "--minibatch-size", "2", "--max-new-tokens", "3", "--lora-r", "2", "--eval-every", "1")
CHAT = [{"role": "user", "content": "Name a colour."}, {"role": "assistant", "content": "Blue."}]
ROWS: list[dict[str, Any]] = [
    {"prompt": "Name a colour.", "chosen": " Blue.", "rejected": " A dog.", "annotator": "ann", "margin": 0.5},
    {"prompt": 'Name, a "fruit".', "completion": " Apple.", "score": 6.5, "confidence": 0.7},
    {"prompt": "Name\na tree.", "completion": " Oak.", "label": True, "judged_at": "2026-05-01T12:00:00+00:00"},
    {"messages": CHAT, "score": 1},
    {"chosen": CHAT, "rejected": [CHAT[0], {"role": "assistant", "content": "A dog."}], "step": 3},
    {"prompt": "Name a river.", "title": "water", "level": 3},
]


@dataclass(frozen=True)
class Samples:
    """Paths of the good inputs."""

    folder: Path
    model: Path
    run: Path
    reward_model: Path
    store: Path
    config: dict[str, Any]
    """A good PPO configuration as plain values."""


def make(folder: Path) -> Samples:
    """Build a tiny model, a run with it, a reward model, a store and settings."""
    from ppolm.base_setup.model_setup import setup_models
    from ppolm.cli.main import run as ppolm
    from ppolm.config import PPOConfig
    from tests.tiny_models import make_model_folder

    model = make_model_folder(folder / "model", scale=3.0)
    (folder / "prompts.txt").write_text("\n".join(f"Tell me about {i}:" for i in range(20)))
    (folder / "rewards.py").write_text(
        "def score(prompts, responses):\n    return [float(len(r)) for r in responses]\n"
    )
    named = ["--model-name", str(model), "--prompts", str(folder / "prompts.txt")]
    named += ["--reward", f"{folder}/rewards.py:score", "--output-dir", str(folder / "runs"), "--run-name", "run"]
    flags = [*SETTINGS, "--max-steps", "1", "--checkpoint-every", "1", "--log-to", "--device", "cpu"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert ppolm(["train", *named, *flags]) == 0
    config = PPOConfig.from_yaml(folder / "runs/run/config.yaml")
    reward = setup_models(PPOConfig(**{**config.to_dict(), "reward": ("model",)})).reward
    assert reward is not None
    reward.save(folder / "reward")
    return Samples(folder, model, folder / "runs/run", folder / "reward", _store(folder), config.to_dict())


def _store(folder: Path) -> Path:
    from ppolm.cli.main import run as ppolm

    write_rows(folder / "rows.jsonl", ROWS[:5])
    with contextlib.redirect_stdout(io.StringIO()):
        assert ppolm(["feedback", "import", str(folder / "rows.jsonl"), "--store", str(folder / "feedback.db")]) == 0
    from ppolm.feedback.record import Queued
    from ppolm.feedback.store import FeedbackStore

    store = FeedbackStore(str(folder / "feedback.db"))
    store.ask([Queued("Name a sea.", text) for text in (" Red.", " Black.")])
    store.close()
    return folder / "feedback.db"


def write_rows(path: Path, rows: list[Any]) -> None:
    """Write rows in the format of the file's extension; what a format cannot hold is written as text."""
    ending = path.name.partition(".")[2]
    if ending == "json":
        path.write_text(json.dumps(rows))
    elif ending.startswith("jsonl"):
        text = "\n".join(json.dumps(row) for row in rows).encode()
        path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    elif ending == "csv":
        _write_csv(path, rows)
    elif ending == "parquet":
        _write_parquet(path, rows)
    else:
        path.write_bytes("\n".join(map(str, rows)).encode("utf-8", "surrogatepass"))


def _write_csv(path: Path, rows: list[Any]) -> None:
    good = [row for row in rows if isinstance(row, dict)]
    with path.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file:
        writer = csv.writer(file)
        names = list(dict.fromkeys(str(name) for row in good for name in row))
        writer.writerow(names)
        writer.writerows([[row.get(name, "") for name in names] for row in good])


def _write_parquet(path: Path, rows: list[Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    good = [row for row in rows if isinstance(row, dict)]
    names = list(dict.fromkeys(str(name) for row in good for name in row))
    columns = []
    for name in names:
        values = [row.get(name) for row in good]
        try:
            columns.append(pa.array(values))
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            columns.append(pa.array([None if value is None else repr(value)[:1000] for value in values]))
    safe = [name.encode("utf-8", "replace").decode() for name in names]
    parquet.write_table(pa.Table.from_arrays(columns, names=safe), path)


def copy(source: Path, target: Path) -> Path:
    """Copy a file or folder, to be corrupted."""
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    return target
