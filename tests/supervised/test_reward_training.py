"""Reward models from every kind of judgement: each kind is learned, and each setting has its documented effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup.model_setup import setup_models
from ppolm.config import PPOConfig, RewardConfig, SFTConfig
from ppolm.data.examples import Demonstration, Judgement, Preference
from ppolm.data.prompts import Prompt
from ppolm.errors import ConfigError, DataError
from ppolm.supervised import RewardTrainer, SFTTrainer
from tests.closeness import assert_rounding, near
from tests.supervised.small_trainings import DEMONSTRATIONS, PREFERENCES, QUICK, RATINGS, THUMBS, sequences_of

HELD_OUT = [Preference(Prompt(f"Be good {number}:"), f" good {number}", f" bad {number}") for number in range(12)]


def train(model: Path, rows: list[Any], **changes: Any) -> RewardTrainer:
    trainer = RewardTrainer(RewardConfig(model_name=str(model), **QUICK | changes), rows)
    trainer.train()
    return trainer


def kind_minus_rude(trainer: RewardTrainer, prompt: str = "Be kind 99:") -> float:
    kind, rude = trainer.model([prompt] * 2, [" kind 99", " rude 99"])
    return kind - rude


@pytest.mark.parametrize("rows", [RATINGS, THUMBS, [*PREFERENCES[:20], *RATINGS[:20], *THUMBS[:20]]])
def test_scores_thumbs_and_mixtures_are_learned(model_folder: Path, rows: list[Any]) -> None:
    trainer = train(model_folder, rows)
    assert trainer.history[-1]["loss"] < 0.5 * trainer.history[0]["loss"]
    assert kind_minus_rude(trainer, "Rate 99:") > 1.0


def test_predicted_scores_are_on_the_scale_of_peoples_scores(model_folder: Path, tmp_path: Path) -> None:
    trainer = train(model_folder, RATINGS)
    assert trainer.history[-1]["correlation"] > 0.9
    trainer.save(tmp_path / "reward")
    scale = json.loads((tmp_path / "reward" / "training.json").read_text())["rating_scale"]
    assert scale == {"mean": 5.5, "std": 3.5}
    raw = trainer.model.scores(sequences_of(trainer)) * trainer.model.std + trainer.model.mean
    people = torch.tensor([row.judgement.score for row in trainer.rows])  # type: ignore[union-attr]
    assert float((raw * scale["std"] + scale["mean"] - people).abs().mean()) < 1.0


def test_judgements_without_confidence_teach_nothing(model_folder: Path) -> None:
    liars = [Preference(row.prompt, row.rejected, row.chosen, confidence=0.0) for row in PREFERENCES]
    assert kind_minus_rude(train(model_folder, [*PREFERENCES, *liars])) > 1.0
    config = RewardConfig(model_name=str(model_folder), **QUICK)
    with pytest.raises(DataError, match="All 36 training rows have confidence 0"):
        RewardTrainer(config, liars)
    with pytest.raises(DataError, match="All 40 validation rows have confidence 0"):
        RewardTrainer(config, HELD_OUT, liars)


def test_a_doubtful_judgement_counts_less_whatever_its_batch_mates(model_folder: Path) -> None:
    sure = Preference(Prompt("Be kind:"), " kind", " rude")
    doubtful = Preference(Prompt("Be good:"), " good", " bad", confidence=0.25)
    config = RewardConfig(model_name=str(model_folder), **QUICK | {"batch_size": 1})
    trainer = RewardTrainer(config, [sure, doubtful], PREFERENCES)

    def loss(row: int) -> float:
        parts, loss = trainer.batch([trainer.rows[row]])
        return sum(float(loss(part).detach()) for part in parts)

    unweighted = [
        float(-torch.nn.functional.logsigmoid(torch.tensor(chosen - rejected)))
        for chosen, rejected in (
            trainer.model.score_texts([row.prompt.content] * 2, [row.chosen, row.rejected]) for row in (sure, doubtful)
        )
    ]
    assert loss(0) == near(unweighted[0] / 0.625)  # the mean confidence is 0.625
    assert loss(1) == near(0.25 * unweighted[1] / 0.625)


def test_ties_make_two_answers_equal(model_folder: Path) -> None:
    ties = [Preference(row.prompt, row.chosen, row.rejected, tie=True) for row in PREFERENCES]
    trainer = RewardTrainer(RewardConfig(model_name=str(model_folder), **QUICK), ties)
    with torch.no_grad():
        trainer.model.head.linear.weight.mul_(20)  # far apart at the start

    def gap() -> float:
        raw = trainer.model.scores(sequences_of(trainer)) * trainer.model.std
        return float((raw[::2] - raw[1::2]).abs().mean())

    before = gap()
    trainer.train()
    assert "accuracy" not in trainer.history[-1]  # ties have no winner
    assert gap() < 0.2 * before


@pytest.mark.parametrize("change", [{"margin": 2.0}, {"centre_coef": 1.0}])
def test_margin_and_centring_act(model_folder: Path, change: dict[str, float]) -> None:
    plain, changed = train(model_folder, PREFERENCES), train(model_folder, PREFERENCES, **change)

    def raw(trainer: RewardTrainer) -> torch.Tensor:
        return trainer.model.scores(sequences_of(trainer)) * trainer.model.std + trainer.model.mean

    if "margin" in change:
        gap = [float((scores[::2] - scores[1::2]).mean()) for scores in (raw(plain), raw(changed))]
        assert gap[1] > gap[0] + 0.5
    else:
        assert float(raw(changed).abs().mean()) < 0.5 * float(raw(plain).abs().mean())


def test_a_reward_model_can_start_from_the_sft_adapter(model_folder: Path, tmp_path: Path) -> None:
    sft = SFTTrainer(SFTConfig(model_name=str(model_folder), **QUICK), DEMONSTRATIONS)
    sft.train()
    sft.save(tmp_path / "sft")
    config = RewardConfig(model_name=str(model_folder), **QUICK | {"lora_r": 2}, sft_adapter=str(tmp_path / "sft"))
    trainer = RewardTrainer(config, PREFERENCES)
    start = [value for name, value in trainer.model.parameters().items() if not name.startswith("head.")]
    assert all(torch.equal(*pair) for pair in zip(start, sft.model.parameters().values(), strict=True))
    trainer.train()
    assert trainer.history[-1]["accuracy"] == 1.0


def test_references_decide_where_zero_is(model_folder: Path) -> None:
    config = RewardConfig(model_name=str(model_folder), **QUICK)
    references = [Demonstration(Prompt(f"Be kind {number}:"), f" kind {number}") for number in range(8)]
    trainer = RewardTrainer(config, PREFERENCES, references=references)
    trainer.train()
    ids = [torch.cat([one.prompt, one.answers[0]]) for one in trainer.references]
    assert float(trainer.model.scores(ids).mean()) == near(0.0)
    assert kind_minus_rude(trainer) > 0
    assert float(trainer.model.scores(sequences_of(trainer)).mean()) < -0.5  # half of them are rude


def test_a_single_reference_is_refused_before_the_training(model_folder: Path) -> None:
    with pytest.raises(ConfigError, match="max_reference_rows is 1, expected at least 2"):
        RewardConfig(max_reference_rows=1)
    with pytest.raises(DataError, match="reference_data holds one row"):
        RewardTrainer(RewardConfig(model_name=str(model_folder), **QUICK), PREFERENCES, references=DEMONSTRATIONS[:1])


def test_few_references_are_enough_if_asked_for(model_folder: Path) -> None:
    counts = [train(model_folder, PREFERENCES, num_epochs=1, max_reference_rows=n).model.mean for n in (4, None)]
    assert counts[0] != counts[1]


LONG = [Preference(Prompt("x" * 30 + f"{number}:"), " kind", " rude") for number in range(10)]


def test_long_rows_are_refused_left_out_or_cut(model_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    def make(**changes: Any) -> RewardTrainer:
        config = RewardConfig(model_name=str(model_folder), **QUICK | {"max_tokens": 20} | changes)
        return RewardTrainer(config, [*PREFERENCES[:10], *LONG])

    with pytest.raises(DataError, match=r"Row 11 has 38 tokens, more than the 20 .* long_rows"):
        make()
    with pytest.raises(DataError, match="Every row is longer than 5 tokens"):
        make(long_rows="skip", max_tokens=5)
    assert len(make(long_rows="skip").rows) == 9
    assert "0 of 20 prompts were cut, and 10 rows left out, to stay in 20 tokens" in caplog.text
    trainer = make(long_rows="cut")
    assert len(trainer.rows) == 18
    assert max(len(row.tokens.prompt) for row in trainer.rows) == 12  # the longest answer takes 8


def test_a_reward_model_reads_no_more_in_ppo_than_in_its_training(model_folder: Path, tmp_path: Path) -> None:
    trainer = train(model_folder, LONG * 2, max_tokens=20, long_rows="cut", num_epochs=1)
    trainer.save(tmp_path / "reward")
    config = PPOConfig(model_name=str(model_folder), reward_model=(str(tmp_path / "reward"),), device="cpu")
    loaded = setup_models(config).reward
    assert loaded is not None
    assert (loaded.max_tokens, loaded.max_prompt_tokens) == (20, 14)  # " kind" and its end token take 6
    prompts = ["x" * 7 + middle * 40 + "x" * 7 for middle in "yz"]
    same = loaded(prompts, [" kind"] * 2)
    assert same[0] == near(same[1])
    assert {len(loaded.encode(prompts[0], text).prompt) for text in (" kind", " k", "")} == {14}


def test_rows_of_one_prompt_are_not_parted_between_training_and_validation(model_folder: Path) -> None:
    rows = [
        Preference(Prompt(f"Be kind {number}:"), f" kind {again}", f" rude {again}")
        for number in range(8)
        for again in range(5)
    ]
    trainer = RewardTrainer(RewardConfig(model_name=str(model_folder), **QUICK | {"eval_fraction": 0.3}), rows)
    prompts = [{tuple(row.tokens.prompt.tolist()) for row in part} for part in (trainer.rows, trainer.held_out)]
    assert not prompts[0] & prompts[1]
    assert (len(trainer.rows), len(trainer.held_out)) == (30, 10)  # at most 0.3 of the rows


def test_a_prompt_with_most_of_the_rows_is_trained_on(model_folder: Path) -> None:
    crowd = [Preference(Prompt("Be kind:"), f" kind {i}", f" rude {i}") for i in range(60)]
    for seed in range(3):
        trainer = RewardTrainer(RewardConfig(model_name=str(model_folder), **QUICK, seed=seed), [*crowd, *PREFERENCES])
        assert (len(trainer.rows), len(trainer.held_out)) == (90, 10)


def test_validation_rows_come_from_all_over_a_long_file(model_folder: Path) -> None:
    config = RewardConfig(model_name=str(model_folder), **QUICK, max_eval_rows=10)
    held_out = RewardTrainer(config, HELD_OUT, PREFERENCES).held_out
    numbers = [int(str(row.judgement.prompt.content)[8:-1]) for row in held_out]
    assert len(numbers) == 10
    assert max(numbers) > 20


@pytest.mark.parametrize("window", [None, 8])
def test_raw_scores_of_texts_are_those_before_normalisation(model_folder: Path, window: int | None) -> None:
    trainer = train(model_folder, PREFERENCES, num_epochs=1)
    trainer.model.setup.text_config.sliding_window = window  # then texts are scored one by one
    texts = ["Be kind 1:", "Be kind 2:", "Be kind 1:"], [" kind 1", " rude 2", " rude 1"]
    normal = [score * trainer.model.std + trainer.model.mean for score in trainer.model(*texts)]
    assert trainer.model.score_texts(*texts) == near(normal)


def test_plain_text_is_read_as_a_whole_answer(model_folder: Path) -> None:
    trainer = train(model_folder, PREFERENCES, num_epochs=1)
    first = trainer.rows[0]
    assert isinstance(first.judgement, Preference)
    prompt, text = first.judgement.prompt.content, first.judgement.chosen
    learned = trainer.model.scores([torch.cat([first.tokens.prompt, first.tokens.answers[0]])]).tolist()
    assert trainer.model([prompt], [text]) == pytest.approx(learned)
    assert trainer.model([prompt], [f"{text}<eos>"]) == pytest.approx(learned)  # an existing end token is not doubled


SEVERAL: list[Judgement] = [
    Preference(Prompt(f"Be kind {number}:"), f" kind {again}", f" rude {again % 2}")
    for number in range(6)
    for again in range(4)
]


def test_rows_about_one_prompt_give_the_same_gradients_together(model_folder: Path) -> None:
    def gradients(packing: bool) -> list[torch.Tensor]:
        trainer = RewardTrainer(RewardConfig(model_name=str(model_folder), **QUICK, packing=packing), SEVERAL, HELD_OUT)
        parts, loss = trainer.batch(trainer.rows)
        with trainer.model.active(trainable=True):
            for part in parts:
                loss(part).backward()
        return [value.grad for value in trainer.model.parameters().values() if value.grad is not None]

    for together, apart in zip(gradients(True), gradients(False), strict=True):
        assert_rounding(together, apart)


@pytest.mark.parametrize(("shuffle", "prompts"), [("prompts", 2), ("rows", 5)])
def test_batches_hold_whole_prompts_unless_rows_are_shuffled(model_folder: Path, shuffle: Any, prompts: int) -> None:
    config = RewardConfig(model_name=str(model_folder), **QUICK, shuffle=shuffle)
    trainer = RewardTrainer(config, SEVERAL, HELD_OUT)
    seen: list[int] = []
    batch = trainer.batch

    def watched(rows: list[Any]) -> Any:
        seen.append(len({tuple(row.tokens.prompt.tolist()) for row in rows}))
        return batch(rows)

    trainer.batch = watched  # type: ignore[method-assign]
    trainer.train()
    assert (max(seen) == prompts) if shuffle == "prompts" else (max(seen) >= prompts)
