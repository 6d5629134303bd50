"""SFT and reward-model training: the loss is correct, training learns, keeps the best weights, and the result loads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup import BaseModelSetup
from ppolm.base_setup.model_setup import setup_models
from ppolm.config import PPOConfig, RewardConfig, SFTConfig
from ppolm.data.examples import Demonstration
from ppolm.data.load_rows import load_demonstrations, load_judgements
from ppolm.data.prompts import Prompt
from ppolm.errors import DataError
from ppolm.supervised import RewardTrainer, SFTTrainer
from tests.closeness import assert_all_rounding, near
from tests.supervised.small_trainings import DEMONSTRATIONS, PREFERENCES, QUICK, sequences_of


def sft(model: Path, **changes: Any) -> SFTTrainer:
    return SFTTrainer(SFTConfig(model_name=str(model), **QUICK | changes), DEMONSTRATIONS)


def reward(model: Path, **changes: Any) -> RewardTrainer:
    return RewardTrainer(RewardConfig(model_name=str(model), **QUICK | changes), PREFERENCES)


@pytest.mark.parametrize("train", ["adapter", "all"])
def test_sft_lowers_the_loss_of_completions_it_has_not_seen(model_folder: Path, train: str) -> None:
    trainer = sft(model_folder, train=train)
    seen = {tuple(row.tokens.prompt.tolist()) for row in trainer.rows}
    assert not seen & {tuple(row.tokens.prompt.tolist()) for row in trainer.held_out}
    history = trainer.train()
    assert history[-1]["loss"] < 0.75 * history[0]["loss"]


def test_the_first_validation_loss_is_that_of_the_untouched_model(model_folder: Path) -> None:
    trainer = sft(model_folder)
    setup = BaseModelSetup(PPOConfig(model_name=str(model_folder), device="cpu"))
    total, count = 0.0, 0
    for prompt, (completion,) in [(row.tokens.prompt, row.tokens.answers) for row in trainer.held_out]:
        logits = setup.causal_lm(input_ids=torch.cat([prompt, completion])[None]).logits[0].log_softmax(-1)
        for position, token in enumerate(completion.tolist()):  # prompt tokens are not targets
            total -= float(logits[len(prompt) - 1 + position, token])
            count += 1
    assert trainer.measure()["loss"] == near(total / count)


@pytest.mark.usefixtures("always_packed")
@pytest.mark.parametrize("make", [sft, reward])
def test_gradients_depend_neither_on_microbatches_nor_on_packing(model_folder: Path, make: Callable[..., Any]) -> None:
    def gradients(tokens: int, packing: bool) -> dict[str, torch.Tensor]:
        trainer = make(model_folder, microbatch_tokens=tokens, packing=packing)
        assert trainer.packing is packing
        microbatches, loss = trainer.batch(trainer.rows[:8])
        with trainer.model.active(trainable=True):
            for batch in microbatches:
                loss(batch).backward()
        return {name: value.grad for name, value in trainer.model.parameters().items() if value.grad is not None}

    whole = gradients(100_000, packing=False)
    assert whole
    for other in (gradients(60, packing=False), gradients(100_000, packing=True), gradients(60, packing=True)):
        assert_all_rounding(other, whole)


@pytest.mark.parametrize("make", [sft, reward])
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(
    model_folder: Path, make: Callable[..., Any]
) -> None:
    def weights(seed: int) -> torch.Tensor:
        trainer = make(model_folder, seed=seed, num_epochs=1, lora_dropout=0.1)
        trainer.train()
        return torch.cat([value.detach().flatten() for value in trainer.model.parameters().values()])

    first = weights(0)
    assert torch.equal(first, weights(0))
    assert not torch.equal(first, weights(1))


CHANGES: dict[str, Any] = {
    "learning_rate": 1e-3,
    "lr_schedule": "linear",
    "warmup_steps": 3,
    "weight_decay": 1.0,
    "adam_eps": 1e-2,
    "max_grad_norm": 1e-3,
    "batch_size": 4,
    "num_epochs": 2,
    "eval_fraction": 0.5,
    "lora_r": 8,
    "lora_alpha": 16,
    "lora_dropout": 0.5,
    "lora_target_modules": ("q_proj",),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_setting_of_the_optimisation_acts(model_folder: Path, name: str) -> None:
    def weights(**changes: Any) -> torch.Tensor:
        trainer = sft(model_folder, **{"num_epochs": 1, "eval_every": 0, "warmup_steps": 1, **changes})
        trainer.train()
        return torch.cat([value.detach().flatten() for value in trainer.model.parameters().values()])

    plain, changed = weights(), weights(**{name: CHANGES[name]})
    assert plain.shape != changed.shape or not torch.equal(plain, changed)


def test_validation_rows_can_be_given_and_are_limited(model_folder: Path) -> None:
    config = SFTConfig(model_name=str(model_folder), **QUICK | {"max_eval_rows": 3, "num_epochs": 1, "eval_every": 0})
    trainer = SFTTrainer(config, DEMONSTRATIONS[:20], DEMONSTRATIONS[20:])
    assert (len(trainer.rows), len(trainer.held_out)) == (20, 3)
    assert [row["step"] for row in trainer.train()] == [0, 3]


def test_the_best_weights_are_kept_and_patience_ends_the_training(model_folder: Path) -> None:
    trainer = sft(model_folder, learning_rate=0.0, patience=2, num_epochs=50)
    losses = iter([3.0, 2.0, 2.5, 2.6, 0.1])
    states: list[torch.Tensor] = []

    def measure() -> dict[str, float]:
        with torch.no_grad():
            for value in trainer.model.parameters().values():
                value.add_(1.0)
        states.append(next(iter(trainer.model.parameters().values())).detach().clone())
        return {"loss": next(losses)}

    trainer.measure = measure  # type: ignore[method-assign]
    history = trainer.train()
    assert [row["loss"] for row in history] == [3.0, 2.0, 2.5, 2.6]
    assert torch.equal(next(iter(trainer.model.parameters().values())), states[1])


def test_an_sft_adapter_is_the_policys_start_and_reference(model_folder: Path, tmp_path: Path) -> None:
    trainer = sft(model_folder)
    trainer.train()
    trainer.save(tmp_path / "sft")
    models = setup_models(PPOConfig(model_name=str(model_folder), sft_adapter=str(tmp_path / "sft"), device="cpu"))
    trained = trainer.model.parameters()
    for role in (models.policy, models.sft):
        loaded = role.parameters()
        assert len(loaded) == len(trained)
        assert all(torch.equal(one, other) for one, other in zip(loaded.values(), trained.values(), strict=True))
    about = json.loads((tmp_path / "sft" / "training.json").read_text())
    assert about["validation"] == trainer.history


def test_a_fully_trained_model_is_a_model_folder(model_folder: Path, tmp_path: Path) -> None:
    trainer = sft(model_folder, train="all", num_epochs=1)
    trainer.train()
    trainer.save(tmp_path / "model")
    setup = BaseModelSetup(PPOConfig(model_name=str(tmp_path / "model"), device="cpu"))
    trained, loaded = trainer.model.parameters(), dict(setup.causal_lm.named_parameters())
    assert trained.keys() == loaded.keys()
    assert all(torch.equal(trained[name], loaded[name]) for name in trained)
    untouched = BaseModelSetup(PPOConfig(model_name=str(model_folder), device="cpu")).causal_lm.named_parameters()
    assert not all(torch.equal(value, trained[name]) for name, value in untouched)


def test_a_reward_model_learns_and_its_scores_are_normalised_wherever_it_is_loaded(
    model_folder: Path, tmp_path: Path
) -> None:
    trainer = reward(model_folder)
    history = trainer.train()
    assert history[-1]["accuracy"] == 1.0
    assert history[-1]["loss"] < 0.3 * history[0]["loss"]
    trainer.save(tmp_path / "reward")
    config = PPOConfig(model_name=str(model_folder), reward_model=(str(tmp_path / "reward"),), device="cpu")
    loaded = setup_models(config).reward
    assert loaded is not None
    assert loaded.trained
    sequences = sequences_of(trainer)
    scores = loaded.scores(sequences)
    torch.testing.assert_close(scores, trainer.model.scores(sequences))
    assert float(scores.mean()) == near(0.0)
    assert float(scores.std()) == pytest.approx(1.0, abs=1e-3)


def test_training_with_gradients_and_scoring_without_read_the_same_place(model_folder: Path) -> None:
    trainer = reward(model_folder)
    rows = trainer.rows[:5]
    sequences = [torch.cat([row.tokens.prompt, answer]) for row in rows for answer in row.tokens.answers]
    scores = trainer.model.scores(sequences)
    read = torch.full((len(rows), 2), torch.nan)
    with trainer.model.active(trainable=True):
        for part, states in trainer._parts(rows):
            read[part] = trainer.model.head(states()).detach().view(2, -1).T
    torch.testing.assert_close(read.flatten(), scores)


def test_the_frozen_base_stays_as_it_is(model_folder: Path) -> None:
    trainer = reward(model_folder, num_epochs=1)
    base = {
        name: value.clone() for name, value in trainer.model.setup.causal_lm.named_parameters() if "lora" not in name
    }
    trainer.train()
    after = dict(trainer.model.setup.causal_lm.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in base.items())


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"prompt": "Hi"}, r"line 2, has no column 'completion'. It has: prompt"),
        ({"prompt": "Hi", "completion": " "}, r"line 2, has ' ' as its 'completion', expected text"),
        ({"prompt": "", "completion": "ho"}, r"line 2, is empty"),
    ],
)
def test_a_bad_demonstration_is_named_with_its_line(tmp_path: Path, row: dict[str, str], complaint: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in ({"prompt": "Hi", "completion": "ho"}, row)))
    with pytest.raises(DataError, match=complaint):
        load_demonstrations(str(path))


def test_a_preference_of_a_text_over_itself_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "Hi", "chosen": "ho", "rejected": "ho"}))
    with pytest.raises(DataError, match="line 1, prefers a text to itself"):
        load_judgements(str(path))


def test_rows_longer_than_the_context_and_too_few_rows_are_errors(model_folder: Path) -> None:
    long = [Demonstration(Prompt("x" * 5000), "y")] * 3
    with pytest.raises(
        DataError, match=r"Row 1 has .* tokens, more than the 128 that max_tokens or the model's context"
    ):
        SFTTrainer(SFTConfig(model_name=str(model_folder), device="cpu"), long)
    with pytest.raises(DataError, match="1 rows with 1 different prompts are too few"):
        SFTTrainer(SFTConfig(model_name=str(model_folder), device="cpu"), DEMONSTRATIONS[:1])


def test_dropout_is_on_in_updates_and_off_in_validation(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = sft(model_folder, num_epochs=1, lora_dropout=0.5)
    modes: list[tuple[str, bool]] = []
    causal_lm = trainer.model.setup.causal_lm

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            modes.append((name, causal_lm.training))
            return function(*arguments)

        return call

    monkeypatch.setattr(trainer.updater, "update", watched("update", trainer.updater.update))
    monkeypatch.setattr(trainer, "measure", watched("measure", trainer.measure))
    trainer.train()
    assert {mode for name, mode in modes if name == "update"} == {True}
    assert {mode for name, mode in modes if name == "measure"} == {False}
