"""A user's own Python function as the reward."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ppolm.errors import RewardError
from ppolm.rewards.protocol import RewardCallError


class FunctionReward:
    """Calls ``function(prompts, responses)`` with the data columns it asks for by name, or all with ``**columns``."""

    def __init__(self, function: Callable[..., Any], name: str, timeout: float) -> None:
        self.function, self.name, self.timeout = function, name, timeout
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except ValueError:  # some built-in functions do not tell; they get no columns
            parameters = []
        self.takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        self.takes = {parameter.name for parameter in parameters}

    def __call__(self, prompts: Sequence[Any], responses: Sequence[str], **columns: Sequence[Any]) -> Any:
        """The function's own answer; what it raises is passed on, a call that takes too long is an error."""
        wanted = {name: values for name, values in columns.items() if self.takes_all or name in self.takes}
        answer: list[Any] = []
        raised: list[BaseException] = []

        def call() -> None:
            try:
                answer.append(self.function(prompts, responses, **wanted))
            except BaseException as error:
                raised.append(error)

        # Python cannot stop a running function: a daemon thread lets the run go on (or end) without it.
        thread = threading.Thread(target=call, daemon=True, name=f"reward {self.name}")
        thread.start()
        thread.join(self.timeout)
        if thread.is_alive():
            raise RewardCallError(f"Reward {self.name} took longer than reward_timeout {self.timeout:g} s.")
        if raised and not isinstance(raised[0], (Exception, KeyboardInterrupt)):
            raise RewardCallError(f"Reward {self.name} tried to end the program ({raised[0]!r}).")
        if raised:
            raise raised[0]
        return answer[0]


def load_function(spec: str) -> Callable[..., Any]:
    """The function named by ``module:function`` or ``path/file.py:function``."""
    place, _, name = spec.rpartition(":")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    except RewardError:
        raise
    except Exception as error:  # importing runs the user's code
        raise RewardError(f"Reward {spec}: {place} cannot be imported: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise RewardError(f"Reward {spec}: {place} has no function {name!r}. It has: {', '.join(public) or 'none'}.")
    return function


def _load_module(name: str) -> Any:
    if str(Path.cwd()) not in sys.path:  # an installed command does not look into the current folder by itself
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def _load_file(path: Path) -> Any:
    if not path.is_file():
        raise RewardError(
            f"Reward file {path} does not exist (looked in {Path.cwd()}). Write it as path/file.py:function."
        )
    folder = str(path.resolve().parent)
    if folder not in sys.path:  # so that the file can import its neighbours
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(f"ppolm_reward_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look a class's module up here
    spec.loader.exec_module(module)
    return module
