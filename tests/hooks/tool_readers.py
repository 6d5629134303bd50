"""What the real W&B, MLflow, Trackio and TensorBoard have of a run, read back as each of them reads it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

Numbers = list[tuple[int, str, float]]
"""Step, name and value of everything that was logged, in order."""
BLOCK, HEADER = 32 * 1024, 7
"""Of the log of W&B, which is LevelDB's: blocks, and a checksum, a length and a kind before each piece of a record."""


def wandb_records(file: Path) -> Iterator[Any]:
    """The records of an offline run, as W&B's own message."""
    record = pytest.importorskip("wandb.proto.wandb_internal_pb2").Record
    data, at, whole = file.read_bytes(), HEADER, b""  # the file begins with a header of its own
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + HEADER])
        whole += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # all of a record, or its last piece
            found = record()
            found.ParseFromString(whole)
            yield found
            whole = b""


def wandb_run(run: Path) -> tuple[Numbers, dict[str, Any], dict[str, Any]]:
    """Numbers, settings and summary of all offline parts of a run."""
    numbers: Numbers = []
    settings: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    for file in sorted(run.glob("wandb/offline-run-*/*.wandb")):
        for record in wandb_records(file):
            kind = record.WhichOneof("record_type")
            if kind == "history":
                row = {
                    "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
                }
                step = record.history.step.num
                numbers += [(step, name, value) for name, value in row.items() if name.startswith(("train/", "eval/"))]
            elif kind in ("run", "config"):
                update = (record.run.config if kind == "run" else record.config).update
                settings |= {item.key: json.loads(item.value_json) for item in update}
            elif kind == "summary":
                summary |= {item.key: json.loads(item.value_json) for item in record.summary.update if item.key}
    return numbers, settings, summary


def mlflow_run(run: Path, patch: pytest.MonkeyPatch) -> tuple[Numbers, Any, Any]:
    """Numbers of a run, the run, and its samples."""
    patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = pytest.importorskip("mlflow.tracking").MlflowClient((run.parent / "mlruns").as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("ppolm").experiment_id])
    histories = (client.get_metric_history(found.info.run_id, name) for name in found.data.metrics)
    numbers = [(one.step, one.key, one.value) for history in histories for one in history]
    return numbers, found, [Path(one.path).name for one in client.list_artifacts(found.info.run_id, "samples")]


def trackio_run(folder: Path, name: str, patch: pytest.MonkeyPatch) -> tuple[Numbers, dict[str, Any], list[Any]]:
    """Numbers, settings, and everything that is not a number."""
    storage = pytest.importorskip("trackio.sqlite_storage")
    patch.setattr(storage, "TRACKIO_DIR", folder)
    rows = storage.SQLiteStorage.get_logs("ppolm", name)
    numbers, others = [], []
    for row in rows:
        step = row["step"]
        for key, value in row.items():
            if key.startswith(("train/", "eval/")):
                numbers.append((step, key, value))
            elif key not in ("step", "timestamp"):
                others.append((step, key, value))
    return numbers, storage.SQLiteStorage.get_run_config("ppolm", name), others


def tensorboard_run(run: Path) -> tuple[Numbers, list[str]]:
    """Numbers, and the names of the texts."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = accumulators.EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    accumulator.Reload()
    tags = accumulator.Tags()
    numbers = [(one.step, tag, one.value) for tag in tags["scalars"] for one in accumulator.Scalars(tag)]
    return numbers, [tag.partition("/")[0] for tag in tags["tensors"]]
