"""MLflow: the tracking server that is set, or a folder ``mlruns`` beside the run folders."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ppolm.hooks.callback import RunDone
from ppolm.hooks.log_sink import PROJECT, LoggedRun, ending_texts, sample_columns

PARAMETERS = 100
"""So many parameters may be sent at once."""
LONGEST_VALUE, LONGEST_TAG, LONGEST_NAME = 6000, 5000, 250
STATES = {"failed": "FAILED", "interrupted": "KILLED"}


class MlflowSink:
    """A run of MLflow with the id that the run folder remembers, so that a resume continues it."""

    def __init__(self, run: LoggedRun) -> None:
        place = os.environ.get("MLFLOW_TRACKING_URI") or (run.folder.parent.resolve() / "mlruns").as_uri()
        if "://" not in place or place.startswith("file:"):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow wants to be told that a folder is meant
        from mlflow.tracking import MlflowClient

        self._client: Any = MlflowClient(tracking_uri=place)
        self._id = self._continued(run.recall().get("id")) or self._new(run)
        run.note(id=self._id)

    def _continued(self, number: str | None) -> str | None:
        """The run of an earlier start, if this server knows it."""
        if number is None:
            return None
        self._client.update_run(number, status="RUNNING")
        return number

    def _new(self, run: LoggedRun) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        made: str = self._client.create_run(number, run_name=run.name).info.run_id
        from mlflow.entities import Param

        settings = [Param(key, str(value)[:LONGEST_VALUE]) for key, value in run.settings.items()]
        for start in range(0, len(settings), PARAMETERS):
            self._client.log_batch(made, params=settings[start : start + PARAMETERS])
        return made

    def numbers(self, kind: str, step: int, numbers: Mapping[str, float]) -> None:
        """All of them at their step."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        named = {metric_name(f"{kind}/{name}"): value for name, value in numbers.items()}
        self._client.log_batch(self._id, metrics=[Metric(name, value, now, step) for name, value in named.items()])

    def samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """A table per evaluation."""
        self._client.log_table(self._id, sample_columns(rows), f"samples/step-{step:06d}.json")

    def close(self, end: RunDone) -> None:
        """The verdict."""
        for name, text in ending_texts(end).items():
            self._client.set_tag(self._id, name, text[:LONGEST_TAG])
        self._client.set_terminated(self._id, STATES.get(end.stopped, "FINISHED"))


def metric_name(name: str) -> str:
    """A name as MLflow accepts it: names of rewards may be paths and addresses, and it takes names for paths."""
    parts = (part for part in name.replace("\\", "/").split("/") if part not in ("", ".", ".."))
    allowed = r"[^\w. /-]" if os.name == "nt" else r"[^\w.: /-]"
    return re.sub(allowed, "_", "/".join(parts), flags=re.ASCII)[:LONGEST_NAME]
