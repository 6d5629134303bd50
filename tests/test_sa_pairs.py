"""The table of state-action pairs: a sequence of mappings that every stage extends and no stage changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
from tokenizers import Tokenizer, decoders
from tokenizers import models as tokenizer_models
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from ppolm.advantage import add_reward_to_go, compute_gae_advantages, compute_td_errors
from ppolm.base_setup import TokenizerSetup
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from ppolm.errors import DataError
from ppolm.ppo_trainer.generator import SequenceGenerator
from ppolm.ppo_trainer.value_adder import ValueAdder
from ppolm.reward_kl import add_kl_to_sa_pairs, adjust_rewards_with_kl
from ppolm.rollout.generated_text import GeneratedText
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from ppolm.token_attribution import SAPairs, as_sa_pairs, from_dicts
from ppolm.token_attribution.sa_pairs_io import (
    from_arrow,
    from_pandas,
    from_parquet,
    read_notes,
    to_arrow,
    to_pandas,
    to_parquet,
)
from ppolm.token_attribution.token_attribution import TokenAttributor
from tests.conftest import PROMPTS, SHARED_DATA, needs_shared_data
from tests.tiny_models import EOS

# As the user's documents write them: the space before "I" is in the state, not in the action.
DOCUMENT_PAIRS: list[dict[str, Any]] = [
    {
        "state": "SUBREDDIT: r/relationships\nTITLE: Should I admit to snooping?",
        "action": "I",
        "logprob_policy": -2.1,
        "logprob_ref": -2.5,
    },
    {
        "state": "SUBREDDIT: r/relationships\nTITLE: Should I admit to snooping? I",
        "action": " think",
        "logprob_policy": -1.8,
        "logprob_ref": -2.2,
    },
    {
        "state": "SUBREDDIT: r/relationships\nTITLE: Should I admit to snooping? I think",
        "action": " so",
        "logprob_policy": -0.5,
        "logprob_ref": -0.25,
    },
]


def speak_ascii(models: Models, eos_bonus: float) -> None:
    """Let the random model say printable ASCII and EOS only: each byte is then a character, as in real text."""
    bias = torch.full((models.setup.text_config.vocab_size,), -torch.inf)
    bias[models.setup.tokenizer.tokenizer.encode("".join(map(chr, range(32, 127))))] = 0.0
    bias[EOS] = eos_bonus
    models.setup.causal_lm.get_output_embeddings().register_forward_hook(lambda _module, _inputs, logits: logits + bias)


def rollout(
    models: Models, prompts: Sequence[Any], sampling: Sampling, samples: int
) -> tuple[SAPairs, list[GeneratedText]]:
    generator = Generator(models.policy, models.setup, sampling, seed=3, samples_per_prompt=samples)
    return SequenceGenerator(
        generator, TokenAttributor(models.policy, models.sft, 1.0, 512, recompute_logprobs=True)
    ).generate_sequences(prompts)


@pytest.fixture(scope="module")
def speaking_models(model_folder: Path) -> Models:
    """A policy that differs from its reference and ends some of its responses."""
    models = setup_models(PPOConfig(model_name=str(model_folder), lora_r=4, lora_alpha=8, device="cpu"))
    speak_ascii(models, eos_bonus=2.5)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in models.policy.parameters().values():
            parameter.add_(torch.randn(parameter.shape, generator=random) * 0.2)
    return models


@pytest.fixture(scope="module")
def generated(speaking_models: Models) -> tuple[SAPairs, list[GeneratedText]]:
    return rollout(speaking_models, PROMPTS, Sampling(max_new_tokens=8), samples=2)


@pytest.fixture(scope="module")
def pairs(generated: tuple[SAPairs, list[GeneratedText]]) -> SAPairs:
    return generated[0]


@pytest.fixture
def small() -> SAPairs:
    """Two sequences, of three and of two actions, without any text."""
    return SAPairs(
        columns={
            "prompt_idx": torch.tensor([0, 0, 0, 1, 1]),
            "step": torch.tensor([0, 1, 2, 0, 1]),
            "action_id": torch.tensor([10, 11, 12, 20, 21]),
            "logprob_policy": torch.tensor([-1.0, -2.0, -3.0, -4.0, -5.0]),
            "logprob_ref": torch.tensor([-1.5, -1.5, -1.5, -1.5, -1.5]),
        },
        offsets=torch.tensor([0, 3, 5]),
        ended=torch.tensor([True, False]),
        prompts=[[5, 6], [7]],
    )


def snapshot(pairs: SAPairs) -> dict[str, Tensor]:
    return {name: values.clone() for name, values in pairs.columns.items()}


def assert_unchanged(pairs: SAPairs, before: dict[str, Tensor]) -> None:
    assert list(pairs.columns) == list(before)
    assert all(torch.equal(pairs.columns[name], values) for name, values in before.items())


def assert_same_table(left: SAPairs, right: SAPairs) -> None:
    assert list(left.columns) == list(right.columns)
    for name, values in left.columns.items():
        assert right.columns[name].dtype == values.dtype, name
        assert torch.equal(right.columns[name], values), name
    assert torch.equal(left.offsets, right.offsets)
    assert torch.equal(left.ended, right.ended)
    assert [list(ids) for ids in left.prompts] == [list(ids) for ids in right.prompts]


class Unreadable:
    """Stands where the tokenizer is; any look at it fails."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"decoded although nobody looked: {name}")


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


# ---- text of states and actions -------------------------------------------------------------------------------------


def test_first_state_is_the_prompt_as_it_was_written(pairs: SAPairs) -> None:
    starts = [pairs[start] for start in pairs.offsets[:-1].tolist()]
    assert [row["state"] for row in starts] == [prompt for prompt in PROMPTS for _ in range(2)]


def test_next_state_is_state_plus_action(pairs: SAPairs) -> None:
    followed = [(row, after) for row, after in pairwise(pairs) if after["step"] > 0]
    assert len(followed) == len(pairs) - pairs.num_sequences
    for row, after in followed:
        assert after["state"] == row["state"] + row["action"]


def test_last_state_and_action_are_the_prompt_and_the_response(generated: tuple[SAPairs, list[GeneratedText]]) -> None:
    pairs, texts = generated
    for end, text in zip(pairs.offsets[1:].tolist(), texts, strict=True):
        last = pairs[end - 1]
        assert last["state"] + last["action"] == f"{text.prompt.content}{text}" + ("<eos>" if text.ended else "")


def test_words_keep_the_space_before_them_after_the_prompt_too() -> None:
    vocab = {"<unk>": 0, "<eos>": 1, "▁the": 2, "▁old": 3, "▁cat": 4, "s": 5}
    words = Tokenizer(tokenizer_models.WordLevel(vocab, unk_token="<unk>"))
    words.decoder = decoders.Metaspace()
    fast = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", eos_token="<eos>")
    pairs = SAPairs(
        columns={
            "prompt_idx": torch.zeros(3, dtype=torch.long),
            "step": torch.arange(3),
            "action_id": torch.tensor([3, 4, 5]),
        },
        offsets=torch.tensor([0, 3]),
        ended=torch.tensor([False]),
        prompts=[[2]],
        tokenizer=TokenizerSetup(fast, len(vocab)),
    )
    assert [pair["action"] for pair in pairs] == [" old", " cat", "s"]
    assert [pair["state"] for pair in pairs] == ["the", "the old", "the old cat"]
    assert to_arrow(pairs).column("action").to_pylist() == [" old", " cat", "s"]


@needs_shared_data
def test_next_state_is_state_plus_action_with_a_word_boundary_tokenizer() -> None:
    folder = str(SHARED_DATA / "stories260K")
    models = setup_models(PPOConfig(model_name=folder, lora_r=4, lora_alpha=8, device="cpu"))
    stories = ["Once upon a time, Lily", "The dog ran and"]
    pairs, texts = rollout(models, stories, Sampling(max_new_tokens=24, top_p=0.9), samples=2)
    for row, after in pairwise(pairs):
        if after["step"] > 0:
            assert after["state"] == row["state"] + row["action"]
    assert " " in "".join(texts)
    assert ["".join(text.tokens) for text in texts] == [str(text) for text in texts]


def test_text_is_decoded_only_when_somebody_looks(pairs: SAPairs) -> None:
    blind = replace(pairs, tokenizer=cast(TokenizerSetup, Unreadable()))
    assert [row["step"] for row in blind] == pairs.column("step").tolist()
    chosen = SAPairs.concat([blind.select([1]), add_kl_to_sa_pairs(blind)])
    assert chosen[0]["logprob_policy"] == pairs.per_sequence("logprob_policy")[1][0].item()
    with pytest.raises(AssertionError, match="nobody looked"):
        blind[0]["action"]
    with pytest.raises(AssertionError, match="nobody looked"):
        blind[0]["state"]


def test_without_a_tokenizer_there_is_no_text_and_no_promise_of_it(small: SAPairs) -> None:
    assert "state" not in small[0]
    assert "action" not in dict(small[0])


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


def test_concat_keeps_the_columns_that_all_tables_have(small: SAPairs) -> None:
    both = SAPairs.concat([small.with_columns(kl=torch.ones(5)), small])
    assert list(both.columns) == list(small.columns)


def test_sequences_are_the_prompt_and_its_actions(generated: tuple[SAPairs, list[GeneratedText]]) -> None:
    pairs, texts = generated
    assert [context.tolist() for context in pairs.sequences.contexts] == [text.prompt_ids for text in texts]
    assert [actions.tolist() for actions in pairs.sequences.actions] == [text.token_ids for text in texts]


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


# ---- Arrow, Parquet, pandas -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full(pairs: SAPairs) -> SAPairs:
    """A table with columns of many stages, and numbers that are hard to write down."""
    table = adjust_rewards_with_kl(add_kl_to_sa_pairs(pairs), [1 / 3] * pairs.num_sequences, 0.1)
    odd = torch.randn(len(pairs), generator=torch.Generator().manual_seed(0))
    odd[:4] = torch.tensor([float("inf"), -0.0, 1e-45, 3.4e38])
    return table.with_columns(value=odd)


def through_arrow(pairs: SAPairs, tokenizer: TokenizerSetup | None, _folder: Path) -> SAPairs:
    return from_arrow(to_arrow(pairs), tokenizer)


def through_parquet(pairs: SAPairs, tokenizer: TokenizerSetup | None, folder: Path) -> SAPairs:
    to_parquet(pairs, folder / "table.parquet")
    return from_parquet(folder / "table.parquet", tokenizer)


def through_pandas(pairs: SAPairs, tokenizer: TokenizerSetup | None, _folder: Path) -> SAPairs:
    return from_pandas(to_pandas(pairs), tokenizer)


Journey = Callable[[SAPairs, "TokenizerSetup | None", Path], SAPairs]
journeys = pytest.mark.parametrize("journey", [through_arrow, through_parquet, through_pandas])


@journeys
def test_table_comes_back_exactly(full: SAPairs, journey: Journey, tmp_path: Path) -> None:
    back = journey(full, full.tokenizer, tmp_path)
    assert_same_table(full, back)
    assert [row["state"] for row in back] == [row["state"] for row in full]
    assert [row["action"] for row in back] == [row["action"] for row in full]


@journeys
def test_table_without_tokenizer_keeps_the_text_of_actions(full: SAPairs, journey: Journey, tmp_path: Path) -> None:
    back = journey(full, None, tmp_path)
    assert_same_table(full, back)
    assert [row["action"] for row in back] == [row["action"] for row in full]


@journeys
def test_pairs_of_the_documents_come_back_with_their_text(journey: Journey, tmp_path: Path) -> None:
    table = from_dicts(DOCUMENT_PAIRS)
    back = journey(table, None, tmp_path)
    assert_same_table(table, back)
    assert [(row["state"], row["action"]) for row in back] == [
        (pair["state"], pair["action"]) for pair in DOCUMENT_PAIRS
    ]


@journeys
def test_not_a_number_survives(small: SAPairs, journey: Journey, tmp_path: Path) -> None:
    table = small.with_columns(value=torch.tensor([1.0, float("nan"), 2.0, float("nan"), 3.0]))
    back = journey(table, None, tmp_path).column("value")
    assert back.dtype == torch.float32
    assert torch.equal(back.isnan(), table.column("value").isnan())


def test_parquet_is_readable_by_anybody(full: SAPairs, tmp_path: Path) -> None:
    to_parquet(full, tmp_path / "table.parquet")
    table = parquet.read_table(tmp_path / "table.parquet").to_pydict()
    assert table["sequence"] == [i for i, length in enumerate(full.lengths.tolist()) for _ in range(length)]
    assert table["logprob_policy"] == full.column("logprob_policy").tolist()
    assert table["action"] == [row["action"] for row in full]


def test_notes_and_prompt_texts_travel_with_the_table(full: SAPairs, tmp_path: Path) -> None:
    to_parquet(full, tmp_path / "table.parquet", step=7)
    meta = read_notes(parquet.read_table(tmp_path / "table.parquet"))
    assert meta["notes"] == {"step": 7}
    assert meta["prompt_texts"] == PROMPTS


def test_table_of_another_program_is_refused() -> None:
    with pytest.raises(DataError, match="not written by ppolm"):
        from_arrow(pa.table({"sequence": [0]}))


def test_damaged_or_missing_parquet_is_an_error_that_names_the_file(full: SAPairs, tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    with pytest.raises(DataError, match=r"table\.parquet is not a readable table"):
        from_parquet(path)
    to_parquet(full, path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"table\.parquet is not a readable table"):
        from_parquet(path)


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
