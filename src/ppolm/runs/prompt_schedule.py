"""Which prompts are trained on, which are held out, and which are used in each step."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ppolm.components import TextGenerator
from ppolm.config import PPOConfig
from ppolm.data.held_out_split import ENOUGH_PROMPTS, apart_from, group_by_prompt, hold_out
from ppolm.data.prompts import Prompt, as_prompts
from ppolm.errors import DataError

log = logging.getLogger(__name__)
ANSWERS = frozenset({"chosen", "rejected", "completion", "reference"})
"""Columns that hold given answers."""


@dataclass(frozen=True)
class PromptSchedule:
    """Training prompts in a fixed order per epoch: it depends only on seed and epoch, so a resume needs no state."""

    train: list[Prompt]
    held_out: list[Prompt]
    per_step: int
    num_epochs: int
    max_steps: int | None
    seed: int
    _orders: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Cached orders of the last batch's epochs: the next batch usually needs the same ones."""

    @property
    def total_steps(self) -> int:
        """PPO steps of the run. Epochs follow each other without a gap, so only the very last batch may be smaller."""
        steps = -(-self.num_epochs * len(self.train) // self.per_step)
        return steps if self.max_steps is None else min(steps, self.max_steps)

    def epoch(self, step: int) -> int:
        """The epoch in which PPO step ``step`` (from 0) begins."""
        return step * self.per_step // len(self.train)

    def batch(self, step: int) -> list[Prompt]:
        """The prompts of PPO step ``step`` (from 0)."""
        start, end = step * self.per_step, min((step + 1) * self.per_step, self.num_epochs * len(self.train))
        places = [divmod(position, len(self.train)) for position in range(start, end)]
        orders = {epoch: self._order(epoch) for epoch in dict.fromkeys(epoch for epoch, _ in places)}
        self._orders.clear()
        self._orders.update(orders)
        return [self.train[int(orders[epoch][place])] for epoch, place in places]

    def _order(self, epoch: int) -> Tensor:
        known = self._orders.get(epoch)
        return torch.randperm(len(self.train), generator=seeded(self.seed, epoch)) if known is None else known

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the prompts: a resumed run must use the same ones."""
        parts = (self.train, self.held_out)
        contents = [[[prompt.content, dict(prompt.columns)] for prompt in prompts] for prompts in parts]
        return hashlib.sha256(json.dumps(contents, default=str).encode()).hexdigest()


def seeded(*numbers: int) -> torch.Generator:
    """A random generator seeded from all the numbers."""
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def plan_prompts(
    config: PPOConfig,
    generator: TextGenerator,
    prompts: Sequence[Any],
    num_epochs: int | None,
    eval_prompts: Sequence[Any] | None,
    seen: Collection[bytes] = (),
) -> PromptSchedule:
    """Check all prompts before the first step, and hold some out if no evaluation prompts are given.

    ``seen`` are keys of prompts that the policy was trained on before: evaluations leave them out.
    """
    train, held_out = different_prompts(_fitting(as_prompts(prompts), config, generator)), list[Prompt]()
    if config.eval_every and eval_prompts is not None:
        given = different_prompts(_fitting(as_prompts(eval_prompts), config, generator))
        fair = _unseen(given, seen)
        if len(fair) < len(given):
            said = "%d of %d eval_prompts are left out: the policy that this run starts from was trained on them"
            log.warning(said, len(given) - len(fair), len(given))
        held_out = _draw(fair, config.max_eval_prompts, seeded(config.seed, -2))[1]
        train = apart_from(train, {prompt.key for prompt in given}, _key, "prompts")
    elif config.eval_every:
        count = held_out_prompts(train, config)
        held_out = _draw(_unseen(train, seen), count, seeded(config.seed, -1))[1] if count else []
        keys = {prompt.key for prompt in held_out}
        train = [prompt for prompt in train if prompt.key not in keys]
    if config.eval_every:
        _warn_of_few(held_out, config, given=eval_prompts is not None)
    num_epochs = passes(num_epochs, config, len(train))
    if num_epochs * len(train) < config.prompts_per_step:
        log.warning(
            "%d prompts do not fill a batch of %d; num_epochs can be raised",
            num_epochs * len(train),
            config.prompts_per_step,
        )
    return PromptSchedule(train, held_out, config.prompts_per_step, num_epochs, config.max_steps, config.seed)


def passes(num_epochs: int | None, config: PPOConfig, prompts: int) -> int:
    """Epochs over ``prompts`` prompts: ``num_epochs`` if set, else as many as ``max_steps`` needs, else one."""
    if num_epochs is None:
        return 1 if config.max_steps is None else -(-config.max_steps * config.prompts_per_step // prompts)
    if num_epochs < 1:
        raise DataError(f"num_epochs is {num_epochs}, expected at least 1.")
    steps = -(-num_epochs * prompts // config.prompts_per_step)
    if config.max_steps is not None and steps < config.max_steps:
        log.warning(
            "the run ends after %d steps, not max_steps %d: num_epochs is %d. Leave num_epochs out, or raise it.",
            steps,
            config.max_steps,
            num_epochs,
        )
    return num_epochs


def different_prompts(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Each prompt once: a file of comparisons has a row for every pair of answers.

    Rows without answers are duplicates only if their other columns, which go to the reward, are the same too. Of rows
    with answers (chosen, rejected, completion, reference) the first is kept: PPO samples its own answers.
    """
    kept: dict[bytes, Prompt] = {}
    for prompt in prompts:
        asks_only = not ANSWERS & prompt.columns.keys()
        columns = json.dumps(dict(prompt.columns), sort_keys=True, default=str) if asks_only else ""
        kept.setdefault(prompt.key + columns.encode(), prompt)
    return list(kept.values())


def held_out_prompts(prompts: Sequence[Prompt], config: PPOConfig) -> int:
    """How many prompts to hold out: eval_fraction of them; if they are few a larger share, up to a quarter."""
    number = len({prompt.key for prompt in prompts})
    floor = min(ENOUGH_PROMPTS, number // 4) if config.eval_fraction else 0
    return min(max(int(number * config.eval_fraction), floor), config.max_eval_prompts)


def _draw(prompts: list[Prompt], count: int, random: torch.Generator) -> tuple[list[Prompt], list[Prompt]]:
    """The remaining rows, and the rows of ``count`` randomly drawn prompts."""
    groups = group_by_prompt(prompts, _key)
    return hold_out(prompts, groups, count, random, size=lambda _: 1)


def _unseen(prompts: list[Prompt], seen: Collection[bytes]) -> list[Prompt]:
    """The prompts that can show whether a policy got better: those it was not trained on, if there are any."""
    new = [prompt for prompt in prompts if prompt.key not in seen]
    if not new:
        log.warning(
            "the policy that this run starts from was trained on all prompts that could be held out, so evaluations "
            "measure in part what it remembers. Give other eval_prompts."
        )
    return new or prompts


def _key(prompt: Prompt) -> bytes:
    return prompt.key


def _warn_of_few(held_out: Sequence[Prompt], config: PPOConfig, given: bool) -> None:
    number = len({prompt.key for prompt in held_out})
    if not number:
        log.warning("no prompts are held out (eval_fraction %g), so the run is not evaluated", config.eval_fraction)
    elif number < ENOUGH_PROMPTS:
        more = "more eval_prompts, or a higher max_eval_prompts" if given else "more prompts, or eval_prompts"
        log.warning(
            "only %d different prompts are held out, too few to tell a gain from chance: whatever happens, the verdict "
            "cannot be 'improved'. Give %s: at least %d are needed.",
            number,
            more,
            ENOUGH_PROMPTS,
        )


def _fitting(prompts: list[Prompt], config: PPOConfig, generator: TextGenerator) -> list[Prompt]:
    """The prompts that leave room for a response; longer ones raise an error or are left out, as configured."""
    fitting = []
    for number, prompt in enumerate(prompts):
        # A token is at least one byte, so most prompts are known to fit without encoding them.
        if isinstance(prompt.content, str) and generator.fits(range(len(prompt.content.encode()) + 2)):
            fitting.append(prompt)
        elif config.long_prompts == "error":
            generator.encode(prompt, number)
            fitting.append(prompt)
        elif generator.fits(generator.tokenizer.encode(prompt.content)):
            fitting.append(prompt)
    if len(fitting) < len(prompts):
        log.warning(
            "%d of %d prompts are too long for the model's context and were left out",
            len(prompts) - len(fitting),
            len(prompts),
        )
    if not fitting:
        raise DataError("No prompt leaves room for max_new_tokens in the model's context. Shorten them.")
    return fitting
