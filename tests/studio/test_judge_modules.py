"""Small parts of the judging page by themselves: active time, and the words that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.studio.serving import Served, serving

Visit = Callable[..., Any]
TIME = """async () => {
  const { ActiveTime } = await import("/static/js/active_time.js");
  let now = 0, seen = true;
  const time = new ActiveTime(() => now, () => seen);
  const found = [];
  now = 10_000; found.push(time.seconds());
  seen = false; time.turn();                       // hidden for an hour
  now += 3_600_000; found.push(time.seconds());
  seen = true; time.turn();
  now += 5_000; time.note(); found.push(time.seconds());
  now += 300_000; found.push(time.seconds());      // nobody there: one minute counts
  time.note(); now += 1_000; found.push(time.seconds());
  time.begin(); now += 2_000; found.push(time.seconds());
  return found;
}"""
WORDS = """async ([first, second]) => {
  const { differences } = await import("/static/js/word_diff.js");
  return differences(first, second);
}"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, store=tmp_path / "feedback.db") as running:
        yield running


def test_hidden_tabs_and_minutes_without_input_do_not_count(served: Served, visit: Visit) -> None:
    assert visit(served).evaluate(TIME) == [10, 10, 15, 75, 76, 2]


def test_words_that_differ_are_marked_and_the_texts_stay_whole(served: Served, visit: Visit) -> None:
    page = visit(served)
    first, second = "  The cat sat on the mat.\nIt slept.", "  The dog sat on a mat.\nIt slept!"
    left, right = page.evaluate(WORDS, [first, second])
    assert "".join(part["text"] for part in left) == first
    assert "".join(part["text"] for part in right) == second
    assert [part["text"].strip() for part in left if part["only"]] == ["cat", "the", "."]
    assert [part["text"].strip() for part in right if part["only"]] == ["dog", "a", "!"]
    assert page.evaluate(WORDS, ["", "new"]) == [[], [{"text": "new", "only": True}]]
    assert page.evaluate(WORDS, ["a " * 5000, "b " * 5000]) is None, "too long to compare word by word"
