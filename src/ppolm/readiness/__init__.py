"""Is a reward model ready to be trained on? Measured on held-out judgements, with a verdict in words."""

from ppolm.readiness.assess import assess
from ppolm.readiness.readiness_report import Readiness
from ppolm.readiness.write import readiness_summary, write_readiness

__all__ = ["Readiness", "assess", "readiness_summary", "write_readiness"]
