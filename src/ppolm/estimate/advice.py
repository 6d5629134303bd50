"""What to change when a training does not fit into memory: the cheapest changes first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ppolm.base_setup.device import Precision
from ppolm.config import PPOConfig
from ppolm.estimate.memory import Memory
from ppolm.estimate.model_shape import ModelShape

GIB = 2**30
WORTH = 0.98
"""A change is named only if the peak becomes smaller than this share of what it was."""

Measure = Callable[[PPOConfig], Memory]
"""The memory of a training with other settings."""


@dataclass(frozen=True)
class Change:
    """A setting to change, in addition to those before it."""

    name: str
    value: int | str
    cost: str
    peak: int
    """The memory with this change and all before it."""

    @property
    def flag(self) -> str:
        """The change as a flag of the command."""
        flag = f"--{self.name.replace('_', '-')}"
        return flag if self.value is True else f"{flag} {self.value}"


@dataclass(frozen=True)
class Option:
    """A setting that saves memory: its values, the least change first, and what it costs."""

    name: str
    values: Sequence[int | str]
    cost: str


def options(
    config: PPOConfig, shape: ModelShape, width: int, half: Precision | None, processes: int = 1
) -> list[Option]:
    """Everything that can be changed, in the order of what it costs.

    ``width``: tokens of the longest sequence, the least that a pass can hold. ``half``: 16 bits to store the base in,
    if it is not yet.
    """
    alone = processes == 1 or config.engine == "mlx" or config.human_needs_model or config.base_bits is not None
    alone = alone or shape.packed is not None
    # Neither a sharded base nor a copy in another engine can be packed, and one that is packed stays as it is.
    packs = config.base_bits is None and shape.packed is None and alone and not config.shard_base
    packs = packs and config.engine != "mlx"
    layers = (
        []
        if config.sft_adapter is not None or config.start_from is not None
        else list(_halves(shape.trained_layers, 1))
    )
    return [
        Option("rollout_tokens", list(_halves(config.rollout_tokens, width)), "fewer answers sampled at once: time"),
        Option("microbatch_tokens", list(_halves(config.microbatch_tokens, width)), "smaller passes: time"),
        Option("gradient_checkpointing", ["on"], "blocks computed twice: about a third more time in updates"),
        Option("shard_base", [] if alone or config.shard_base else [True], "processes fetch every block in every pass"),
        Option("dtype", [] if half is None else [half], "the base is rounded to 16 bits"),
        Option("base_bits", [4] if packs else [], "the base is rounded to 4 bits; fast paths are off"),
        Option("trainable_layers", layers, "the policy can change less"),
    ]


def _halves(value: int, least: int) -> Iterator[int]:
    while value // 2 >= least:
        value //= 2
        yield value


def advise(
    config: PPOConfig, memory: Memory, available: int | None, measure: Measure, found: list[Option]
) -> list[Change]:
    """What makes a training fit, or fit without recomputed blocks; nothing if it fits as it is."""
    if available is None:
        return []
    if memory.peak > available:
        return changes(config, available, measure, found)
    if not memory.recomputes or config.gradient_checkpointing != "auto":
        return []
    keeping = dataclasses.replace(config, gradient_checkpointing="off")
    made = changes(keeping, available, measure, [one for one in found if one.name == "microbatch_tokens"])
    return made if made and made[-1].peak <= available else []


def changes(config: PPOConfig, available: int, measure: Measure, found: list[Option]) -> list[Change]:
    """The changes that make a training fit, each with the peak that it leads to; all that help if nothing suffices."""
    made: list[Change] = []
    peak = measure(config).peak
    for option in found:
        if peak <= available:
            break
        best: tuple[PPOConfig, Change] | None = None
        for value in option.values:
            changed: dict[str, Any] = {option.name: value}
            other = dataclasses.replace(config, **changed)
            change = Change(option.name, value, option.cost, measure(other).peak)
            if change.peak < (peak if best is None else best[1].peak) * WORTH:
                best = other, change
            if change.peak <= available:
                break
        if best is not None:
            config, peak = best[0], best[1].peak
            made.append(best[1])
    return made


def advice_text(made: list[Change], available: int) -> list[str]:
    """The changes as lines of text."""
    if not made:
        return ["It does not fit, and no setting saves enough: use a smaller model or a larger device."]
    lines = ["It does not fit. What to change, the cheapest first; each line counts with those above it:"]
    lines += [f"  {one.flag:32}{one.peak / GIB:8.2f}   {one.cost}" for one in made]
    if made[-1].peak > available:
        lines.append("Even that does not fit: use a smaller model, shorter texts or a larger device.")
    return lines
