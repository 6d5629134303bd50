"""Plain lists of dicts become tables, and every stage takes either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ppolm.advantage import add_reward_to_go, compute_gae_advantages, compute_td_errors
from ppolm.base_setup.model_setup import Models
from ppolm.errors import DataError
from ppolm.ppo_trainer.value_adder import ValueAdder
from ppolm.reward_kl import add_kl_to_sa_pairs, adjust_rewards_with_kl
from ppolm.token_attribution import SAPairs, as_sa_pairs, from_dicts
from tests.table_cases import DOCUMENT_PAIRS, assert_unchanged, snapshot

# ---- plain lists of dicts -------------------------------------------------------------------------------------------


def test_pairs_of_the_documents_are_one_sequence() -> None:
    table = from_dicts(DOCUMENT_PAIRS)
    assert table.num_sequences == 1
    assert table.column("step").tolist() == [0, 1, 2]
    assert [row["state"] for row in table] == [pair["state"] for pair in DOCUMENT_PAIRS]
    assert [row["action"] for row in table] == ["I", " think", " so"]
    assert table.column("logprob_policy").tolist() == pytest.approx([-2.1, -1.8, -0.5])


def test_pairs_of_several_prompts_are_cut_where_the_state_starts_anew() -> None:
    other = [pair | {"state": pair["state"].replace("snooping", "lying")} for pair in DOCUMENT_PAIRS[:2]]
    table = from_dicts([*DOCUMENT_PAIRS, *other])
    assert table.offsets.tolist() == [0, 3, 5]
    assert table.column("step").tolist() == [0, 1, 2, 0, 1]
    assert table.column("prompt_idx").tolist() == [0, 0, 0, 1, 1]


def test_two_samples_of_one_prompt_are_told_apart_by_their_states() -> None:
    table = from_dicts([*DOCUMENT_PAIRS, *DOCUMENT_PAIRS[:1], *DOCUMENT_PAIRS])
    assert table.lengths.tolist() == [3, 1, 3]


def test_pairs_with_prompt_idx_only_are_cut_where_it_changes() -> None:
    table = from_dicts([{"prompt_idx": owner, "logprob_policy": -1.0} for owner in (0, 0, 1, 2, 2, 2)])
    assert table.lengths.tolist() == [2, 1, 3]
    assert table.column("step").tolist() == [0, 1, 0, 0, 1, 2]
    assert table.column("prompt_idx").tolist() == [0, 0, 1, 2, 2, 2]


def test_pairs_with_step_are_cut_where_it_is_zero_even_within_one_prompt() -> None:
    rows = [{"prompt_idx": 0, "step": step, "logprob_policy": -1.0} for step in (0, 1, 0, 1, 2, 0)]
    assert from_dicts(rows).lengths.tolist() == [2, 3, 1]


def test_pairs_with_numbers_only_are_one_sequence() -> None:
    assert from_dicts([{"reward": 1.0, "value": 0.5}] * 4).offsets.tolist() == [0, 4]


@pytest.mark.parametrize("number", [-2, np.float32(-2.0), np.int64(-2), torch.tensor(-2.0)])
def test_numbers_of_any_library_are_numbers(number: Any) -> None:
    table = from_dicts([{"step": 0, "logprob_policy": number}])
    assert table.column("logprob_policy").tolist() == [-2.0]
    assert table.column("logprob_policy").dtype == torch.float32


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "empty"),
        (["text"], "must be dicts"),
        ([{"step": 0, "logprob_policy": -1.0}, {"step": 1}], "same keys"),
        ([{"step": 0, "logprob_policy": -1.0}, None], "must be dicts"),
        ([{"step": 0, "logprob_policy": "-1.0"}], "row 0.*'logprob_policy'.*'-1.0'.*expected a number"),
        ([{"step": 0, "kl": 1.0}, {"step": 1, "kl": None}], "row 1.*'kl'.*None.*expected a number"),
        ([{"step": 0, "reward": [1.0]}], "row 0.*'reward'.*expected a number"),
        ([{"step": "0", "logprob_policy": -1.0}], "row 0.*'step'.*expected a number"),
        ([{"step": step, "kl": 0.0} for step in (1, 2, 1, 2)], "row 2.*step 1 follows step 2"),
        ([{"step": step, "kl": 0.0} for step in (0, 1, 3)], "row 2.*step 3 follows step 1"),
        ([{"state": None, "action": "a", "kl": 0.0}] * 2, "must be text"),
        ([{"state": [1, 2], "action": 3, "kl": 0.0}] * 2, "must be text"),
    ],
)
def test_bad_list_is_an_error_that_says_what_is_wrong(rows: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_dicts(rows)


def test_pairs_without_token_ids_say_that_no_model_can_read_them() -> None:
    with pytest.raises(ValueError, match="no token ids"):
        _ = from_dicts(DOCUMENT_PAIRS).sequences


def test_as_sa_pairs_gives_a_table_back_untouched(small: SAPairs) -> None:
    assert as_sa_pairs(small) is small


def test_list_of_dicts_can_be_trained_on_again(pairs: SAPairs) -> None:
    again = from_dicts(pairs.to_dicts())
    assert torch.equal(again.offsets, pairs.offsets)
    for name, values in pairs.columns.items():
        assert torch.equal(again.column(name), values), name
    for ours, theirs in (
        (again.sequences.contexts, pairs.sequences.contexts),
        (again.sequences.actions, pairs.sequences.actions),
    ):
        assert all(torch.equal(left, right) for left, right in zip(ours, theirs, strict=True))
    assert [row["state"] for row in again] == [row["state"] for row in pairs]
    assert [row["action"] for row in again] == [row["action"] for row in pairs]


def test_models_read_the_same_from_a_list_of_dicts(pairs: SAPairs, speaking_models: Models) -> None:
    again = from_dicts(pairs.to_dicts())
    assert torch.equal(speaking_models.policy.logprobs(again.sequences, 1.0, 512), pairs.column("logprob_policy"))


# ---- every stage takes a table or a list, and adds to a new table ---------------------------------------------------

STAGES: dict[str, tuple[Callable[[Any], SAPairs], set[str]]] = {
    "add_kl_to_sa_pairs": (add_kl_to_sa_pairs, {"kl"}),
    "adjust_rewards_with_kl": (lambda rows: adjust_rewards_with_kl(rows, [1.0, 2.0], 0.1), {"score", "reward"}),
    "compute_td_errors": (lambda rows: compute_td_errors(rows, 0.9), {"td_error"}),
    "compute_gae_advantages": (lambda rows: compute_gae_advantages(rows, 0.9, 0.8), {"advantage", "return"}),
    "add_reward_to_go": (lambda rows: add_reward_to_go(rows, 0.9), {"reward_to_go"}),
}
NEEDED = {
    "add_kl_to_sa_pairs": set[str](),
    "adjust_rewards_with_kl": {"kl"},
    "compute_td_errors": {"reward", "value"},
    "compute_gae_advantages": {"reward", "value"},
    "add_reward_to_go": {"reward"},
}


@pytest.mark.parametrize("stage", STAGES)
def test_stage_adds_the_same_columns_to_a_table_and_to_a_list_and_changes_neither(small: SAPairs, stage: str) -> None:
    run, added = STAGES[stage]
    extra = {name: torch.linspace(-1, 1, 5) for name in NEEDED[stage]}
    table = small.with_columns(**extra)
    rows = table.to_dicts()
    before, rows_before = snapshot(table), [dict(row) for row in rows]
    from_table, from_list = run(table), run(rows)
    assert_unchanged(table, before)
    assert rows == rows_before
    for result in (from_table, from_list):
        assert isinstance(result, SAPairs)
        assert set(result.columns) == set(table.columns) | added
    for name in from_table.columns:
        assert torch.equal(from_table.column(name), from_list.column(name)), name


def test_values_are_added_to_a_list_of_dicts_too(pairs: SAPairs, speaking_models: Models) -> None:
    adder = ValueAdder(speaking_models.value, 512)
    with torch.no_grad():
        for parameter in speaking_models.value.head.parameters():
            parameter.fill_(0.1)
    rows = pairs.to_dicts()
    valued = adder.add_values_to_sa_pairs(rows)
    assert "value" not in rows[0]
    assert float(valued.column("value").std()) > 0
    assert torch.equal(valued.column("value"), adder.add_values_to_sa_pairs(pairs).column("value"))


def test_all_stages_run_on_the_pairs_of_the_documents() -> None:
    table = add_kl_to_sa_pairs(DOCUMENT_PAIRS)
    assert table.column("kl").tolist() == pytest.approx([0.4, 0.4, -0.25])
    table = adjust_rewards_with_kl(table, [0.75], kl_coef=0.1)
    assert table.column("reward").tolist() == pytest.approx([-0.04, -0.04, 0.775])
    table = compute_td_errors(table.with_columns(value=torch.tensor([0.2, 0.3, 0.4])), gamma=1.0)
    assert table.column("td_error").tolist() == pytest.approx([0.06, 0.06, 0.375])
    table = add_reward_to_go(compute_gae_advantages(table, gamma=1.0, lam=1.0), gamma=1.0)
    assert table.column("advantage").tolist() == pytest.approx([0.495, 0.435, 0.375])
    assert table.column("return").tolist() == pytest.approx(table.column("reward_to_go").tolist())
    assert table[1]["action"] == " think"
