"""The model card of the embedded model: how it was made, and its scores on posts it has never seen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path
from random import Random

from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from ppolm.embedded.world import Post, world_posts
from ppolm.embedded.world.contrasts import CONTRASTS, Pair
from ppolm.embedded.world.gold import gold, judge_summary
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling

POSTS = 512


def measure(model: Path, reward: Path, count: int = POSTS) -> dict[str, dict[str, float]]:
    """Gold of the SFT model, sampled and greedy, and accuracy of the reward model by kind of pair, on test posts."""
    models = setup_models(PPOConfig(model_name=str(model), reward_model=(str(reward),), device="cpu"))
    posts = world_posts("test", count, seed=1)
    first, second = summaries(models, posts, seed=0), summaries(models, posts, seed=1)
    greedy = summaries(models, posts, seed=0, greedy=True)
    random = Random("card")
    pairs = {make.__name__.replace("_", " "): contrasts(posts, make, random) for make in dict.fromkeys(CONTRASTS)}
    pairs = {"two samples of the SFT model": list(zip(first, second, strict=True))} | pairs
    return {
        "sampled": judged(posts, first),
        "greedy": judged(posts, greedy),
        "accuracy": {name: accuracy(models, posts, some) for name, some in pairs.items()},
    }


def summaries(models: Models, posts: list[Post], seed: int, greedy: bool = False) -> list[str]:
    """A summary of each post by the SFT model."""
    generator = Generator(models.sft, models.setup, Sampling(48, greedy=greedy), seed)
    return [text.strip() for text in generator.generate([post.text for post in posts])[0]]


def judged(posts: list[Post], texts: list[str]) -> dict[str, float]:
    """Means of the judge's findings."""
    seen = [judge_summary(post, text) for post, text in zip(posts, texts, strict=True)]
    return {
        "gold": statistics.fmean(one.score for one in seen),
        "facts stated, of 5": statistics.fmean(len(one.covered) for one in seen),
        "wrong facts": statistics.fmean(len(one.wrong) for one in seen),
        "extra words": statistics.fmean(one.extra_words for one in seen),
        "share with gold 1": statistics.fmean(one.score == 1 for one in seen),
    }


def contrasts(posts: list[Post], make: Callable[[dict[str, str], Random], Pair], random: Random) -> list[Pair]:
    """For each post, a pair of summaries that differ in one respect."""
    return [make(post.facts.as_dict(), random) for post in posts]


def accuracy(models: Models, posts: list[Post], pairs: list[Pair]) -> float:
    """Share of the pairs with different gold scores in which the reward model scores the better one higher."""
    assert models.reward is not None
    clear = [
        (post.text, *(pair if gold(post, pair[0]) > gold(post, pair[1]) else pair[::-1]))
        for post, pair in zip(posts, pairs, strict=True)
        if abs(gold(post, pair[0]) - gold(post, pair[1])) > 1e-9
    ]
    if not clear:  # a model too small to write anything
        return math.nan
    prompts = [post for post, _, _ in clear]
    better = models.reward(prompts, [f" {text}" for _, text, _ in clear])
    worse = models.reward(prompts, [f" {text}" for _, _, text in clear])
    return statistics.fmean(one > other for one, other in zip(better, worse, strict=True))


def card(scores: dict[str, dict[str, float]], facts: dict[str, str]) -> str:
    """The README.md of the embedded model's folder."""
    sampled, greedy = scores["sampled"], scores["greedy"]
    lines = [
        "# The embedded model",
        "",
        "A language model small enough to ship inside the package, so that PPO can be seen working without a GPU, a",
        "download or an account. It knows one made-up world of posts and their summaries (`ppolm.embedded.world`) and",
        "is of no use outside it.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items()),
        "",
        "Written by `make embedded` (scripts/build_embedded.py), which makes everything from nothing: the same files,",
        "byte for byte, each time on the same machine. The numbers below are of",
        f"{POSTS} posts of the test split, which training never saw.",
        "",
        "## SFT model (`model/`)",
        "",
        "| | sampled, temperature 1 | greedy |",
        "|---|---:|---:|",
        *(f"| {name} | {sampled[name]:.3f} | {greedy[name]:.3f} |" for name in sampled),
        "",
        "## Reward model (`reward/`): how often the better summary scores higher",
        "",
        "| the two summaries differ by | accuracy |",
        "|---|---:|",
        *(f"| {name} | {value:.3f} |" for name, value in scores["accuracy"].items()),
        "",
    ]
    return "\n".join(lines)
