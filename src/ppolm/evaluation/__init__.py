"""Is the policy getting better, has it stopped, or has it collapsed?"""

from ppolm.evaluation.evaluator import Evaluator
from ppolm.evaluation.verdict import Convergence, Performance

__all__ = ["Convergence", "Evaluator", "Performance"]
