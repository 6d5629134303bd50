"""Evaluation on held-out prompts: is the policy improving, converged or collapsed?"""

from ppolm.evaluation.evaluator import Evaluator
from ppolm.evaluation.verdict import Convergence, Performance

__all__ = ["Convergence", "Evaluator", "Performance"]
