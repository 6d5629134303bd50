"""The embedded world as data rows for the commands: prompt, completion, and a (noisy) preference."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from ppolm.embedded.world.contrasts import contrast, two_references
from ppolm.embedded.world.gold import preference_row
from ppolm.embedded.world.splits import world_posts
from ppolm.embedded.world.summaries import reference_summary
from ppolm.names import EMBEDDED

COUNTS = {"train": 4000, "validation": 256, "test": 256}
"""Number of posts in each split of ``embedded``."""

DRAWS = {"train": 0, "validation": 0, "test": 2}
"""The seed of each split's draw. Draws 0 and 1 of the test split were looked at while the demo was developed."""

Row = tuple[str, Any]
"""Where a row comes from, for error messages, and its content."""


NOISE = 0.15
"""Probability that a training preference is flipped, as people make mistakes too; constructed pairs have no noise."""


def read_world(split: str) -> Iterator[Row]:
    """Posts with a reference summary, and two other summaries with the judge's preference."""
    random, noise = Random(split), NOISE if split == "train" else 0.0  # reward models are measured on clean data
    for number, post in enumerate(world_posts(split, COUNTS.get(split, 1), DRAWS.get(split, 0)), 1):
        if number % 2:
            preference = preference_row(post, two_references(post.facts, random), noise, random)
        else:  # no noise: which side of a constructed pair has the fault is known
            preference = preference_row(post, contrast(post.facts, random), 0.0, random)
        row = {"completion": f" {reference_summary(post.facts, random)}"} | preference
        yield f"{EMBEDDED} ({split}), row {number},", row
