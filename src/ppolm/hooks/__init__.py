"""Callbacks: code of a user, and loggers, that a run tells what it has done."""

from ppolm.hooks.callback import Callback, EvaluationDone, RunDone, StepDone
from ppolm.hooks.run_control import Change, RunControl

__all__ = ["Callback", "Change", "EvaluationDone", "RunControl", "RunDone", "StepDone"]
