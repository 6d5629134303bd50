"""Storage of experience between rollout and training."""

from ppolm.experience_buffer.buffer import BatchedData, ExperienceBuffer

__all__ = ["BatchedData", "ExperienceBuffer"]
