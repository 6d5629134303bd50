"""How the time of a PPO step grows with prompt, response, batch, samples per prompt and layers trained."""

from __future__ import annotations

from dataclasses import dataclass, field

BASE = {"--shortest": 128, "--longest": 128, "--response": 32, "--batch": 16, "--samples": 1}
COMMON = ["--shape", "small", "--epochs", "2", "--steps", "3"]


@dataclass(frozen=True)
class Curve:
    """One thing that grows, and its values."""

    name: str
    flags: tuple[str, ...]
    values: tuple[int, ...]
    peer: bool = True
    """Whether the peer has such a setting at all; where it has none, it does the same work whatever the value."""
    more: dict[str, int] = field(default_factory=dict)

    def flags_at(self, value: int) -> list[str]:
        """Flags of both sides at one point."""
        settings = BASE | self.more | dict.fromkeys(self.flags, value)
        return [*COMMON, *(str(part) for pair in settings.items() for part in pair)]


CURVES = (
    Curve("prompt tokens", ("--shortest", "--longest"), (64, 128, 256, 512)),
    Curve("response tokens", ("--response",), (16, 32, 64, 128)),
    Curve("responses", ("--batch",), (8, 16, 32, 64)),
    Curve("samples per prompt", ("--samples",), (1, 2, 4, 8)),
    Curve("layers trained, of 4", ("--layers",), (1, 2, 3, 4), peer=False),
)
