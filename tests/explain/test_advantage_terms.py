"""Explain: the terms that are shown add up to what a real PPO step stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
import torch

from ppolm.config import PPOConfig
from ppolm.errors import ConfigError, DataError
from ppolm.explain.advantage_terms import Explanation, StepTerms, explain_advantage
from ppolm.explain.in_words import sentences
from ppolm.explain.settings import StepSettings
from ppolm.explain.what_if import RECOMPUTED, recompute
from ppolm.ppo_trainer import PPOTrainer
from ppolm.storage.stored_run import read_run_config
from ppolm.token_attribution import SAPairs
from ppolm.token_attribution.sa_pairs_io import from_arrow, read_notes
from tests.conftest import PROMPTS, spread


def per_token(prompts: list[str], responses: list[Any]) -> list[list[float]]:
    """A score for every token."""
    return [[math.sin(token + i) for i, token in enumerate(response.token_ids)] for response in responses]


CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "nothing whitened": {"whiten_advantages": False, "normalize_rewards": "none"},
    "both whitened, k2": {"whiten_rewards": True, "kl_estimator": "k2", "kl_coef": 0.7},
    "k3 and a short horizon": {"kl_estimator": "k3", "gamma": 0.8, "lam": 0.3},
    "one step ahead": {"lam": 0.0},
    "whole returns": {"gamma": 1.0, "lam": 1.0, "whiten_advantages": False},
    "a score per token": {"reward": per_token, "whiten_rewards": True},
    "adaptive KL": {"adaptive_kl": True, "kl_target": 0.001, "kl_horizon": 4, "kl_coef": 0.5},
    "KL in the loss": {"kl_placement": "loss", "kl_estimator": "k3", "kl_coef": 0.5},
    "responses of one token": {"max_new_tokens": 1},
}


def stored_steps(run: Path) -> list[tuple[SAPairs, StepSettings]]:
    """The tables of a run, and what each was computed with."""
    config = read_run_config(run)
    tables = [parquet.read_table(path) for path in sorted(run.glob("table/*.parquet"))]
    return [(from_arrow(table), StepSettings.of(config, read_notes(table)["notes"])) for table in tables]


def train(config: PPOConfig, reward: Any = spread, **components: Any) -> list[tuple[SAPairs, StepSettings]]:
    results = PPOTrainer(config, reward=reward, **components).train(PROMPTS[:4], eval_prompts=None)
    return stored_steps(results.run_dir)


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def steps(request: pytest.FixtureRequest, make_config: Callable[..., PPOConfig]) -> list[tuple[SAPairs, StepSettings]]:
    """Steps that the reference has been left behind in, stored by a real run."""
    changes = dict(request.param)
    reward = changes.pop("reward", spread)
    return train(make_config(table_every=1, max_steps=3, eval_every=0, learning_rate=1e-2, **changes), reward)


def added_up(it: Explanation) -> float:
    """The advantage by the arithmetic that a reader would do with the numbers shown."""
    settings = it.settings
    x = it.logprob_policy - it.logprob_ref
    kl = {"k1": x, "k2": x * x / 2, "k3": math.expm1(-x) + x}[settings.kl_estimator]
    assert it.kl == pytest.approx(kl, abs=1e-5)
    assert it.penalty == pytest.approx(settings.reward_coef * it.kl, abs=1e-7)
    reward = it.score - it.penalty
    assert it.reward_before == pytest.approx(reward, abs=1e-6)
    if it.reward_whitening:
        reward = (reward - it.reward_whitening.mean) / it.reward_whitening.deviation + it.reward_whitening.mean
    assert it.reward == pytest.approx(reward, abs=1e-5)
    assert it.td_error == pytest.approx(it.reward + settings.gamma * it.next_value - it.value, abs=1e-6)
    assert it.contributions[0].amount == it.td_error
    total = math.fsum([one.amount for one in it.contributions] + [it.rest])
    assert it.raw_advantage == pytest.approx(total, abs=1e-6)
    if it.advantage_whitening:
        total = (total - it.advantage_whitening.mean) / it.advantage_whitening.deviation
    return total


def test_the_terms_add_up_to_the_stored_advantage_for_every_token(steps: list[tuple[SAPairs, StepSettings]]) -> None:
    assert len(steps) == 3
    for pairs, settings in steps:
        terms = StepTerms(pairs, settings)
        for row in range(len(pairs)):
            explanation = terms.explain(row)
            stored = float(pairs.column("advantage")[row])
            assert added_up(explanation) == pytest.approx(stored, abs=1e-5)
            assert explanation.stored_advantage == stored
            assert abs(explanation.residual) < 1e-5
            assert len(explanation.contributions) + explanation.rest_count == explanation.length - explanation.step


def test_what_if_with_the_settings_of_the_step_changes_nothing(steps: list[tuple[SAPairs, StepSettings]]) -> None:
    for pairs, settings in steps:
        again = recompute(pairs, settings)
        for name in RECOMPUTED:
            assert torch.equal(again.column(name), pairs.column(name)), name


def test_an_adaptive_coefficient_is_that_of_each_step(make_config: Callable[..., PPOConfig]) -> None:
    changes = {**CASES["adaptive KL"], "table_every": 1, "max_steps": 3, "eval_every": 0, "learning_rate": 1e-2}
    coefs = [settings.reward_coef for _, settings in train(make_config(**changes))]
    assert len(set(coefs)) == 3
    assert coefs[0] == 0.5


def test_a_run_with_an_advantage_estimator_of_its_own_is_told_apart_by_the_residual(
    make_config: Callable[..., PPOConfig],
) -> None:
    class Doubled:
        def add_advantages(self, sa_pairs: SAPairs) -> SAPairs:
            made = recompute(sa_pairs, OWN)
            return made.with_columns(advantage=2 * made.column("advantage"))

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    config = make_config(table_every=1, max_steps=1, eval_every=0, whiten_advantages=False)
    ((pairs, settings),) = train(config, advantage_comp=Doubled())
    explanation = explain_advantage(pairs, 0, settings)
    assert explanation.residual == pytest.approx(explanation.stored_advantage / 2, abs=1e-6)
    assert "component of its own" in sentences(explanation)[-1]


OWN = StepSettings(0.99, 0.95, 0.1, "k1", whiten_rewards=False, whiten_advantages=False)


def table(scores: Sequence[float], values: Sequence[float], **columns: Any) -> SAPairs:
    """One response."""
    length = len(scores)
    made = {
        "prompt_idx": torch.zeros(length, dtype=torch.long),
        "step": torch.arange(length),
        "action_id": torch.arange(length),
        "logprob_policy": torch.full((length,), -1.0),
        "logprob_ref": torch.full((length,), -2.0),
        "score": torch.tensor(scores),
        "value": torch.tensor(values),
    }
    return SAPairs({**made, **columns}, torch.tensor([0, length]), torch.tensor([True]))


def test_terms_by_hand() -> None:
    settings = OWN.changed(gamma=1.0, lam=0.5)
    pairs = recompute(table([0.0, 0.0, 2.0], [0.5, 1.0, 1.5]), settings)
    first = explain_advantage(pairs, 0, settings)
    assert (first.kl, first.penalty, first.reward) == pytest.approx((1.0, 0.1, -0.1))
    assert first.td_error == pytest.approx(-0.1 + 1.0 - 0.5)
    assert [(one.ahead, one.weight) for one in first.contributions] == [(0, 1.0), (1, 0.5), (2, 0.25)]
    assert [one.amount for one in first.contributions] == pytest.approx([0.4, 0.2, 0.1])
    assert first.advantage == pytest.approx(0.7)
    last = explain_advantage(pairs, 2, settings)
    assert (last.next_value, last.score, last.advantage) == (0.0, 2.0, pytest.approx(0.4))


def test_of_a_long_response_the_nearest_and_the_largest_terms_are_shown_and_the_rest_is_summed() -> None:
    settings = OWN.changed(gamma=1.0, lam=1.0, reward_coef=0.0)
    pairs = recompute(table([*[0.0] * 199, 3.0], [0.0] * 150 + [1.0] * 50), settings)
    explanation = explain_advantage(pairs, 0, settings)
    shown = {one.ahead: one.amount for one in explanation.contributions}
    assert list(shown) == [0, 1, 2, 3, 4, 149, 199]
    assert shown[149] == 1.0
    assert shown[199] == 2.0
    assert (explanation.rest, explanation.rest_count) == (0.0, 193)


def test_sentences_name_every_number() -> None:
    settings = OWN.changed(whiten_advantages=True, whiten_rewards=True)
    pairs = recompute(table([0.0, 0.0, 2.0], [0.5, 1.0, 1.5]), settings)
    explanation = explain_advantage(pairs, 1, settings)
    text = " ".join(sentences(explanation, " beer"))
    assert "Token 2 of 3, “ beer”, has the advantage" in text
    assert "log-probability −1 (36.8 %), the reference −2 (13.5 %): KL by k1 is 1." in text
    assert "The KL penalty is 0.1 × 1 = 0.1, so the reward is 0 − 0.1 = −0.1." in text
    for number in (explanation.reward, explanation.td_error, explanation.advantage):
        assert f"{abs(number):.4g}" in text
    assert "Rewards are whitened" in text
    assert "Advantages are whitened" in text
    assert "component" not in text
    loss = " ".join(sentences(explain_advantage(pairs, 2, settings.changed(reward_coef=0.0))))
    assert "KL has no weight in the rewards" in loss
    assert "No token follows" in loss


def test_numbers_that_are_missing_are_gaps_and_not_errors() -> None:
    pairs = table([0.0, math.nan], [0.5, 1.0])
    explanation = explain_advantage(pairs, 0, OWN)
    assert math.isnan(explanation.residual)
    assert "not a number" in sentences(explanation)[0]


def test_a_table_without_values_is_refused_with_the_reason() -> None:
    pairs = table([0.0, 1.0], [0.5, 1.0])
    bare = SAPairs({name: pairs.columns[name] for name in pairs.columns if name != "value"}, pairs.offsets, pairs.ended)
    with pytest.raises(DataError, match="no column value"):
        recompute(bare, OWN)


def test_older_tables_note_beta_and_the_configuration_says_where_it_acted(
    make_config: Callable[..., PPOConfig],
) -> None:
    assert StepSettings.of(make_config(kl_coef=0.2), {"kl_coef": 0.3}).reward_coef == 0.3
    assert StepSettings.of(make_config(kl_coef=0.2), {}).reward_coef == 0.2
    in_loss = make_config(kl_placement="loss", kl_estimator="k3")
    assert StepSettings.of(in_loss, {"kl_coef": 0.3}).reward_coef == 0.0
    assert StepSettings.of(in_loss, {"kl_coef": 0.3, "reward_coef": 0.1}).reward_coef == 0.1
    with pytest.raises(DataError, match="adaptive_kl"):
        StepSettings.of(make_config(adaptive_kl=True), {})


@pytest.mark.parametrize(
    "change", [{"gamma": 1.1}, {"lam": -0.1}, {"reward_coef": math.nan}, {"reward_coef": 1e9}, {"kl_estimator": "k4"}]
)
def test_settings_outside_of_their_range_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        OWN.changed(**change)
