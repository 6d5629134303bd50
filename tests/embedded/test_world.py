"""The embedded world: posts that do not repeat, splits that never share facts, summaries of known quality."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppolm.data.examples import Preference
from ppolm.data.load_rows import load_demonstrations, load_judgements, load_prompts
from ppolm.embedded.world import SLOTS, SPLITS, Facts, grammar, parse_post, world_posts, write_post
from ppolm.embedded.world.contrasts import CONTRASTS, contrast
from ppolm.embedded.world.gold import gold
from ppolm.embedded.world.rows import COUNTS
from ppolm.embedded.world.splits import split_of
from ppolm.embedded.world.summaries import reference_summary, summarize
from ppolm.embedded.world.tokenizer import make_tokenizer
from ppolm.errors import DataError
from ppolm.measures.words import words

facts = st.builds(Facts, **{slot: st.sampled_from(values) for slot, values in SLOTS.items()})


@given(facts, st.integers(0, 10**6))
def test_a_post_states_its_facts_so_that_they_can_be_read_back(given_facts: Facts, seed: int) -> None:
    post = write_post(given_facts, Random(seed))
    assert parse_post(post.text) == post
    assert post.text.startswith("SUBREDDIT: r/")
    assert post.text.endswith("\nTL;DR:")


def test_text_from_elsewhere_is_an_error_that_says_so() -> None:
    with pytest.raises(DataError, match="not a post of the embedded world"):
        parse_post("SUBREDDIT: r/advice\nTITLE: Hi\nPOST: My sister sings.\nTL;DR:")


def test_posts_do_not_repeat_and_splits_never_share_a_fact_combination() -> None:
    posts = {split: world_posts(split, 2000) for split in SPLITS}
    assert all(len({post.text for post in some}) == 2000 for some in posts.values())
    combinations = {split: {post.facts for post in some} for split, some in posts.items()}
    assert all(len(some) == 2000 for some in combinations.values())
    for one, other in itertools.combinations(SPLITS, 2):
        assert not combinations[one] & combinations[other]
    other_seed = world_posts("train", 2000, seed=7)
    assert {split_of(post.facts) for post in other_seed} == {"train"}


def test_the_same_arguments_give_the_same_posts() -> None:
    assert world_posts("test", 50) == world_posts("test", 50)
    assert world_posts("test", 50) == world_posts("test", 100)[:50]
    assert world_posts("test", 50) != world_posts("test", 50, seed=1)


def test_no_value_can_be_mistaken_for_another_or_for_a_fixed_sentence() -> None:
    values = [value for slot in SLOTS.values() for value in slot]
    assert len({value.lower() for value in values}) == len(values)
    said = {value: f" {' '.join(words(value))} " for value in values}
    for one, other in itertools.permutations(values, 2):
        assert said[one] not in said[other], (one, other)
    fixed = " ".join(words(" . ".join((*grammar.FLUFF, *grammar.OPENINGS, *grammar.DISTRACTORS))))
    phrases = [value for slot, values in SLOTS.items() if slot != "who" for value in values]
    assert not [value for value in phrases if value in fixed]


@given(facts, st.integers(0, 10**6))
def test_the_better_side_of_a_contrast_is_better(given_facts: Facts, seed: int) -> None:
    random = Random(seed)
    post = write_post(given_facts, random)
    for make in set(CONTRASTS):
        better, worse = make(given_facts.as_dict(), random)
        assert gold(post, better) > gold(post, worse), make.__name__
    better, worse = contrast(given_facts, random)
    assert better != worse


def test_a_complete_summary_is_perfect_and_references_are_of_mixed_quality() -> None:
    random, posts = Random(0), world_posts("train", 1000)
    assert all(gold(post, summarize(post.facts.as_dict())) == 1.0 for post in posts)
    scores = [gold(post, reference_summary(post.facts, random)) for post in posts]
    assert 0.3 < sum(scores) / len(scores) < 0.6
    assert 0 < sum(score == 1 for score in scores) < 150


@pytest.mark.parametrize("split", SPLITS)
def test_embedded_is_a_name_for_prompts_demonstrations_and_preferences(split: str) -> None:
    prompts = load_prompts(f"embedded:{split}")
    assert len(prompts) == COUNTS[split]
    assert prompts == load_prompts("embedded", split)
    assert {split_of(parse_post(str(prompt.content)).facts) for prompt in prompts} == {split}
    assert len(load_demonstrations("embedded", split)) == len(load_judgements("embedded", split)) == COUNTS[split]


def test_people_contradict_the_judge_in_as_many_preferences_as_the_noise_says() -> None:
    rows = [row for row in load_judgements("embedded") if isinstance(row, Preference)]
    assert len(rows) == COUNTS["train"]
    rows = rows[::2]  # the others are constructed pairs, whose better side is known
    posts = [str(row.prompt.content) for row in rows]
    differences = [gold(post, row.chosen) - gold(post, row.rejected) for post, row in zip(posts, rows, strict=True)]
    clear = [difference for difference in differences if abs(difference) > 1e-9]
    assert len(clear) > 1500
    assert sum(difference < 0 for difference in clear) / len(clear) == pytest.approx(0.15, abs=0.03)


def test_an_unknown_split_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"no split 'dev'.*train, validation, test"):
        load_prompts("embedded:dev")


@given(st.text())
def test_the_tokenizer_writes_any_text_and_a_word_of_the_world_is_one_token(text: str) -> None:
    tokenizer = make_tokenizer(["My sister hates my haircut."])
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer("My sister hates my haircut.")["input_ids"]) == 6
