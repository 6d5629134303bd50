"""The experience buffer: a budget of tokens, whole sequences, and minibatches that visit each of them once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ppolm.batches.sequences import Microbatch
from ppolm.config import PPOConfig
from ppolm.experience_buffer import BatchedData, ExperienceBuffer
from ppolm.ppo_trainer import PPOTrainer
from ppolm.token_attribution import SAPairs
from tests.conftest import PROMPTS

ORDERS = ("shuffled", "bucketed", "grouped")
LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def table_of(lengths: list[int], first: int = 0) -> SAPairs:
    """Sequences of the given lengths; all actions of sequence i are the number ``first + i``."""
    sizes = torch.tensor(lengths)
    names = torch.arange(len(lengths)) + first
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    return SAPairs(
        columns={
            "prompt_idx": torch.repeat_interleave(torch.arange(len(lengths)), sizes),
            "step": torch.cat([torch.arange(length) for length in lengths]),
            "action_id": torch.repeat_interleave(names, sizes),
        },
        offsets=offsets,
        ended=torch.ones(len(lengths), dtype=torch.bool),
        prompts=[[int(name)] for name in names],
    )


def names_of(table: SAPairs) -> list[int]:
    """The sequences of a table, which must be whole: one name each, steps from 0."""
    names = []
    for actions, steps in zip(table.per_sequence("action_id"), table.per_sequence("step"), strict=True):
        assert len(set(actions.tolist())) == 1
        assert steps.tolist() == list(range(len(steps)))
        names.append(int(actions[0]))
    return names


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def padding(batches: list[SAPairs]) -> int:
    return sum(int(batch.lengths.max()) * batch.num_sequences - len(batch) for batch in batches)


# ---- capacity -------------------------------------------------------------------------------------------------------


def test_capacity_counts_tokens_and_is_reached_without_eviction() -> None:
    buffer = ExperienceBuffer(capacity=6)
    data = buffer.store(table_of([1, 2, 3]))
    assert len(buffer) == 6
    assert buffer.evicted_tokens == 0
    assert names_of(data.pairs) == [0, 1, 2]


def test_overflow_takes_the_oldest_sequences_whole_and_counts_them(caplog: pytest.LogCaptureFixture) -> None:
    buffer = ExperienceBuffer(capacity=6, max_rollouts=10)
    buffer.store(table_of([2, 2]))
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        data = buffer.store(table_of([1, 3], first=10))
    # 8 tokens in all, 2 too many: the first sequence goes.
    assert names_of(data.pairs) == [1, 10, 11]
    assert len(buffer) == 6
    assert buffer.evicted_tokens == 2
    [record] = caplog.records
    assert "buffer_capacity 6 exceeded: 2 tokens evicted" in record.getMessage()


def test_a_sequence_is_never_cut_even_if_less_would_do() -> None:
    buffer = ExperienceBuffer(capacity=7)
    assert names_of(buffer.store(table_of([5, 3])).pairs) == [1]
    assert buffer.evicted_tokens == 5


def test_evicted_tokens_add_up_over_rollouts() -> None:
    buffer = ExperienceBuffer(capacity=4, max_rollouts=10)
    for rollout in range(4):
        buffer.store(table_of([2, 2], first=2 * rollout))
    assert buffer.evicted_tokens == 12
    assert len(buffer) == 4


def test_eviction_crosses_the_border_between_rollouts() -> None:
    buffer = ExperienceBuffer(capacity=5, max_rollouts=10)
    buffer.store(table_of([1, 1]))
    buffer.store(table_of([1, 2], first=10))
    data = buffer.store(table_of([1, 2], first=20))
    assert names_of(data.pairs) == [11, 20, 21]
    assert buffer.evicted_tokens == 3


def test_newest_sequence_stays_even_if_it_alone_is_too_long() -> None:
    buffer = ExperienceBuffer(capacity=3, max_rollouts=10)
    buffer.store(table_of([2]))
    data = buffer.store(table_of([1, 9], first=10))
    assert names_of(data.pairs) == [11]
    assert len(buffer) == 9
    assert buffer.evicted_tokens == 3


@given(rollouts=st.lists(LENGTHS, min_size=1, max_size=4), capacity=st.integers(1, 40), kept=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_buffer_holds_the_longest_recent_stretch_that_fits(rollouts: list[list[int]], capacity: int, kept: int) -> None:
    buffer = ExperienceBuffer(capacity, max_rollouts=kept)
    held: list[list[tuple[int, int]]] = []  # (name, length) of each sequence of each rollout: the rule, done slowly
    evicted = name = 0
    for lengths in rollouts:
        data = buffer.store(table_of(lengths, first=name))
        held = [*held, list(zip(range(name, name + len(lengths)), lengths, strict=True))][-kept:]
        name += len(lengths)
        while sum(length for rollout in held for _, length in rollout) > capacity and sum(map(len, held)) > 1:
            evicted += held[0].pop(0)[1]
            held = [rollout for rollout in held if rollout]
        assert names_of(data.pairs) == [number for rollout in held for number, _ in rollout]
        assert len(buffer) == len(data.pairs)
        assert buffer.evicted_tokens == evicted


# ---- rollouts -------------------------------------------------------------------------------------------------------


def test_on_policy_buffer_holds_the_newest_rollout_only() -> None:
    buffer = ExperienceBuffer(capacity=1000)
    buffer.store(table_of([2, 3]))
    data = buffer.store(table_of([1, 4], first=10))
    assert names_of(data.pairs) == [10, 11]


def test_replay_lets_rollouts_go_that_are_too_old_without_calling_it_eviction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    buffer = ExperienceBuffer(capacity=1000, max_rollouts=2)
    buffer.store(table_of([1]))
    buffer.store(table_of([2], first=10))
    data = buffer.store(table_of([3], first=20))
    assert names_of(data.pairs) == [10, 20]
    assert buffer.evicted_tokens == 0
    assert not caplog.records


def test_rollouts_in_the_buffer_keep_their_own_prompts() -> None:
    buffer = ExperienceBuffer(capacity=4, max_rollouts=2)
    buffer.store(table_of([2, 2]))
    data = buffer.store(table_of([1, 1], first=10))
    assert [context.tolist() for context in data.pairs.sequences.contexts] == [[1], [10], [11]]


def test_what_is_stored_is_ready_for_training_and_not_changed() -> None:
    table = table_of([2, 3]).with_columns(advantage=torch.arange(5.0))
    data = ExperienceBuffer(capacity=100).store(table)
    assert isinstance(data, BatchedData)
    assert torch.equal(data.pairs.column("advantage"), torch.arange(5.0))
    [batch] = data.minibatches(8, "shuffled", seeded())
    assert [len(actions) for actions in batch.sequences.actions] == batch.lengths.tolist()
    assert table.column("advantage").tolist() == [0, 1, 2, 3, 4]
    assert names_of(table) == [0, 1]


def test_a_plain_list_of_dicts_can_be_stored() -> None:
    rows = [{"state": "So", "action": " what", "kl": 0.5}, {"state": "So what", "action": "?", "kl": -0.5}]
    data = ExperienceBuffer(capacity=100).store(rows)
    assert data.pairs.num_sequences == 1
    assert data.pairs[1]["action"] == "?"


# ---- minibatches ----------------------------------------------------------------------------------------------------


@given(lengths=LENGTHS, size=st.integers(1, 13), seed=st.integers(0, 1000), order=st.sampled_from(ORDERS))
@settings(max_examples=60, deadline=None)
def test_each_sequence_is_visited_exactly_once_per_pass(lengths: list[int], size: int, seed: int, order: str) -> None:
    table = table_of(lengths)
    batches = list(BatchedData(table).minibatches(size, order, seeded(seed)))
    assert sorted(name for batch in batches for name in names_of(batch)) == list(range(len(lengths)))
    assert len(batches) == -(-len(lengths) // size)
    assert all(batch.num_sequences <= size for batch in batches)
    assert sum(map(len, batches)) == len(table)
    for batch in batches:
        assert batch.lengths.tolist() == [lengths[name] for name in names_of(batch)]


def passes(order: str, seed: int, count: int, lengths: list[int] | None = None) -> list[list[list[int]]]:
    data, random = BatchedData(table_of(lengths or [1, 5, 2, 4, 3, 6, 1, 2, 9, 3, 7, 8])), seeded(seed)
    return [[names_of(batch) for batch in data.minibatches(3, order, random)] for _ in range(count)]


@pytest.mark.parametrize("order", ORDERS)
def test_epochs_differ_and_come_back_with_the_seed(order: str) -> None:
    epochs = passes(order, seed=0, count=4)
    assert all(before != after for before, after in pairwise(epochs))
    assert passes(order, seed=0, count=4) == epochs
    assert passes(order, seed=1, count=4) != epochs


def test_bucketed_minibatches_mix_sequences_of_equal_length_anew_each_epoch() -> None:
    groups = [{frozenset(batch) for batch in epoch} for epoch in passes("bucketed", seed=0, count=5, lengths=[4] * 12)]
    assert len({frozenset(group) for group in groups}) == 5


def test_bucketed_minibatches_are_visited_in_random_order_of_length() -> None:
    epochs = passes("bucketed", seed=0, count=8, lengths=list(range(1, 13)))
    assert {epoch[0][0] for epoch in epochs} != {0}, "the shortest must not always come first"
    assert all(sorted(map(min, epoch)) == [0, 3, 6, 9] for epoch in epochs)


@given(lengths=LENGTHS, size=st.integers(1, 5), seed=st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_bucketed_minibatches_hold_neighbours_in_length(lengths: list[int], size: int, seed: int) -> None:
    batches = list(BatchedData(table_of(lengths)).minibatches(size, "bucketed", seeded(seed)))
    spans = sorted((int(batch.lengths.min()), int(batch.lengths.max())) for batch in batches)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_bucketing_pads_less_than_shuffling() -> None:
    lengths = torch.randint(1, 60, (64,), generator=seeded(5)).tolist()
    data = BatchedData(table_of(lengths))
    bucketed = padding(list(data.minibatches(8, "bucketed", seeded())))
    shuffled = min(padding(list(data.minibatches(8, "shuffled", seeded(seed)))) for seed in range(10))
    assert bucketed < shuffled / 3


def test_grouped_minibatches_keep_the_answers_to_a_prompt_together_in_ever_new_company() -> None:
    table = table_of([2] * 12)
    owners = torch.arange(3).repeat(4)  # answers to three prompts, one after the other
    table = table.with_columns(prompt_idx=torch.repeat_interleave(owners, 2))
    data, random, orders = BatchedData(table), seeded(), set()
    for _ in range(8):
        batches = [names_of(batch) for batch in data.minibatches(4, "grouped", random)]
        assert all(len({name % 3 for name in batch}) == 1 for batch in batches)
        orders.add(tuple(map(tuple, batches)))
    assert len(orders) == 8
    assert len({batches[0][0] % 3 for batches in orders}) > 1, "prompts are visited in random order"


def test_grouped_minibatches_compute_a_prompt_once_for_the_answers_in_them(
    make_config: Callable[..., PPOConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: dict[str, int] = {}
    for order in ("shuffled", "grouped"):
        config = make_config(samples_per_prompt=4, batch_size=16, minibatch_size=4, ppo_epochs=1, minibatch_order=order)
        trainer = PPOTrainer(config)
        pairs = trainer.ppo_step(PROMPTS[:4])["sa_pairs"]
        microbatches, sizes = trainer.models.value.microbatches, []

        def count(*given: Any) -> Iterator[Microbatch]:
            for batch in microbatches(*given):  # noqa: B023 called before the next turn
                sizes.append(batch.input_ids.numel())  # noqa: B023
                yield batch

        monkeypatch.setattr(trainer.models.value, "microbatches", count)
        trainer.model_trainer.train_value_model(pairs)
        computed[order] = sum(sizes)
    assert computed["grouped"] < 0.7 * computed["shuffled"]
