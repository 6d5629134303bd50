"""Whether answers share a row with their prompt is decided by cost, and does not change the states that are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from bench.shapes import model_config
from ppolm.base_setup import BaseModelSetup
from ppolm.base_setup.model_setup import setup_models
from ppolm.batches import arrange as arrange_module
from ppolm.batches.arrange import apart, bundled
from ppolm.batches.packing import Answers
from ppolm.batches.packing_cost import PAYS, Cost, apart_cost, bundles, most_together, packed_cost, topics
from ppolm.batches.sequences import Microbatch, TokenSequences
from ppolm.config import SFTConfig
from ppolm.supervised import RewardTrainer, SFTTrainer

COST = Cost.of(model_config("small"))
CPU = torch.device("cpu")


def ids(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers)


def answers(prompt: int, length: int, samples: int, prompts: int = 1) -> list[Answers]:
    """Distinct answers of the same length to distinct prompts of the same length."""
    asked = [torch.arange(prompt) + 1000 * number for number in range(prompts)]
    given = [torch.arange(length) + 10 * sample for sample in range(samples)]
    return [Answers(one, (text,)) for one in asked for text in given]


def decided(items: list[Answers], budget: int = 4096) -> int:
    return most_together(topics(items), budget, "actions", COST)


def test_a_long_prompt_is_shared_by_short_answers_and_a_short_one_not_by_long_answers() -> None:
    assert decided(answers(300, 16, 8)) == 8
    assert decided(answers(40, 256, 32), 10**5) == 0
    assert decided(answers(8, 512, 8)) == 0


def test_many_answers_share_rows_that_are_not_too_wide() -> None:
    """Thirty-two answers after one prompt would make a row of more than two thousand tokens."""
    assert decided(answers(200, 64, 32)) in (4, 8)


@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.lists(st.integers(1, 300), min_size=1, max_size=9)), min_size=1, max_size=4
    ),
    st.integers(100, 5000),
)
def test_the_decision_is_hardly_dearer_than_packing_all_or_nothing(
    lengths: list[tuple[int, list[int]]], budget: int
) -> None:
    items = [
        Answers(torch.full((prompt,), number), (torch.arange(length) + 7 * i,))
        for number, (prompt, own) in enumerate(lengths)
        for i, length in enumerate(own)
    ]
    groups = topics(items)
    most = most_together(groups, budget, "actions", COST)
    alone, whole = apart_cost(groups, budget, "actions", COST), packed_cost(groups, 99, budget, "actions", COST)
    chosen = packed_cost(groups, most, budget, "actions", COST) if most else alone
    assert PAYS * chosen <= min(alone, whole)


def test_wide_rows_cost_more_than_their_tokens_and_the_more_so_the_smaller_the_model() -> None:
    assert COST.of_pass(1, 2000, 0, packed=True) > 2 * COST.of_pass(2, 500, 0, packed=True)
    large = Cost.of(model_config("qwen3-0.6b"))
    assert large.balance > 2 * COST.balance

    def share(cost: Cost) -> float:
        return cost.of_pass(1, 2000, 0, packed=True) / cost.of_pass(1, 200, 0, packed=True)

    assert share(large) < share(COST)


def test_a_prompt_is_held_once_for_all_rows_about_it_and_an_answer_once() -> None:
    first, second, third = ids(5, 6), ids(7), ids(8, 9)
    rows = [
        Answers(ids(1, 2), (first, second)),
        Answers(ids(3), (first,)),
        Answers(ids(1, 2), (third, first)),
    ]
    together = [bundle for topic in topics(rows) for bundle in bundles(topic, 99, 1000)]
    (batch,) = bundled(rows, together, 1000, 0, CPU, "ends")
    assert sorted(batch.input_ids[batch.input_ids > 0].tolist()) == [1, 2, 3, 5, 5, 6, 6, 7, 8, 9]
    last = dict(zip(batch.rows.tolist(), batch.actions.tolist(), strict=True))
    assert last == {0: 6, 1: 7, 2: 6, 3: 9, 4: 6}


def test_a_prompt_with_many_answers_does_not_outgrow_the_budget_and_rows_stay_whole() -> None:
    rows = [Answers(ids(1, 2, 3), (ids(4, number), ids(5, number, number))) for number in range(20)]
    (topic,) = topics(rows)
    made = bundles(topic, 99, 20)
    assert max(bundle.size for bundle in made) <= 20
    assert [item for bundle in made for item, _ in bundle.items] == list(range(20))
    assert {len(bundle.answers) for bundle in bundles(topic, 12, 10**6)} == {10}, (
        "four of ten, not three of 12 and one of 4"
    )


ITEMS = [
    Answers(ids(1, 2, 3), (ids(4, 5), ids(6, 7, 8))),
    Answers(ids(9, 10), (ids(11),)),
    Answers(ids(1, 2, 3), (ids(6, 7, 8), ids(17, 18))),
    Answers(ids(1, 2, 3), (ids(20),)),
]


@pytest.mark.parametrize("read", ["actions", "ends"])
@pytest.mark.parametrize("budget", [1, 12, 1000])
def test_states_come_in_the_order_of_the_items_whichever_way_they_are_computed(
    read: Any, budget: int, model_folder: Path
) -> None:
    setup = BaseModelSetup(SFTConfig(model_name=str(model_folder), device="cpu"))
    place = (budget, setup.tokenizer.pad_id, setup.device, read)
    flat = TokenSequences(*zip(*((one.prompt, text) for one in ITEMS for text in one.answers), strict=True))
    expected = torch.zeros(flat.wanted(read), setup.hidden_size)
    for batch in flat.microbatches(*place):
        with torch.no_grad():
            expected[batch.rows] = setup.wanted_states(batch.input_ids, batch)
    layouts = [list(apart(ITEMS, *place, segments=True))]
    for most in (1, 2, 99):
        together = [bundle for topic in topics(ITEMS) for bundle in bundles(topic, most, budget)]
        layouts.append(list(bundled(ITEMS, together, *place)))
    owners = [
        i for i, item in enumerate(ITEMS) for answer in item.answers for _ in (answer if read == "actions" else "1")
    ]
    for batches in layouts:
        assert sorted(torch.cat([batch.rows for batch in batches]).tolist()) == list(range(len(expected)))
        found = torch.zeros_like(expected)
        homes: dict[int, set[int]] = {}
        for number, batch in enumerate(batches):
            for row in batch.rows.tolist():
                homes.setdefault(owners[row], set()).add(number)
            with torch.no_grad():
                found[batch.rows] = setup.wanted_states(batch.input_ids, batch)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert all(len(home) == 1 for home in homes.values()), "all answers of an item in one pass"


def tokens_of(batches: list[Microbatch]) -> int:
    return sum(batch.input_ids.numel() for batch in batches)


def test_ppo_computes_a_prompt_again_where_sharing_it_would_cost_more(make_config: Any) -> None:
    policy = setup_models(make_config()).policy
    prompt, long, short = torch.arange(3, 43), torch.arange(256) % 250, torch.arange(8)
    for text, packed in ((long, False), (short, True)):
        sequences = TokenSequences([prompt] * 8, [(text + i) % 250 for i in range(8)])
        batches = list(policy.microbatches(sequences, 10**5))
        assert [batch.mask is not None for batch in batches] == [packed]
        assert tokens_of(batches) == (40 + 8 * 8 if packed else 8 * (40 + 256 - 1))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(1, 400), st.booleans())
def test_rows_of_their_own_are_grouped_as_the_sequences_alone_would_be(
    lengths: list[int], budget: int, segments: bool
) -> None:
    items = [Answers(torch.arange(length), (ids(1, 2, 3),)) for length in lengths]
    flat = TokenSequences([item.prompt for item in items], [item.answers[0] for item in items])
    ours = apart(items, budget, 0, CPU, "actions", segments)
    plain = flat.microbatches(budget, 0, CPU, "actions", segments)
    assert [batch.rows.tolist() for batch in ours] == [batch.rows.tolist() for batch in plain]


def test_different_prompts_are_not_packed_for_ppo(make_config: Any) -> None:
    policy = setup_models(make_config()).policy
    sequences = TokenSequences([torch.arange(n) + 3 for n in (2, 30, 5)], [torch.arange(4)] * 3)
    assert all(batch.mask is None for batch in policy.microbatches(sequences, 1000))


def test_everything_that_packs_asks_the_same_function(
    model_folder: Path, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def watch(groups: Any, budget: int, read: Any, cost: Cost) -> int:
        asked.append(read)
        return most_together(groups, budget, read, cost)

    monkeypatch.setattr(arrange_module, "most_together", watch)
    from tests.supervised.small_trainings import DEMONSTRATIONS, PREFERENCES

    settings: dict[str, Any] = {"model_name": str(model_folder), "lora_r": 4, "device": "cpu"}
    sft = SFTTrainer(SFTConfig(**settings), DEMONSTRATIONS)
    list(sft.microbatches(sft.rows[:4]))
    assert asked == ["actions"]
    from ppolm.config import RewardConfig

    reward = RewardTrainer(RewardConfig(**settings), PREFERENCES)
    list(reward._parts(reward.rows[:4]))
    assert asked == ["actions", "ends"]
    reward.model.score_texts(["one", "one"], ["a", "b"])
    assert asked == ["actions", "ends", "ends"]
    policy = setup_models(make_config()).policy
    list(policy.microbatches(TokenSequences([ids(3, 4)] * 2, [ids(5), ids(6)]), 100))
    assert asked == ["actions", "ends", "ends", "actions"]
