"""A user's own Python function as the reward."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from ppolm.errors import RewardError
from ppolm.messages import cut, reason
from ppolm.rewards.protocol import RewardCallError
from ppolm.rewards.time_limit import TimeOver, call_within


class FunctionReward:
    """Calls ``function(prompts, responses)`` with the data columns it asks for by name, or all with ``**columns``.

    The function runs in the caller's thread. Columns with the name of one of the two positional parameters, or of a
    parameter fixed by ``functools.partial``, are not passed on.
    """

    def __init__(self, function: Callable[..., Any], name: str, timeout: float) -> None:
        self.function, self.name, self.timeout = function, name, timeout
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except ValueError:  # some built-in functions have no signature; they get no columns
            parameters = []
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        self.refuses = {p.name for p in positional[:2] if p.kind is p.POSITIONAL_OR_KEYWORD}
        if isinstance(function, functools.partial):
            fixed = list(inspect.signature(function.func).parameters)[: len(function.args)]
            self.refuses |= {*function.keywords, *fixed}
        by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        self.takes = {parameter.name for parameter in parameters if parameter.kind in by_name}
        needed = {p.name for p in parameters if p.kind in by_name and p.default is p.empty}
        self.needs = needed - {p.name for p in positional[:2]}
        """Columns that the function requires."""
        self.known: frozenset[str] = frozenset()
        """Columns of the data, once a run has set them: one that is required but absent from a batch is all None."""

    def __call__(self, prompts: Sequence[Any], responses: Sequence[str], **columns: Sequence[Any]) -> Any:
        """What the function returns; its exceptions are passed on, and a call that takes too long is an error."""
        rows = dict.fromkeys(self.needs & self.known, [None] * len(responses))
        columns = rows | columns
        missing = self.needs - columns.keys()
        if missing:
            raise RewardCallError(self._lacks(missing, columns))
        allowed = {name: values for name, values in columns.items() if name not in self.refuses}
        wanted = {name: values for name, values in allowed.items() if self.takes_all or name in self.takes}
        try:
            return call_within(self.timeout, lambda: self.function(prompts, responses, **wanted), f"Reward {self.name}")
        except TimeOver:
            late = f"Reward {self.name} took longer than reward_timeout {self.timeout:g} s."
            raise RewardCallError(late) from None
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:  # exit() inside a reward must not end the run as if it had succeeded
            raise RewardCallError(f"Reward {self.name} tried to end the program ({error!r}).") from error

    def expect_columns(self, names: Collection[str]) -> None:
        """Set the columns that the data has; raise if a required one is missing."""
        self.known = frozenset(names)
        if self.needs - self.known:
            raise RewardError(self._lacks(self.needs - self.known, names))

    def _lacks(self, missing: Collection[str], names: Collection[str]) -> str:
        column = min(missing)
        return (
            f"Reward {self.name} asks for the column {column!r}, which the data does not have. Its columns beside "
            f"the prompt: {', '.join(sorted(names)) or 'none'}. Add the column, or let the function do without: "
            f"{column}=None."
        )


def load_function(spec: str) -> Callable[..., Any]:
    """The function named by ``module:function`` or ``path/file.py:function``."""
    source, _, name = spec.rpartition(":")
    try:
        module = _load_file(Path(source)) if source.endswith(".py") else _load_module(source)
    except (RewardError, KeyboardInterrupt):
        raise
    except BaseException as error:  # importing runs the user's code, which may exit
        said = f"{type(error).__name__}: {reason(error)}"
        raise RewardError(f"Reward {spec}: {source} cannot be imported: {said}") from error
    function = getattr(module, name, None) if name else None
    if not callable(function):
        public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise RewardError(
            f"Reward {spec}: {source} has no function {name!r}. It has: {cut(', '.join(public), 200) or 'none'}."
        )
    return function


def _load_module(name: str) -> Any:
    if str(Path.cwd()) not in sys.path:  # an installed command does not import from the current folder
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def _load_file(path: Path) -> Any:
    if not path.is_file():
        raise RewardError(
            f"Reward file {path} does not exist (looked in {Path.cwd()}). Write it as path/file.py:function."
        )
    folder = str(path.resolve().parent)
    if folder not in sys.path:  # so that the file can import modules next to it
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(f"ppolm_reward_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look up a class's module here
    spec.loader.exec_module(module)
    return module
