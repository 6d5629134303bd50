"""The loggers that ``log_to`` names: checked before a model is loaded, and harmless if they fail."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from ppolm.components import Trainer
from ppolm.config import PPOConfig
from ppolm.errors import ConfigError
from ppolm.hooks.background_logger import BackgroundLogger
from ppolm.hooks.log_sink import LoggedRun, LogSink
from ppolm.hooks.run_control import RunControl
from ppolm.messages import reason

log = logging.getLogger(__name__)


def check_loggers(config: PPOConfig) -> None:
    """Raise ConfigError if a tool that is to be logged to is not installed."""
    for tool in config.log_to:
        if find_spec(tool) is None:
            extra = "" if tool == "tensorboard" else f"[{tool}]"
            raise ConfigError(
                f"log_to names {tool}, which is not installed. Install it: pip install 'ppolm{extra}'; or leave it out."
            )


def _tensorboard(run: LoggedRun) -> LogSink:
    from ppolm.hooks.tensorboard_sink import TensorBoardSink

    return TensorBoardSink(run)


def _wandb(run: LoggedRun) -> LogSink:
    from ppolm.hooks.wandb_sink import WandbSink

    return WandbSink(run)


def _mlflow(run: LoggedRun) -> LogSink:
    from ppolm.hooks.mlflow_sink import MlflowSink

    return MlflowSink(run)


def _trackio(run: LoggedRun) -> LogSink:
    from ppolm.hooks.trackio_sink import TrackioSink

    return TrackioSink(run)


SINKS: dict[str, Callable[[LoggedRun], LogSink]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
    "trackio": _trackio,
}


class Loggers:
    """Tells every logger what has been recorded. None of them can stop, change or end a run."""

    def __init__(self, trainer: Trainer) -> None:
        first = trainer.models.setup.ranks.first
        names = dict.fromkeys(trainer.config.log_to) if first else {}
        self._loggers = [BackgroundLogger(name, SINKS[name], repeats=name == "tensorboard") for name in names]

    def tell(self, control: RunControl, method: str, *facts: Any) -> None:
        """Call a method of each."""
        for logger in self._loggers:
            try:
                getattr(logger, method)(*facts, control)
            except KeyboardInterrupt:
                if method != "on_end":
                    raise
                log.warning("%s is not waited for any longer", logger.tool)  # a signal; the run itself is saved
            except Exception as error:
                log.warning("%s failed in %s, and the run goes on: %s", logger.tool, method, reason(error))
