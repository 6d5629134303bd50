"""What a component keeps from one PPO step to the next: saved in checkpoints, and used to undo an abandoned step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

State = Mapping[str, Any]
"""By name: numbers, strings, lists and mappings of them; tensors; token tables. Checkpoints can hold nothing else."""


class Stateful(Protocol):
    """A component that exposes its state, so that the code that saves it need not know what it is."""

    def state_dict(self) -> State:
        """What a checkpoint must save."""

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state."""


@runtime_checkable
class Undoable(Protocol):
    """A component whose last step can be undone without what a checkpoint needs, such as waiting for something."""

    def remember(self) -> Any:
        """What ``go_back`` needs."""

    def go_back(self, remembered: Any) -> None:
        """Undo everything since."""


class Stateless:
    """A component that has settings but no state."""

    def state_dict(self) -> State:
        """Empty: there is no state."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Nothing to restore."""
