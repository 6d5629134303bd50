"""What a reward model minimises: every loss by hand, and what confidence, ties, margins and centring do to it."""

from __future__ import annotations

import math

import pytest
import torch

from ppolm.data.examples import Judgement, Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.supervised.judged_answers import RatingScale, weighted_loss
from ppolm.training.preference_loss import centring_loss, preference_accuracy, preference_loss
from ppolm.training.rating_loss import rating_loss, thumb_loss

HI = Prompt("Hi")


def log_sigmoid(x: float) -> float:
    return -math.log(1 + math.exp(-x))


def loss_of(judgements: list[Judgement], scores: list[float], margin: float = 0.0, centre: float = 0.0) -> float:
    return float(weighted_loss(judgements, torch.tensor(scores), RatingScale.of(judgements), margin, centre))


def test_preference_loss_by_hand() -> None:
    loss = preference_loss(torch.tensor([0.0, 2.0, -1.0]), torch.tensor([0.0, 0.0, 1.0]))
    torch.testing.assert_close(loss, torch.tensor([0.693147, 0.126928, 2.126928]))
    assert preference_accuracy(torch.tensor([1.0, 0.0, 3.0, 0.0]), torch.tensor([0.0, 0.0, 1.0, 5.0])) == 2.5 / 4


def test_a_margin_asks_for_as_much_more() -> None:
    wanted = preference_loss(torch.tensor([0.5]), torch.tensor([0.0]))
    torch.testing.assert_close(preference_loss(torch.tensor([3.0]), torch.tensor([1.0]), margin=1.5), wanted)


def test_a_tie_pulls_both_scores_together() -> None:
    chosen = torch.tensor([1.0, -0.5, 0.0], requires_grad=True)
    loss = preference_loss(chosen, torch.zeros(3), 0.0, torch.tensor([True, True, True]))
    assert loss.tolist()[2] == pytest.approx(math.log(2))
    loss.sum().backward()
    assert chosen.grad is not None
    assert [round(float(g), 6) for g in chosen.grad] == [
        round((1 / (1 + math.exp(-x)) - 1 / (1 + math.exp(x))) / 2, 6) for x in (1.0, -0.5, 0.0)
    ]


def test_ratings_thumbs_and_centring_by_hand() -> None:
    scores = torch.tensor([1.0, -2.0])
    torch.testing.assert_close(rating_loss(scores, torch.tensor([0.0, 1.0])), torch.tensor([0.5, 4.5]))
    expected = torch.tensor([-log_sigmoid(1.0), -log_sigmoid(2.0)])
    torch.testing.assert_close(thumb_loss(scores, torch.tensor([True, False])), expected)
    centred = centring_loss(torch.tensor([3.0, 1.0]), torch.tensor([-3.0, 1.0]))
    torch.testing.assert_close(centred, torch.tensor([0.0, 4.0]))  # the gap between two answers is free


def test_scores_on_any_scale_become_deviations_from_their_mean() -> None:
    scale = RatingScale.of([Rating(HI, "a", 1.0), Rating(HI, "b", 5.0), Thumb(HI, "c", True)])
    assert (scale.mean, scale.std, scale.standard(5.0)) == (3.0, 2.0, 1.0)
    assert RatingScale.of([Rating(HI, "a", 4.0)] * 3).standard(4.0) == 0.0  # all alike: nothing to learn, no division


def test_a_mixed_batch_is_the_weighted_sum_of_its_rows() -> None:
    rows: list[Judgement] = [
        Preference(HI, "a", "b", confidence=2.0, margin=0.5),
        Rating(HI, "c", 3.0, confidence=0.5),
        Thumb(HI, "d", False),
        Preference(HI, "e", "f", tie=True),
        Rating(HI, "g", 7.0),
    ]
    first, second = [1.0, 0.2, 0.3, 0.4, -0.6], [0.1, 0.9]  # all first answers, then the second ones of the pairs
    expected = (
        -2.0 * log_sigmoid(1.0 - 0.1 - 0.5)
        + 0.5 * (0.2 + 1) ** 2 / 2
        - log_sigmoid(-0.3)
        - (log_sigmoid(0.4 - 0.9) + log_sigmoid(0.9 - 0.4)) / 2
        + (-0.6 - 1) ** 2 / 2
    )
    assert loss_of(rows, first + second) == pytest.approx(expected, rel=1e-6)
    level = 2.0 * (1.0 + 0.1) ** 2 + (0.4 + 0.9) ** 2  # of the pairs, by their confidence
    assert loss_of(rows, first + second, centre=0.1) == pytest.approx(expected + 0.1 * level, rel=1e-6)
    wider = expected + 2.0 * (log_sigmoid(0.4) - log_sigmoid(0.4 - 1.0))  # a tie asks for no margin
    assert loss_of(rows, first + second, margin=1.0) == pytest.approx(wider, rel=1e-6)
