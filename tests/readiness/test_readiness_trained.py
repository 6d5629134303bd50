"""Reward models that learned the wrong thing, and what their readiness reports say about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import torch

from ppolm.config import RewardConfig
from ppolm.data.examples import Preference
from ppolm.data.load_rows import load_judgements
from ppolm.data.prompts import Prompt
from ppolm.embedded.world.facts import SLOTS
from ppolm.readiness import assess, readiness_summary
from ppolm.supervised import RewardTrainer
from ppolm.supervised.tokens import encode_answers

VOCABULARY = sorted({word for values in SLOTS.values() for value in values for word in value.split()})
QUICK: dict[str, Any] = {"model_name": "embedded", "device": "cpu", "warmup_steps": 2, "eval_every": 0}


def raw_scores(trainer: RewardTrainer) -> Callable[[Sequence[Any], Sequence[str]], list[float]]:
    """Scores as in training: with the end token of the answer, and before normalisation."""
    model = trainer.model

    def score(prompts: Sequence[Any], responses: Sequence[str]) -> list[float]:
        rows = [
            encode_answers(model.setup.tokenizer, Prompt(prompt), [response])
            for prompt, response in zip(prompts, responses, strict=True)
        ]
        scores = model.scores([torch.cat([row.prompt, row.answers[0]]) for row in rows])
        return (scores * model.std + model.mean).tolist()

    return score


def length_pairs(count: int, random: Random) -> list[Preference]:
    """Random words, in which only their number determines the winner."""

    def text(length: int) -> str:
        return "".join(f" {word}" for word in random.choices(VOCABULARY, k=length))

    rows = []
    for _ in range(count):
        short, long = sorted(random.sample(range(3, 25), k=2))
        rows.append(Preference(Prompt(f"TITLE:{text(3)}\nTL;DR:"), text(long), text(short)))
    return rows


def test_a_model_that_learned_only_length_is_not_ready_for_that_reason() -> None:
    random = Random(0)
    rows, held_out = length_pairs(640, random), length_pairs(128, random)
    trainer = RewardTrainer(RewardConfig(**QUICK, learning_rate=1e-2), rows, held_out)
    trainer.train()
    readiness = assess(held_out, raw_scores(trainer))
    assert readiness.accuracy is not None
    assert readiness.accuracy.mean > 0.93
    assert readiness.verdict == "not ready"
    assert readiness.reasons[0].about == "length"
    assert "not been shown to know more than length" in readiness_summary(readiness)


def test_a_model_that_learned_random_labels_is_not_ready_because_it_guesses() -> None:
    random = Random(0)
    rows = [row for row in load_judgements("embedded:validation") if isinstance(row, Preference)]
    tossed = [
        row if random.random() < 0.5 else Preference(row.prompt, chosen=row.rejected, rejected=row.chosen)
        for row in rows
    ]
    rows, held_out = tossed[:48], tossed[128:]
    trainer = RewardTrainer(RewardConfig(**QUICK, learning_rate=1e-2, num_epochs=6, batch_size=16), rows, held_out[:16])
    # Validated on its own training rows, so that it keeps the weights that have memorised the labels.
    trainer.held_out = trainer.rows
    assert trainer.train()[-1]["accuracy"] > 0.85
    readiness = assess(held_out, raw_scores(trainer))
    assert readiness.verdict == "not ready"
    assert readiness.reasons[0].about == "accuracy"
    assert "no better than chance" in readiness_summary(readiness)
