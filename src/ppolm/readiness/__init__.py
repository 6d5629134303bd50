"""Whether a reward model is ready to be used for PPO: measured on held-out judgements, with a verdict in words."""

from ppolm.readiness.assess import assess
from ppolm.readiness.readiness_report import Readiness
from ppolm.readiness.write import readiness_summary, write_readiness

__all__ = ["Readiness", "assess", "readiness_summary", "write_readiness"]
