"""Why a token has the advantage it has, and what it would have with other settings: pure functions of a stored step."""

from ppolm.explain.advantage_terms import Contribution, Explanation, StepTerms, Whitening, explain_advantage
from ppolm.explain.in_words import sentences
from ppolm.explain.settings import StepSettings
from ppolm.explain.what_if import differences, recompute

__all__ = [
    "Contribution",
    "Explanation",
    "StepSettings",
    "StepTerms",
    "Whitening",
    "differences",
    "explain_advantage",
    "recompute",
    "sentences",
]
