"""The processes of one job: what they share, and how they stay equal."""

from ppolm.ranks.join import join_ranks
from ppolm.ranks.ranks import Ranks

__all__ = ["Ranks", "join_ranks"]
