"""State-action pairs: one row per generated token."""

from ppolm.token_attribution.sa_pair_builder import as_sa_pairs, from_dicts
from ppolm.token_attribution.sa_pairs import SAPairs

__all__ = ["SAPairs", "as_sa_pairs", "from_dicts"]
