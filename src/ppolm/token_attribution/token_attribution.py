"""From sampled responses to state-action pairs with their log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppolm.errors import DataError
from ppolm.models import PolicyModel, SFTModel
from ppolm.rollout.generated_text import GeneratedText
from ppolm.token_attribution.sa_pair_builder import build_sa_pairs
from ppolm.token_attribution.sa_pairs import SAPairs


class TokenAttributor:
    """Attributes to each token what policy and reference thought of it."""

    def __init__(
        self, policy: PolicyModel, sft: SFTModel, temperature: float, token_budget: int, recompute_logprobs: bool
    ) -> None:
        self.policy, self.sft = policy, sft
        self.temperature, self.token_budget = temperature, token_budget
        self.recompute_logprobs = recompute_logprobs

    def extract_pairs(
        self, text: GeneratedText | Sequence[GeneratedText], logprobs: Tensor | Sequence[Tensor]
    ) -> SAPairs:
        """The table of one or more responses with ``logprob_policy``, ``logprob_ref`` and ``logprob_sampler``.

        Sampling runs token by token with a cache, scoring runs whole sequences: their roundings differ. Policy and
        reference are therefore scored by the same pass over the same microbatches (unless ``recompute_logprobs`` is
        off), so that equal models have a KL of exactly 0.
        """
        if isinstance(text, GeneratedText):
            text, logprobs = [text], [torch.as_tensor(logprobs)]
        if not text or not all(isinstance(item, GeneratedText) for item in text):
            raise DataError("extract_pairs needs the responses that Generator.generate returned: they carry token ids.")
        if [len(item.token_ids) for item in text] != [len(item) for item in logprobs]:
            raise DataError("extract_pairs needs one log-probability for each token of each response.")
        pairs = build_sa_pairs(text, logprob_sampler=torch.cat([torch.as_tensor(item) for item in logprobs]).float())
        sequences = pairs.sequences
        if self.policy.adapters.trunk is not None:
            self.policy.adapters.trunk.forget()
        logprob_policy = pairs.columns["logprob_sampler"]
        if self.recompute_logprobs:
            logprob_policy = self.policy.logprobs(sequences, self.temperature, self.token_budget)
        logprob_ref = self.sft.logprobs(sequences, self.temperature, self.token_budget)
        return pairs.with_columns(logprob_policy=logprob_policy, logprob_ref=logprob_ref)
