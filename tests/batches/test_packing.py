"""Sequences that share a row give the numbers that each has alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from ppolm.base_setup import BaseModelSetup
from ppolm.base_setup.trial_text import states_of
from ppolm.batches.packing import ALIGNED, Answers, fill_bins, pack
from ppolm.batches.sequences import PASS_COST, TokenSequences, cut_middle, split_by_tokens
from ppolm.config import SFTConfig
from tests.closeness import assert_rounding
from tests.tiny_models import ARCHITECTURES, make_model_folder


def ids(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.long)


ITEMS = [
    Answers(ids(1, 2, 3), (ids(4, 5), ids(6, 7, 8))),
    Answers(ids(9, 10), (ids(11),)),
    Answers(
        ids(
            12,
        ),
        (ids(13, 14, 15, 16), ids(17, 18)),
    ),
]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40))
def test_bins_hold_everything_once_and_none_is_wider_than_the_longest(sizes: list[int]) -> None:
    bins = fill_bins(sizes)
    assert sorted(i for one in bins for i in one) == list(range(len(sizes)))
    assert all(sum(sizes[i] for i in one) <= max(sizes) for one in bins)


@pytest.mark.parametrize("budget", [1, 10, 1000])
def test_every_answer_is_read_once_and_both_answers_of_a_prompt_in_one_microbatch(budget: int) -> None:
    batches = list(pack(ITEMS, budget, 0, torch.device("cpu"), "ends"))
    assert sorted(torch.cat([batch.rows for batch in batches]).tolist()) == [0, 1, 2, 3, 4]
    for batch in batches:
        present = set(batch.rows.tolist())
        assert {0, 1} <= present or not {0, 1} & present
        assert {3, 4} <= present or not {3, 4} & present
    last = {int(row): int(token) for batch in batches for row, token in zip(batch.rows, batch.actions, strict=True)}
    assert last == {0: 5, 1: 8, 2: 11, 3: 16, 4: 18}


def test_an_empty_answer_is_read_at_the_end_of_its_prompt_also_after_another_answer() -> None:
    item = Answers(ids(1, 2, 3), (ids(4, 5), ids(), ids(6)))
    (batch,) = pack([item], 100, 0, torch.device("cpu"), "ends")
    assert batch.actions.tolist() == [5, 3, 6]
    assert batch.state_index.tolist() == [4, 2, 5]
    (batch,) = pack([item], 100, 0, torch.device("cpu"), "actions")
    assert batch.actions.tolist() == [4, 5, 6]
    assert batch.state_index.tolist() == [2, 3, 2]


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("read", ["actions", "ends"])
def test_hidden_states_are_those_of_each_sequence_alone(name: str, read: Any, tmp_path: Path) -> None:
    setup = BaseModelSetup(SFTConfig(model_name=str(make_model_folder(tmp_path, name)), device="cpu"))
    assert setup.capabilities.has("packed_prompts")
    wanted = []
    for item in ITEMS:
        for answer in item.answers:
            with torch.no_grad():
                hidden = setup.hidden_states(torch.cat([item.prompt, answer])[None])[0]
            start = len(item.prompt) - 1
            wanted.append(hidden[start : start + len(answer)] if read == "actions" else hidden[-1:])
    expected = torch.cat(wanted)
    found = torch.zeros_like(expected)
    for batch in pack(ITEMS, 14, setup.tokenizer.pad_id, setup.device, read):
        with torch.no_grad():
            found[batch.rows] = setup.wanted_states(batch.input_ids, batch)
    assert_rounding(found, expected)


def test_a_model_that_does_not_heed_the_mask_is_found_out(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = BaseModelSetup(SFTConfig(model_name=str(model_folder), device="cpu"))

    def refusal() -> str | None:
        states = states_of(setup, setup.trial.packed(setup))
        return setup.rounding.refusal(setup.project_all(states), setup.trial.logits)

    assert refusal() is None
    blocks = setup.blocks
    monkeypatch.setattr(setup, "blocks", lambda **inputs: blocks(**inputs | {"attention_mask": None}))
    assert "numbers off by" in str(refusal())


def test_rows_wider_than_a_sliding_window_are_not_packed(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path, "mistral", window=64)
    setup = BaseModelSetup(SFTConfig(model_name=str(folder), device="cpu"))
    assert setup.capabilities.masks("packed_prompts", 64)
    assert not setup.capabilities.masks("packed_prompts", 65)


def test_a_long_prompt_loses_its_middle() -> None:
    assert cut_middle(torch.arange(10), 4).tolist() == [0, 1, 8, 9]
    assert cut_middle(torch.arange(10), 5).tolist() == [0, 1, 7, 8, 9]
    assert cut_middle(torch.arange(3), 4).tolist() == [0, 1, 2]
    assert cut_middle(torch.arange(3), 1).tolist() == [2]


def test_packed_rows_are_padded_less_than_rows_of_their_own() -> None:
    lengths = [3, 40, 7, 12, 38, 5, 21, 9, 14, 30]
    items = [Answers(torch.ones(length, dtype=torch.long), (ids(1, 2),)) for length in lengths]
    apart = TokenSequences([item.prompt for item in items], [item.answers[0] for item in items])
    cpu = torch.device("cpu")
    packed, alone = (
        sum(batch.input_ids.numel() for batch in batches)
        for batches in (pack(items, 4096, 0, cpu, "actions"), apart.microbatches(4096, 0, cpu))
    )
    assert sum(item.size for item in items) <= packed < 0.85 * alone


def padded(groups: list[list[int]], lengths: list[int]) -> int:
    return sum(max(lengths[i] for i in group) * len(group) for group in groups)


def test_microbatches_hold_everything_once_within_the_budget_with_the_least_padding() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        lengths = torch.randint(1, 400, (7,), generator=generator).tolist()
        groups = split_by_tokens(lengths, 900)
        assert sorted(i for group in groups for i in group) == list(range(7))
        assert all(len(group) == 1 or padded([group], lengths) <= 900 for group in groups)
        order = sorted(range(7), key=lambda i: -lengths[i])
        costs = []
        for cuts in itertools.product((False, True), repeat=6):  # all ways to cut the sorted lengths
            ways = [[order[0]]]
            for i, cut in zip(order[1:], cuts, strict=True):
                ways += [[i]] if cut else []
                ways[-1] += [] if cut else [i]
            if all(len(group) == 1 or padded([group], lengths) <= 900 for group in ways):
                costs.append(padded(ways, lengths) + PASS_COST * len(ways))
        assert padded(groups, lengths) + PASS_COST * len(groups) == min(costs)


def test_like_lengths_share_a_pass_and_unlike_ones_do_not() -> None:
    assert split_by_tokens([10, 11, 12, 10], 1000) == [[2, 1, 0, 3]]
    assert split_by_tokens([300, 50, 50, 50, 300], 2000) == [[0, 4], [1, 2, 3]]
    assert split_by_tokens([300, 50, 50, 50, 300], 2000, pass_cost=10**6) == [[0, 4, 1, 2, 3]]
    assert split_by_tokens([], 10) == []


class CountedInt(int):
    """An integer that counts its comparisons and products."""

    uses = 0

    def __lt__(self, other: int) -> bool:
        CountedInt.uses += 1
        return int(self) < int(other)

    def __le__(self, other: int) -> bool:
        CountedInt.uses += 1
        return int(self) <= int(other)

    def __gt__(self, other: int) -> bool:
        CountedInt.uses += 1
        return int(self) > int(other)

    def __mul__(self, other: int) -> int:
        CountedInt.uses += 1
        return int(self) * other


def uses_of(function: Callable[[list[int]], Any], count: int, largest: int) -> float:
    """How often each number is used on average."""
    numbers = torch.randint(1, largest, (count,), generator=torch.Generator().manual_seed(0)).tolist()
    CountedInt.uses = 0
    function([CountedInt(number) for number in numbers])
    return CountedInt.uses / count


@pytest.mark.parametrize(
    ("function", "largest"), [(fill_bins, 300), (lambda lengths: split_by_tokens(lengths, 10**5), 3)]
)
def test_finding_places_takes_no_more_per_sequence_than_a_few_steps_more_when_there_are_many(
    function: Callable[[list[int]], Any], largest: int
) -> None:
    few, many = (uses_of(function, count, largest) for count in (500, 4000))
    assert many <= few + 12, "eight times as many: three steps more of each search by halves"
    assert many < 60


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40))
def test_every_sequence_goes_where_it_first_fits(sizes: list[int]) -> None:
    room: list[int] = []
    expected: list[list[int]] = []
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        place = next((b for b, free in enumerate(room) if sizes[i] <= free), len(room))
        if place == len(room):
            room.append(max(sizes))
            expected.append([])
        room[place] -= sizes[i]
        expected[place].append(i)
    assert fill_bins(sizes) == expected


def test_rows_with_a_mask_have_an_aligned_width_on_a_device_and_the_same_tokens() -> None:
    (here,) = pack(ITEMS, 10**6, 0, torch.device("cpu"), "actions")
    (there,) = pack(ITEMS, 10**6, 0, torch.device("meta"), "actions")
    width = -(-here.input_ids.shape[1] // ALIGNED) * ALIGNED
    assert here.input_ids.shape[1] < width
    assert here.mask is not None
    assert there.mask is not None
    assert there.mask.shape == (len(here.input_ids), 1, width, width)
    assert there.mask.device.type == there.state_index.device.type == "meta"
    assert there.rows.tolist() == here.rows.tolist()
