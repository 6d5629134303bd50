"""Prompts in, state-action pairs and texts out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ppolm.rollout.generated_text import GeneratedText
from ppolm.rollout.generator import Generator
from ppolm.token_attribution.sa_pairs import SAPairs
from ppolm.token_attribution.token_attribution import TokenAttributor


class SequenceGenerator:
    """Generates responses and attributes their tokens."""

    def __init__(self, generator: Generator, attributor: TokenAttributor) -> None:
        self.generator, self.attributor = generator, attributor

    def generate_sequences(self, prompts: Sequence[Any]) -> tuple[SAPairs, list[GeneratedText]]:
        """State, action and both log-probabilities of every generated token, and the generated texts."""
        texts, logprobs = self.generator.generate(prompts)
        return self.attributor.extract_pairs(texts, logprobs), texts
