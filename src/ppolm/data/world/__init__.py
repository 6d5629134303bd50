"""The embedded TL;DR world: posts from a grammar, their facts, and summaries of known quality."""

from ppolm.data.world.facts import SLOTS, Facts
from ppolm.data.world.post import Post, parse_post, write_post
from ppolm.data.world.splits import SPLITS, world_posts

__all__ = ["SLOTS", "SPLITS", "Facts", "Post", "parse_post", "world_posts", "write_post"]
