"""Human judgements as training data of a reward model: token ids, a target and a weight."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ppolm.base_setup import BaseModelSetup
from ppolm.batches.packing import Answers
from ppolm.config import RewardConfig
from ppolm.data.examples import Judgement, Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.supervised.tokens import encode_rows
from ppolm.training.preference_loss import centring_loss, preference_loss
from ppolm.training.rating_loss import rating_loss, thumb_loss


@dataclass(frozen=True)
class JudgedAnswers:
    """A judgement and the token ids of its one or two answers."""

    tokens: Answers
    judgement: Judgement


@dataclass(frozen=True)
class RatingScale:
    """Mean and deviation of human scores: people may use any scale; the model learns z = (x − mean) / std."""

    mean: float = 0.0
    std: float = 1.0

    @classmethod
    def of(cls, judgements: Sequence[Judgement]) -> RatingScale:
        """The scale of these scores."""
        scores = [row.score for row in judgements if isinstance(row, Rating)]
        if not scores:
            return cls()
        return cls(statistics.fmean(scores), statistics.pstdev(scores) or 1.0)

    def standard(self, score: float) -> float:
        """A score in standard deviations from the mean."""
        return (score - self.mean) / self.std


def encode_judgements(
    rows: Sequence[Judgement], setup: BaseModelSetup, config: RewardConfig, room: int | None
) -> list[JudgedAnswers]:
    """The judgements that fit the model's context, as token ids."""
    return [JudgedAnswers(tokens, row) for row, tokens in encode_rows(rows, judged_texts, setup, config, room)]


def judged_texts(row: Judgement) -> tuple[Prompt, tuple[str, ...]]:
    return row.prompt, tuple(row.answers.values())


def judgement_numbers(row: Judgement) -> list[float]:
    """The content of a judgement as numbers."""
    values = dataclasses.asdict(row)
    return [float(values.get(name, 0)) for name in ("tie", "confidence", "margin", "score", "label")]


def weighted_loss(
    judgements: Sequence[Judgement], scores: Tensor, scale: RatingScale, margin: float, centre_coef: float
) -> Tensor:
    """Σ confidence · loss; ``scores`` are raw, of all first (or only) answers followed by all second ones."""
    total = scores.new_zeros(())
    pairs = {i: row for i, row in enumerate(judgements) if isinstance(row, Preference)}
    ratings = {i: row for i, row in enumerate(judgements) if isinstance(row, Rating)}
    thumbs = {i: row for i, row in enumerate(judgements) if isinstance(row, Thumb)}
    if pairs:
        margins = scores.new_tensor([margin + row.margin for row in pairs.values()])
        ties = torch.tensor([row.tie for row in pairs.values()], device=scores.device)
        chosen, rejected = scores[list(pairs)], scores[len(judgements) :]
        losses = preference_loss(chosen, rejected, margins, ties)
        if centre_coef:
            losses = losses + centre_coef * centring_loss(chosen, rejected)
        total = total + _weighted(losses, pairs.values())
    if ratings:
        targets = scores.new_tensor([scale.standard(row.score) for row in ratings.values()])
        total = total + _weighted(rating_loss(scores[list(ratings)], targets), ratings.values())
    if thumbs:
        liked = torch.tensor([row.label for row in thumbs.values()], device=scores.device)
        total = total + _weighted(thumb_loss(scores[list(thumbs)], liked), thumbs.values())
    return total


def _weighted(losses: Tensor, rows: Iterable[Judgement]) -> Tensor:
    return (losses.new_tensor([row.confidence for row in rows]) * losses).sum()
