"""How the time of a PPO step grows with prompt, response, batch, samples per prompt and layers trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

BASE = {"--shortest": 128, "--longest": 128, "--response": 32, "--batch": 16, "--samples": 1}
BATCHES = {"--shortest": 32, "--longest": 32, "--response": 16, "--minibatch": 8, "--epochs": 1, "--steps": 2}
LONG = {"--shortest": 40, "--longest": 40, "--response": 256, "--batch": 32, "--epochs": 1, "--steps": 2}
SHARED: dict[str, int | str] = {"--shape": "tiny", "--longest": 300, "--response": 2, "--steps": 2}
COMMON = ["--shape", "small", "--epochs", "2", "--steps", "3"]


@dataclass(frozen=True)
class Curve:
    """One quantity that grows, and its values."""

    name: str
    flags: tuple[str, ...]
    values: tuple[int, ...]
    peer: bool = True
    """Whether the peer has this setting; if not, its time does not depend on the value."""
    more: Mapping[str, int | str] = field(default_factory=dict)
    side: str = "ours"
    """The program that measures our side."""
    each: bool = False
    """Whether to report milliseconds per unit of the value, which should stay constant, instead of total seconds."""

    def flags_at(self, value: int) -> list[str]:
        """Flags for both sides at one point."""
        settings = {**BASE, **self.more, **dict.fromkeys(self.flags, value)}
        return [*COMMON, *(str(part) for pair in settings.items() for part in pair)]

    def figure(self, seconds: float, value: int) -> float:
        """The figure that the table shows for one point."""
        return round(1e3 * seconds / value, 3) if self.each else seconds


CURVES = (
    Curve("prompt tokens", ("--shortest", "--longest"), (64, 128, 256, 512)),
    Curve("response tokens", ("--response",), (16, 32, 64, 128)),
    Curve("responses", ("--batch",), (8, 16, 32, 64)),
    Curve("samples per prompt", ("--samples",), (1, 2, 4, 8)),
    Curve("layers trained, of 4", ("--layers",), (1, 2, 3, 4), peer=False),
    Curve("ms per response, in minibatches of 8", ("--batch",), (64, 256, 1024), False, BATCHES, each=True),
    Curve("samples per prompt of 40, 32 responses of 256", ("--samples",), (1, 4, 32), False, LONG),
    Curve("ms per prompt, 300 tokens shared", ("--batch",), (250, 500, 1000, 2000), False, SHARED, "shared", True),
)
