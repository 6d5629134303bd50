"""The embedded TL;DR world: posts from a grammar, their facts, and summaries of known quality."""

from ppolm.embedded.world.facts import SLOTS, Facts
from ppolm.embedded.world.post import Post, parse_post, write_post
from ppolm.embedded.world.splits import SPLITS, world_posts

__all__ = ["SLOTS", "SPLITS", "Facts", "Post", "parse_post", "world_posts", "write_post"]
