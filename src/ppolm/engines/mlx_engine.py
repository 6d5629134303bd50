"""Sampling with MLX, in this process, from a copy of the policy: for Apple machines, where torch trains."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import mlx.core as mx
import torch
from torch import Tensor

from ppolm.batches.sequences import TokenSequences
from ppolm.engines.lora_factors import lora_factors
from ppolm.engines.mlx_adapter import MLXAdapter
from ppolm.engines.mlx_model import load_base
from ppolm.engines.mlx_sampler import sample_with_mlx
from ppolm.errors import ModelError, PpolmError
from ppolm.messages import reason
from ppolm.models import PolicyModel
from ppolm.rollout.sampling import Sampled, Sampling

log = logging.getLogger(__name__)

PROMPT_LENGTHS = (11, 1, 7, 7)
"""Of the trial: unequal lengths, a single token, and a prompt that is given twice."""
NEW_TOKENS = 12
TRIALS = 2
"""The first copy of an adapter is tried, which may not change anything yet, and the first one that differs from it."""


class MLXEngine:
    """Samples with mlx-lm's code for the architecture. What it gives is compared with the policy before it is used."""

    def __init__(self, policy: PolicyModel) -> None:
        self.policy = policy
        factors = lora_factors(policy, "mlx")
        self.model = load_base(policy.setup)
        self.adapter = MLXAdapter(self.model, factors)
        self._trials = 0
        self.refresh()
        log.info("Responses are sampled with MLX on %s.", mx.default_device())

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor) -> list[Sampled]:
        """One response per prompt from the policy as it is now; ``uniforms`` decide every draw."""
        if not prompts:
            return []
        self._refuse_long(max(map(len, prompts)) + sampling.max_new_tokens)
        self.refresh()
        return self._sample(prompts, sampling, uniforms)

    def refresh(self) -> None:
        """Copy the policy's adapter if it has changed, and compare the two the first times."""
        if self.adapter.refresh() and self._trials < TRIALS:
            self._compare()
            self._trials += 1

    def _refuse_long(self, longest: int) -> None:
        window = self.policy.setup.capabilities.window
        if window is not None and longest > window:
            raise ModelError(
                f"A prompt and its response may have {longest} tokens, and some layers of {self.policy.setup.name} see "
                f"only {window}: mlx-lm ignores that for some architectures. Lower max_new_tokens, shorten the "
                "prompts, or set engine: local."
            )

    def _sample(self, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor) -> list[Sampled]:
        return sample_with_mlx(self.model, prompts, sampling, uniforms, self.policy.setup.tokenizer.eos_ids)

    def _compare(self) -> None:
        """Raise if the log-probabilities of sampled tokens are not those that the policy gives to the same tokens."""
        setup, random = self.policy.setup, torch.Generator().manual_seed(1)
        prompts = [
            torch.randint(setup.text_config.vocab_size, (length,), generator=random) for length in PROMPT_LENGTHS
        ]
        prompts[-1] = prompts[-2]
        uniforms = torch.rand(len(prompts), NEW_TOKENS, generator=random, dtype=torch.float64)
        try:
            sampled = self._sample([prompt.tolist() for prompt in prompts], Sampling(NEW_TOKENS), uniforms)
        except (PpolmError, MemoryError):
            raise
        except Exception as error:  # an architecture whose MLX code does not take batches may fail in any way
            raise ModelError(
                f"Model {setup.name} cannot be sampled with engine mlx: {reason(error).rstrip('.')}. Set engine: local."
            ) from error
        given = torch.cat([torch.tensor(one.logprobs) for one in sampled])
        sequences = TokenSequences(prompts, [torch.tensor(one.token_ids) for one in sampled])
        with setup.ranks.alone():  # every process has a copy of its own to compare
            own = self.policy.logprobs(sequences, 1.0, token_budget=sum(PROMPT_LENGTHS) + NEW_TOKENS * len(prompts))
        self.policy.adapters.forget_states()  # the trunk's cache is for the tokens of one step
        off, size = distance(given, own, exact=setup.dtype == torch.float32)
        limit = setup.rounding.mean * max(1.0, size)
        if not off <= limit:
            raise ModelError(
                f"Engine mlx gives other log-probabilities than the policy for {setup.name}: off by {off:.2g}, and "
                f"{limit:.2g} is rounding. mlx-lm may compute this architecture differently: set engine: local."
            )
        log.debug("MLX and torch differ by %.2g in log-probability.", off)


def distance(given: Tensor, own: Tensor, exact: bool) -> tuple[float, float]:
    """How far apart two lists of log-probabilities are, and the size of the numbers that rounding is relative to.

    In bfloat16 a single token may be off by several roundings of the largest logit; the root mean square is not.
    """
    if exact:
        return float((given - own).abs().max()), float(own.abs().max())
    return float((given - own).pow(2).mean().sqrt()), float(own.std())
