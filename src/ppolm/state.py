"""What a component keeps from one PPO step to the next: checkpoints hold it, and it undoes an abandoned step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

State = Mapping[str, Any]
"""By name: numbers, texts, lists and mappings of them; tensors; token tables. Nothing else can be in a checkpoint."""


class Stateful(Protocol):
    """A component whose state is declared, so that the code that saves it need not know what it is."""

    def state_dict(self) -> State:
        """What a checkpoint has to keep."""

    def load_state_dict(self, state: State) -> None:
        """Continue from a checkpoint."""


class Stateless:
    """A component that is nothing but its settings."""

    def state_dict(self) -> State:
        """Nothing: there is no state."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Nothing to continue from."""
