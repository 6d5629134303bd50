"""The embedded world as data rows, for the commands: prompt, completion, and a preference with its noise."""

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
"""Posts of each split that the name ``embedded`` stands for."""

DRAWS = {"train": 0, "validation": 0, "test": 2}
"""Which draw of each split that is. Draws 0 and 1 of the test split were looked at while the demo was made."""

Row = tuple[str, Any]
"""Where a row stands, for error messages, and what it holds."""


NOISE = 0.15
"""Share of the training preferences in which the judge, like people, says the opposite of what it means."""


def read_world(split: str) -> Iterator[Row]:
    """Posts with a summary that somebody wrote under them, and two others, one of which the judge preferred."""
    random, noise = Random(split), NOISE if split == "train" else 0.0  # what measures a reward model is clean
    for number, post in enumerate(world_posts(split, COUNTS.get(split, 1), DRAWS.get(split, 0)), 1):
        if number % 2:
            preference = preference_row(post, two_references(post.facts, random), noise, random)
        else:  # which side of a made pair has the fault is known
            preference = preference_row(post, contrast(post.facts, random), 0.0, random)
        row = {"completion": f" {reference_summary(post.facts, random)}"} | preference
        yield f"{EMBEDDED} ({split}), row {number},", row
