"""Reward-model training: scores that agree with people's preferences, scores and thumbs."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ppolm.base_setup import AdapterSet, BaseModelSetup, new_lora_config
from ppolm.base_setup.recomputation import plan_recomputation
from ppolm.batches.packing import Answers
from ppolm.batches.sequences import Microbatch, TokenSequences
from ppolm.config import RewardConfig
from ppolm.data.examples import Demonstration, Judgement, Preference, Rating
from ppolm.errors import DataError
from ppolm.models import RewardModel
from ppolm.storage.starting_point import starting_adapter
from ppolm.supervised.head_fit import fit_head
from ppolm.supervised.judged_answers import (
    JudgedAnswers,
    RatingScale,
    encode_judgements,
    judged_texts,
    judgement_numbers,
    weighted_loss,
)
from ppolm.supervised.supervised_trainer import SupervisedTrainer
from ppolm.supervised.tokens import encode_rows, prompt_room
from ppolm.training.preference_loss import preference_accuracy

log = logging.getLogger(__name__)
Part = tuple[list[int], Callable[[], Tensor]]
"""Indices of some rows, and a forward pass that gives the last states of all their first, then second answers."""


class RewardTrainer(SupervisedTrainer[JudgedAnswers]):
    """Bradley-Terry on preferences, regression on scores, logistic loss on thumbs, weighted by confidence.

    Scores are then normalised to mean 0 and deviation 1 on reference responses. The result is a folder with PEFT
    adapter, head and normalisation, for ``reward_model``.
    """

    name = "reward model"
    model: RewardModel
    config: RewardConfig

    def __init__(
        self,
        config: RewardConfig,
        rows: Sequence[Judgement],
        held_out: Sequence[Judgement] | None = None,
        references: Sequence[Demonstration] = (),
    ) -> None:
        start = starting_adapter(config) or config.sft_adapter
        setup = BaseModelSetup(config)
        self.scale = RatingScale.of(rows)
        room = prompt_room(rows, judged_texts, setup, config)
        self.references = [answers for _, answers in encode_rows(references, _demonstration, setup, config, room)]
        super().__init__(
            config,
            new_reward_model(config, setup, start),
            encode_judgements(rows, setup, config, room),
            None if held_out is None else encode_judgements(held_out, setup, config, room),
        )
        self.model.max_tokens, self.model.max_prompt_tokens = config.max_tokens, room
        self.mean_confidence = mean_confidence(self.rows, "training")
        mean_confidence(self.held_out, "validation")
        if len(self.references) == 1:
            raise DataError("reference_data holds one row, too few for a scale of scores. Give at least two.")

    def answers_of(self, row: JudgedAnswers) -> Answers:
        """Token ids of one or two answers."""
        return row.tokens

    def prompt_key(self, row: JudgedAnswers) -> bytes:
        """The key of the judged prompt."""
        return row.judgement.prompt.key

    def numbers_of(self, row: JudgedAnswers) -> list[float]:
        """Token ids and the judgement."""
        return [*row.tokens.numbers(), *judgement_numbers(row.judgement)]

    def train(self, checkpoint: Path | None = None) -> list[dict[str, float]]:
        """Train, then set the scale of the scores."""
        history = super().train(checkpoint)
        sources = self.references or [row.tokens for row in self.rows]
        pairs = [(one.prompt, answer) for one in sources for answer in one.answers]
        count = self.config.max_reference_rows
        if count is not None and len(pairs) > count:
            random = torch.Generator().manual_seed(self.config.seed)
            pairs = [pairs[i] for i in torch.randperm(len(pairs), generator=random)[:count].tolist()]
        self.model.set_scale(TokenSequences(*zip(*pairs, strict=True)))
        return history

    def batch(self, rows: list[JudgedAnswers]) -> tuple[Iterable[Part], Callable[[Part], Tensor]]:
        """Groups of whole rows, and the loss of a group as its share of the weighted mean over the batch."""
        # Divided by the mean confidence of all rows, not of the batch: a batch of uncertain judgements counts less.
        weights = len(rows) * self.mean_confidence

        def loss(part: Part) -> Tensor:
            return self._loss([rows[i] for i in part[0]], self.model.head(part[1]())) / weights

        return self._parts(rows), loss

    def begin(self) -> None:
        """Fit the head to the untrained states if ``head_init`` is "fit"."""
        if self.config.head_init == "fit":
            with self.model.active():
                problems = (*self._problem(self.rows), *self._problem(self.held_out))
            loss, penalty = fit_head(self.model.head, *problems)
            log.info("Head fitted to the untrained states: validation loss %.4f at penalty %g.", loss, penalty)

    @torch.no_grad()
    def _problem(self, rows: Sequence[JudgedAnswers]) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Last states of all first, then all second answers of the rows, and the mean loss as a function of scores."""
        numbers, firsts, seconds = [], [], []
        own = [(part, read().cpu()) for part, read in self._parts(rows)]
        device = self.model.setup.device
        for part, states in (one for share in self.ranks.gather(own) for one in share):
            numbers += part
            firsts.append(states[: len(part)].to(device))
            seconds.append(states[len(part) :].to(device))
        read_rows = [rows[i] for i in numbers]
        weights = sum(row.judgement.confidence for row in rows)
        return torch.cat([*firsts, *seconds]), lambda scores: self._loss(read_rows, scores) / weights

    def _loss(self, rows: Sequence[JudgedAnswers], scores: Tensor) -> Tensor:
        judgements = [row.judgement for row in rows]
        return weighted_loss(judgements, scores, self.scale, self.config.margin, self.config.centre_coef)

    def microbatches(self, rows: Sequence[JudgedAnswers]) -> Iterable[Microbatch]:
        """Forward passes with both answers of a row together, sharing a prompt between answers where cheaper."""
        return self.model.passes([row.tokens for row in rows], self.config.microbatch_tokens, "ends")

    def _parts(self, rows: Sequence[JudgedAnswers]) -> Iterator[Part]:
        owners = [(i, number) for i, row in enumerate(rows) for number in range(len(row.tokens.answers))]
        for batch in self.microbatches(rows):
            position = {owners[answer]: at for at, answer in enumerate(batch.rows.tolist())}
            present = sorted(i for i, number in position if number == 0)
            order = [position[i, number] for number in (0, 1) for i in present if (i, number) in position]
            yield present, partial(self._states, batch, order)

    def _states(self, batch: Microbatch, order: list[int]) -> Tensor:
        return self.model.states(batch)[order]

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Loss on the held-out rows; accuracy on their preferences, correlation with their scores."""
        # moved to the CPU to be summed in float64, which Apple's devices do not have
        own = [(part, self.model.head(states()).cpu()) for part, states in self._parts(self.held_out)]
        shares = self.ranks.gather(own)
        parts = [([self.held_out[i] for i in part], scores) for share in shares for part, scores in share]
        weights = sum(row.judgement.confidence for row in self.held_out)
        numbers = {"loss": float(sum(self._loss(rows, scores).double() for rows, scores in parts)) / weights}
        differences, pairs = [], []
        for rows, scores in parts:
            seconds = iter(scores[len(rows) :])
            for row, first in zip(rows, scores, strict=False):
                judgement = row.judgement
                if isinstance(judgement, Preference):
                    difference = first - next(seconds)
                    differences += [] if judgement.tie else [difference]
                elif isinstance(judgement, Rating):
                    pairs.append((float(first), judgement.score))
        if differences:
            gaps = torch.stack(differences)
            numbers["accuracy"] = preference_accuracy(gaps, torch.zeros_like(gaps))
        if len(pairs) > 1:
            correlation = torch.corrcoef(torch.tensor(pairs, dtype=torch.float64).T)[0, 1]
            numbers["correlation"] = float(correlation.nan_to_num())
        return numbers

    def readable(self, rows: Sequence[Judgement]) -> list[Judgement]:
        """The rows that fit the model, by the same rules as training rows."""
        room = self.model.max_prompt_tokens
        return [row.judgement for row in encode_judgements(rows, self.model.setup, self.config, room)] if rows else []

    def prompts_seen(self, rows: Sequence[Judgement]) -> int:
        """Number of rows whose prompt was trained on."""
        seen = set(map(self.prompt_key, self.rows))
        return sum(row.prompt.key in seen for row in rows)

    def about(self) -> dict[str, Any]:
        """How the model was trained, with the scale of the human scores."""
        return super().about() | {"rating_scale": {"mean": self.scale.mean, "std": self.scale.std}}


def new_reward_model(config: RewardConfig, setup: BaseModelSetup, start: str | Path | None) -> RewardModel:
    """A reward model with a new adapter or a copy of a stored one, and a new head."""
    adapters = AdapterSet(setup)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        if start is None:
            adapters.create("reward", new_lora_config(config, setup.causal_lm))
        else:
            adapters.load("reward", start)
        adapters.share_trunk(["reward"], config.trunk_mib)
        plan_recomputation(adapters, ["reward"], config)
        model = RewardModel(adapters, config.microbatch_tokens)
        model.head.init_reward()
    return model


def mean_confidence(rows: Sequence[JudgedAnswers], name: str) -> float:
    """Mean confidence of some rows; raises if all are 0."""
    mean = statistics.fmean(row.judgement.confidence for row in rows)
    if not mean:
        raise DataError(f"All {len(rows)} {name} rows have confidence 0, so they say nothing. Raise some of them.")
    return mean


def _demonstration(row: Demonstration) -> Any:
    return row.prompt, (row.completion,)
