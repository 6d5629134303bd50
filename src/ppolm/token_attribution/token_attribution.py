"""From sampled responses to state-action pairs with their log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ppolm.errors import DataError
from ppolm.models import PolicyModel, SFTModel
from ppolm.rollout.generated_text import GeneratedText
from ppolm.state import State
from ppolm.token_attribution.sa_pair_builder import build_sa_pairs
from ppolm.token_attribution.sa_pairs import SAPairs

AGREES = 1e-4
"""Largest difference of a log-probability between sampler and scorer that counts as agreement. float32 rounding is far
below it, bfloat16 rounding far above."""


class TokenAttributor:
    """Attributes to each token its log-probability under the policy and the reference."""

    def __init__(
        self,
        policy: PolicyModel,
        sft: SFTModel,
        temperature: float,
        token_budget: int,
        recompute_logprobs: Literal["auto", "always", "never"],
    ) -> None:
        self.policy, self.sft = policy, sft
        self.temperature, self.token_budget = temperature, token_budget
        self.recompute_logprobs = recompute_logprobs
        self.sampler_agrees = False
        """Whether sampler and scorer agreed in the last step; only ``observe`` and a checkpoint change it."""

    @property
    def recomputes(self) -> bool:
        """Whether the policy is scored rather than trusting the sampler's numbers; with ``auto`` always in 16 bits."""
        if self.recompute_logprobs != "auto":
            return self.recompute_logprobs == "always"
        return not self.sampler_agrees or self.policy.setup.dtype != torch.float32

    def state_dict(self) -> State:
        """Whether the sampler agreed."""
        return {"sampler_agrees": self.sampler_agrees}

    def load_state_dict(self, state: State) -> None:
        """Restore whether the sampler agreed."""
        self.sampler_agrees = bool(state["sampler_agrees"])

    def observe(self, mismatch: float) -> None:
        """Record how far apart sampler and scorer were in a training step; NaN: it could not be measured."""
        if not math.isnan(mismatch):
            self.sampler_agrees = mismatch <= AGREES

    def extract_pairs(
        self, text: GeneratedText | Sequence[GeneratedText], logprobs: Tensor | Sequence[Tensor]
    ) -> SAPairs:
        """The table of one or more responses with ``logprob_policy``, ``logprob_ref`` and ``logprob_sampler``.

        Sampling runs token by token with a cache, scoring runs whole sequences: their rounding differs. Policy and
        reference are therefore scored in the same way over the same microbatches, so that equal models have a KL of
        exactly 0, unless the sampler agreed in the last step, or ``recompute_logprobs`` says otherwise. A sampler that
        does not know the policy's log-probabilities gives NaN; ``logprob_sampler`` is then the policy's.
        """
        if isinstance(text, GeneratedText):
            text, logprobs = [text], [torch.as_tensor(logprobs)]
        if not text or not all(isinstance(item, GeneratedText) for item in text):
            raise DataError("extract_pairs needs the responses that Generator.generate returned: they carry token ids.")
        if [len(item.token_ids) for item in text] != [len(item) for item in logprobs]:
            raise DataError("extract_pairs needs one log-probability for each token of each response.")
        pairs = build_sa_pairs(text, logprob_sampler=torch.cat([torch.as_tensor(item) for item in logprobs]).float())
        sequences = pairs.sequences
        # The trunk's cache is valid for one table: the step's value model and updates reuse what scoring cached.
        # Cleared here, not in the loop over steps, so that a step gives the same numbers however it is called.
        self.policy.adapters.forget_states()
        logprob_policy = logprob_sampler = pairs.columns["logprob_sampler"]
        unknown = logprob_sampler.isnan()
        if self.recomputes or bool(unknown.any()):
            logprob_policy = self.policy.logprobs(sequences, self.temperature, self.token_budget)
            logprob_sampler = torch.where(unknown, logprob_policy, logprob_sampler)
        logprob_ref = self.sft.logprobs(sequences, self.temperature, self.token_budget)
        found = {"logprob_sampler": logprob_sampler, "logprob_policy": logprob_policy, "logprob_ref": logprob_ref}
        return pairs.with_columns(**found)
