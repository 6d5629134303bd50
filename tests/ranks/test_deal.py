"""Dealing work: everything once, loads alike, a prompt in one place, and the same answer on every process."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ppolm.ranks.deal import deal, deal_by_key

ITEMS = st.lists(st.tuples(st.integers(1, 200), st.sampled_from([b"a", b"b", b"c", b"d"])), max_size=60)


@given(ITEMS, st.integers(1, 6))
def test_loads_differ_by_no_more_than_one_share(items: list[tuple[int, bytes]], processes: int) -> None:
    sizes, keys = [size for size, _ in items], [key for _, key in items]
    owners = deal(sizes, keys, processes)
    assert owners == deal(sizes, keys, processes)
    assert set(owners) <= set(range(processes))
    loads = [sum(size for size, owner in zip(sizes, owners, strict=True) if owner == one) for one in range(processes)]
    share = -(-sum(sizes) // processes)
    assert max(loads) <= share + max([share, *sizes])
    assert max(loads) - min(loads) <= max([share, *sizes])


def test_samples_of_a_prompt_stay_together_where_that_is_fair() -> None:
    keys = [b"a", b"b", b"a", b"b", b"c", b"c", b"d", b"d"]
    owners = deal([10] * 8, keys, 2)
    assert all(owners[i] == owners[j] for i in range(8) for j in range(8) if keys[i] == keys[j])
    assert sorted(owners.count(process) for process in (0, 1)) == [4, 4]


def test_a_prompt_with_most_of_the_samples_is_split() -> None:
    owners = deal([10] * 8, [b"a"] * 8, 4)
    assert [owners.count(process) for process in range(4)] == [2, 2, 2, 2]


@given(st.lists(st.binary(max_size=8), max_size=40), st.integers(1, 6))
def test_by_key_an_item_stays_where_it_was_whatever_else_is_dealt(keys: list[bytes], processes: int) -> None:
    owners = deal_by_key(keys, processes)
    assert owners[::2] == deal_by_key(keys[::2], processes)
    assert set(owners) <= set(range(processes))


def test_nothing_is_dealt_to_nobody() -> None:
    assert deal([], [], 3) == deal_by_key([], 3) == []
