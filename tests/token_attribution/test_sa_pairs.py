"""The table of state-action pairs: a sequence of mappings that every stage extends and no stage changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
import torch

from ppolm.reward_kl import add_kl_to_sa_pairs
from ppolm.rollout.generated_text import GeneratedText
from ppolm.token_attribution import SAPairs, from_dicts
from tests.conftest import PROMPTS
from tests.table_cases import assert_unchanged, snapshot

# ---- a sequence of mappings -----------------------------------------------------------------------------------------


def test_the_fixture_has_what_the_tests_need(pairs: SAPairs) -> None:
    assert pairs.num_sequences == 2 * len(PROMPTS)
    assert bool(pairs.ended.any())
    assert not bool(pairs.ended.all())
    assert len(set(pairs.lengths.tolist())) > 2
    assert not torch.equal(pairs.column("logprob_policy"), pairs.column("logprob_ref"))


def test_length_is_the_number_of_generated_tokens(generated: tuple[SAPairs, list[GeneratedText]]) -> None:
    pairs, texts = generated
    assert len(pairs) == sum(len(text.token_ids) for text in texts)
    assert pairs.lengths.tolist() == [len(text.token_ids) for text in texts]


def test_it_is_a_sequence_of_mappings(pairs: SAPairs) -> None:
    assert isinstance(pairs, Sequence)
    assert isinstance(pairs[0], Mapping)
    assert len(pairs[0]) == len(list(pairs[0])) == len(dict(pairs[0]))


def test_index_reads_a_row_of_every_column(small: SAPairs) -> None:
    row = dict(small[3])
    assert row == {
        "prompt_idx": 1,
        "step": 0,
        "action_id": 20,
        "logprob_policy": -4.0,
        "logprob_ref": -1.5,
        "prompt_ids": [7],
    }


def test_numbers_of_a_row_are_plain_python_numbers(pairs: SAPairs) -> None:
    assert type(pairs[0]["action_id"]) is int
    assert type(pairs[0]["logprob_policy"]) is float


@pytest.mark.parametrize("index", [-1, -2, -5])
def test_negative_index_counts_from_the_end(small: SAPairs, index: int) -> None:
    assert dict(small[index]) == dict(small[len(small) + index])


@pytest.mark.parametrize("index", [5, 6, -6, 100])
def test_index_out_of_range_is_an_index_error(small: SAPairs, index: int) -> None:
    with pytest.raises(IndexError, match=f"row {index} of a table with 5 rows"):
        small[index]


def test_iteration_visits_every_row_in_order(small: SAPairs) -> None:
    assert [row["action_id"] for row in small] == [10, 11, 12, 20, 21]
    assert [row["action_id"] for row in reversed(small)] == [21, 20, 12, 11, 10]


@pytest.mark.parametrize(
    "cut", [slice(None), slice(1, 3), slice(None, None, -1), slice(-2, None), slice(3, 99), slice(4, 2)]
)
def test_slice_is_what_a_list_would_give(small: SAPairs, cut: slice) -> None:
    assert [dict(row) for row in small[cut]] == small.to_dicts()[cut]


def test_unknown_key_of_a_row_is_a_key_error(pairs: SAPairs) -> None:
    with pytest.raises(KeyError, match="nonsense"):
        pairs[0]["nonsense"]
    assert pairs[0].get("nonsense", 5) == 5
    assert "nonsense" not in pairs[0]


def test_repr_shows_size_and_columns_not_the_data(small: SAPairs) -> None:
    assert repr(small).startswith("SAPairs(5 rows, 2 sequences, columns: prompt_idx, step, action_id")


# ---- columns --------------------------------------------------------------------------------------------------------


def test_with_columns_adds_to_a_copy_and_never_to_its_input(small: SAPairs) -> None:
    before = snapshot(small)
    longer = small.with_columns(kl=torch.arange(5.0), logprob_ref=torch.zeros(5))
    assert_unchanged(small, before)
    assert longer.column("kl").tolist() == [0, 1, 2, 3, 4]
    assert longer.column("logprob_ref").tolist() == [0] * 5
    assert torch.equal(longer.offsets, small.offsets)


@pytest.mark.parametrize("shape", [(4,), (6,), (5, 1), (1, 5), ()])
def test_with_columns_refuses_another_shape(small: SAPairs, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"Column 'kl' has shape .*, expected \(5,\)"):
        small.with_columns(kl=torch.zeros(shape))


@pytest.mark.parametrize(
    ("column", "stage"),
    [
        ("kl", "add_kl_to_sa_pairs"),
        ("reward", "adjust_rewards_with_kl"),
        ("value", "add_values_to_sa_pairs"),
        ("td_error", "compute_td_errors"),
        ("advantage", "compute_gae_advantages"),
        ("return", "compute_gae_advantages"),
        ("reward_to_go", "add_reward_to_go"),
    ],
)
def test_missing_column_names_the_stage_that_adds_it(small: SAPairs, column: str, stage: str) -> None:
    with pytest.raises(KeyError, match=f"no column '{column}'.*Call {stage} first.*action_id"):
        small.column(column)


def test_missing_logprobs_name_generate_sequences() -> None:
    with pytest.raises(KeyError, match=r"no column 'logprob_ref'.*Call generate_sequences first"):
        add_kl_to_sa_pairs([{"step": 0, "logprob_policy": -1.0}])


def test_unknown_column_lists_the_columns_there_are(small: SAPairs) -> None:
    with pytest.raises(KeyError, match=r"'adventage'.*It has: prompt_idx, step, action_id, logprob_policy"):
        small.column("adventage")


def test_per_sequence_cuts_a_column_at_the_offsets(small: SAPairs) -> None:
    assert [part.tolist() for part in small.per_sequence("action_id")] == [[10, 11, 12], [20, 21]]


def test_sequence_sums_add_up_each_sequence(small: SAPairs) -> None:
    assert small.sequence_sums("logprob_policy").tolist() == [-6.0, -9.0]


def test_sequence_sums_do_not_lose_small_numbers_beside_large_ones() -> None:
    table = from_dicts([{"step": i, "x": value} for i, value in enumerate([1e8, 1.0, 1.0, -1e8])])
    assert table.sequence_sums("x").tolist() == [2.0]


# ---- sequences ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [[1, 0], [0], [1], [0, 0, 1], [], [-1], [-2, -1], (1, 0), range(2)])
def test_select_takes_whole_sequences_in_the_given_order(small: SAPairs, order: Sequence[int]) -> None:
    chosen = small.select(order)
    whole = [part.tolist() for part in small.per_sequence("action_id")]
    assert [part.tolist() for part in chosen.per_sequence("action_id")] == [whole[i] for i in order]
    assert chosen.ended.tolist() == [small.ended.tolist()[i] for i in order]
    assert [row["prompt_ids"] for row in chosen] == [small.prompts[i] for i in order for _ in whole[i]]


def test_select_takes_a_mask_of_sequences(small: SAPairs) -> None:
    assert small.select(small.ended).column("action_id").tolist() == [10, 11, 12]
    assert small.select(~small.ended).column("action_id").tolist() == [20, 21]


@pytest.mark.parametrize("wrong", [[2], [-3], [0, 5]])
def test_select_of_a_sequence_that_is_not_there_is_an_error(small: SAPairs, wrong: list[int]) -> None:
    with pytest.raises(IndexError):
        small.select(wrong)


def test_select_leaves_its_input_alone_and_keeps_literal_columns() -> None:
    rows = [{"step": step, "mood": mood} for step, mood in [(0, "sad"), (1, "sad"), (0, "glad")]]
    table = from_dicts(rows)
    before = snapshot(table)
    assert [row["mood"] for row in table.select([1, 0])] == ["glad", "sad", "sad"]
    assert_unchanged(table, before)


def test_select_and_concat_of_all_parts_is_the_table(pairs: SAPairs) -> None:
    parts = [pairs.select([i]) for i in range(pairs.num_sequences)]
    whole = SAPairs.concat(parts)
    for name in pairs.columns:
        if name != "prompt_idx":
            assert torch.equal(whole.column(name), pairs.column(name))
    assert torch.equal(whole.offsets, pairs.offsets)
    assert torch.equal(whole.ended, pairs.ended)
    assert [row["state"] for row in whole] == [row["state"] for row in pairs]


def test_concat_numbers_prompts_on_so_that_rows_keep_their_own(small: SAPairs) -> None:
    other = replace(small, prompts=[[50, 60], [70]])
    both = SAPairs.concat([small, other])
    assert both.column("prompt_idx").tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert [row["prompt_ids"] for row in both] == [[5, 6]] * 3 + [[7]] * 2 + [[50, 60]] * 3 + [[70]] * 2
    assert [context.tolist() for context in both.sequences.contexts] == [[5, 6], [7], [50, 60], [70]]
    assert both.offsets.tolist() == [0, 3, 5, 8, 10]
    assert small.column("prompt_idx").tolist() == [0, 0, 0, 1, 1]


def test_concat_refuses_a_column_that_only_some_tables_have(small: SAPairs) -> None:
    with pytest.raises(ValueError, match="Only some of these tables have the column 'kl'"):
        SAPairs.concat([small.with_columns(kl=torch.ones(5)), small])


def test_concat_weighs_responses_without_weights_as_the_policys_own(small: SAPairs) -> None:
    weighted = small.with_columns(importance_weight=torch.full((5,), 0.5))
    for tables, weights in (([small, weighted], [1.0, 0.5]), ([weighted, small], [0.5, 1.0])):
        both = SAPairs.concat(tables)
        assert both.column("importance_weight").tolist() == [weights[0]] * 5 + [weights[1]] * 5


def test_sequences_are_the_prompt_and_its_actions(generated: tuple[SAPairs, list[GeneratedText]]) -> None:
    pairs, texts = generated
    assert [context.tolist() for context in pairs.sequences.contexts] == [text.prompt_ids for text in texts]
    assert [actions.tolist() for actions in pairs.sequences.actions] == [text.token_ids for text in texts]


class CountedIds(list[int]):
    """Token ids that count how often they are read."""

    reads = 0

    def __iter__(self) -> Iterator[int]:
        CountedIds.reads += 1
        return super().__iter__()


def test_a_minibatch_touches_its_own_prompts_alone_and_each_only_once_per_table(small: SAPairs) -> None:
    CountedIds.reads = 0
    table = replace(small, prompts=[CountedIds([5, 6]), CountedIds([7]), *(CountedIds([i]) for i in range(1000))])
    for sequence in (0, 1, 0, 1):
        part = table.with_columns(kl=torch.ones(5)).select([sequence])
        assert [context.tolist() for context in part.sequences.contexts] == [[[5, 6], [7]][sequence]]
    assert CountedIds.reads == 2


def test_a_table_with_other_prompts_does_not_show_those_of_the_table_it_was_made_of(small: SAPairs) -> None:
    assert [context.tolist() for context in small.sequences.contexts] == [[5, 6], [7]]
    other = replace(small, prompts=[[8], [9, 9]])
    assert [context.tolist() for context in other.sequences.contexts] == [[8], [9, 9]]
