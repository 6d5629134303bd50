"""Weights & Biases: online if there is a key, otherwise into the run folder, from where ``wandb sync`` sends it."""

from __future__ import annotations

import logging
import netrc
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ppolm.hooks.callback import RunDone
from ppolm.hooks.log_sink import PROJECT, LoggedRun, ending_texts, sample_columns

log = logging.getLogger(__name__)
OFFLINE = "no key for W&B is set (WANDB_API_KEY, or `wandb login`), so it is logged offline: `wandb sync %s` sends it"
FINISHES = 25.0
"""Seconds that W&B may take to send what is left."""


class WandbSink:
    """A run of W&B with the id that the run folder remembers, so that a resume continues it."""

    def __init__(self, run: LoggedRun) -> None:
        import wandb

        self._wandb: Any = wandb
        number = run.recall().get("id") or uuid.uuid4().hex[:8]
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if has_key() else "offline")
        if mode == "offline" and not os.environ.get("WANDB_MODE"):
            log.warning(OFFLINE, run.folder / "wandb" / f"offline-run-*-{number}")
        # Nothing about the machine, the program or its folder: a run folder is made to be passed on.
        settings = wandb.Settings(
            mode=mode,
            silent=True,
            console="off",
            save_code=False,
            disable_code=True,
            disable_git=True,
            finish_timeout=FINISHES,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
        )
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=run.name,
            id=number,
            dir=str(run.folder),
            config=dict(run.settings),
            resume="allow" if mode == "online" else None,
            reinit="create_new",
            settings=settings,
        )
        run.note(id=number)
        if mode == "online":
            print(f"wandb: {self._run.url}", file=sys.stderr, flush=True)

    def numbers(self, kind: str, step: int, numbers: Mapping[str, float]) -> None:
        """All of them at their step."""
        self._run.log({f"{kind}/{name}": value for name, value in numbers.items()}, step=step)

    def samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """A table."""
        columns = sample_columns(rows)
        cells = [[str(cell) for cell in row] for row in zip(*columns.values(), strict=True)]
        self._run.log({"samples": self._wandb.Table(columns=list(columns), data=cells)}, step=step)

    def close(self, end: RunDone) -> None:
        """The verdict; then the service that W&B has started ends, too, unless others use it."""
        for name, text in ending_texts(end).items():
            self._run.summary[name] = text
        self._run.finish(exit_code=1 if end.stopped == "failed" else 0)
        if self._wandb.run is None:  # no run of the user's own
            self._wandb.teardown()


def has_key(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether W&B would find a key without asking for one."""
    if environment.get("WANDB_API_KEY") or environment.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlsplit(environment.get("WANDB_BASE_URL") or "https://api.wandb.ai").netloc
    for file in (environment.get("NETRC"), Path.home() / ".netrc", Path.home() / "_netrc"):
        try:
            if file and netrc.netrc(str(file)).authenticators(host):
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False
