"""Estimating the memory and operations of a PPO step before anything large is loaded."""

from ppolm.estimate.estimate import RunEstimate, estimate
from ppolm.estimate.model_shape import ModelShape, read_shape
from ppolm.estimate.operations import Work

__all__ = ["ModelShape", "RunEstimate", "Work", "estimate", "read_shape"]
