"""Learning from single answers: ratings that people gave, and thumbs."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def rating_loss(scores: Tensor, ratings: Tensor) -> Tensor:
    """½ (s − z)² of each answer [A], with z the rating in standard deviations from the mean rating."""
    return (scores - ratings) ** 2 / 2


def thumb_loss(scores: Tensor, liked: Tensor) -> Tensor:
    """−log σ(s) of a liked answer, −log σ(−s) of one that was not [A]: as if compared with an answer of score 0."""
    return -logsigmoid(torch.where(liked, scores, -scores))
