"""Reward-model training: the score of the preferred answer above that of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from ppolm.base_setup import AdapterSet, BaseModelSetup, new_lora_config
from ppolm.config import RewardConfig
from ppolm.data.examples import Preference
from ppolm.data.sequences import split_by_tokens
from ppolm.models import RewardModel
from ppolm.supervised.supervised_trainer import SupervisedTrainer
from ppolm.supervised.tokens import completion_ids, refuse_long
from ppolm.training.preference_loss import preference_accuracy, preference_loss

Pair = tuple[Tensor, Tensor]
"""Token ids of a prompt with the chosen and with the rejected answer, EOS included."""


class RewardTrainer(SupervisedTrainer[Pair]):
    """Minimises −log σ(s_chosen − s_rejected); afterwards the scores of the training answers have mean 0, deviation 1.

    The result is a folder with PEFT adapter, head and normalisation, for ``reward_model``.
    """

    name = "reward model"
    model: RewardModel

    def __init__(
        self, config: RewardConfig, rows: Sequence[Preference], held_out: Sequence[Preference] | None = None
    ) -> None:
        setup = BaseModelSetup(config)
        adapters = AdapterSet(setup)
        with torch.random.fork_rng():
            torch.manual_seed(config.seed)
            adapters.create("reward", new_lora_config(config))
            model = RewardModel(adapters, config.microbatch_tokens)
            model.head.init_reward()

        def encode(preferences: Sequence[Preference]) -> list[Pair]:
            tokens, pairs = setup.tokenizer, []
            for row in preferences:
                prompt = torch.tensor(tokens.encode(row.prompt.content))
                chosen, rejected = (
                    torch.cat([prompt, completion_ids(tokens, text)]) for text in (row.chosen, row.rejected)
                )
                pairs.append((chosen, rejected))
            refuse_long([max(map(len, pair)) for pair in pairs], setup.context_length)
            return pairs

        super().__init__(config, model, encode(rows), None if held_out is None else encode(held_out))

    def train(self) -> list[dict[str, float]]:
        """Train, then fix the scale of the scores."""
        history = super().train()
        self.model.set_scale([ids for pair in self.rows for ids in pair])
        return history

    def batch(self, rows: list[Pair]) -> tuple[Iterable[list[Pair]], Callable[[list[Pair]], Tensor]]:
        """Groups of whole pairs, and the loss of a group as its share of the mean over the batch."""
        widths = [2 * max(map(len, pair)) for pair in rows]
        groups = [[rows[i] for i in group] for group in split_by_tokens(widths, self.config.microbatch_tokens)]

        def loss(group: list[Pair]) -> Tensor:
            scores = self.model.raw_scores([ids for pair in zip(*group, strict=True) for ids in pair])
            return preference_loss(*scores.chunk(2)).sum() / len(rows)

        return groups, loss

    def measure(self) -> dict[str, float]:
        """Loss and accuracy on the held-out pairs."""
        chosen, rejected = (self.model.scores(list(side)) for side in zip(*self.held_out, strict=True))
        return {
            "loss": float(preference_loss(chosen, rejected).double().mean()),
            "accuracy": preference_accuracy(chosen, rejected),
        }
