"""Train, validation and test posts, which never share a combination of facts."""

from __future__ import annotations

import hashlib
from random import Random

from ppolm.embedded.world.facts import Facts
from ppolm.embedded.world.post import Post, write_post
from ppolm.errors import DataError

SPLITS = ("train", "validation", "test")


def split_of(facts: Facts) -> str:
    """The split that a combination of facts always belongs to: 80 % train, 10 % validation, 10 % test."""
    digest = hashlib.sha256("|".join(facts.as_dict().values()).encode()).digest()
    return {8: "validation", 9: "test"}.get(digest[0] % 10, "train")


def world_posts(split: str, count: int, seed: int = 0) -> list[Post]:
    """``count`` posts of a split, all with different facts; depends only on the arguments."""
    if split not in SPLITS:
        raise DataError(f"The embedded world has no split {split!r}. Choose one of: {', '.join(SPLITS)}.")
    random, seen, posts = Random(f"{split} {seed}"), set[Facts](), list[Post]()
    while len(posts) < count:
        facts = Facts.draw(random)
        if split_of(facts) == split and facts not in seen:
            seen.add(facts)
            posts.append(write_post(facts, random))
    return posts
