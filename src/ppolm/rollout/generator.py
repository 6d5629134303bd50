"""Prompts in, sampled responses with their log-probabilities out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ppolm.data.prompts import Prompt, as_prompts
from ppolm.errors import DataError
from ppolm.ranks import Ranks
from ppolm.ranks.checksums import digest
from ppolm.ranks.deal import deal
from ppolm.rollout.generated_text import GeneratedText
from ppolm.rollout.sampling import Sampled, Sampling
from ppolm.rollout.sampling_base import Tokenizer
from ppolm.state import State


class Engine(Protocol):
    """Anything that samples: token ids in, token ids with log-probabilities out. By default the policy itself."""

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor) -> list[Sampled]:
        """One response per prompt; ``uniforms`` [prompts, max_new_tokens] are the random numbers to use.

        Of several processes, each may be given a part of the prompts, or none.
        """


@runtime_checkable
class MeasuredEngine(Protocol):
    """An engine that has something to say about itself at every step."""

    def metrics(self) -> dict[str, float]:
        """Numbers by name."""


@runtime_checkable
class ReleasedEngine(Protocol):
    """An engine that leaves something elsewhere while it is used."""

    def release(self) -> None:
        """Remove it. What is sampled afterwards begins anew."""


class PromptLimits(Protocol):
    """How a prompt becomes tokens, and how many there may be. A base setup provides both."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to ids and back."""

    @property
    def context_length(self) -> int | None:
        """Longest sequence the model has positions for, if it says so."""


class Generator:
    """Samples ``samples_per_prompt`` responses for each prompt, reproducibly from its seed."""

    def __init__(
        self,
        engine: Engine,
        setup: PromptLimits,
        sampling: Sampling,
        seed: int = 0,
        samples_per_prompt: int = 1,
        ranks: Ranks | None = None,
    ) -> None:
        """``ranks`` are the processes that share the prompts among them."""
        self.engine, self.ranks = engine, ranks or Ranks()
        self.tokenizer = setup.tokenizer
        self.context_length = setup.context_length
        self.sampling = sampling
        self.samples_per_prompt = samples_per_prompt
        self.random = torch.Generator().manual_seed(seed)

    def generate(self, prompts: Sequence[Any]) -> tuple[list[GeneratedText], list[Tensor]]:
        """Responses and the log-probability of each of their tokens, the samples of a prompt side by side."""
        checked = as_prompts(prompts)
        encoded = [self.encode(prompt, i) for i, prompt in enumerate(checked)]
        owners = [i for i in range(len(checked)) for _ in range(self.samples_per_prompt)]
        uniforms = torch.rand(len(owners), self.sampling.max_new_tokens, generator=self.random, dtype=torch.float64)
        sampled = self._sample([encoded[i] for i in owners], uniforms)
        texts = [
            GeneratedText(self.tokenizer, checked[i], i, encoded[i], response.token_ids, response.ended)
            for i, response in zip(owners, sampled, strict=True)
        ]
        return texts, [torch.tensor(response.logprobs) for response in sampled]

    def _sample(self, prompts: list[list[int]], uniforms: Tensor) -> list[Sampled]:
        """A response per prompt. Several processes sample their shares; every response has its own random numbers."""
        if not self.ranks.shares:
            return self.engine.generate(prompts, self.sampling, uniforms)
        if getattr(self.engine, "serves_all", False):  # servers, which share the work themselves
            return self.engine.generate(prompts, self.sampling, uniforms)
        longest = self.sampling.max_new_tokens
        keys = [repr(prompt).encode() for prompt in prompts]
        owners = deal([len(prompt) + longest for prompt in prompts], keys, self.ranks.size)
        own = [i for i, owner in enumerate(owners) if owner == self.ranks.rank]
        mine = self.engine.generate([prompts[i] for i in own], self.sampling, uniforms[own])  # also none at all
        parts = self.ranks.gather((digest(keys), dict(zip(own, mine, strict=True))))
        if any(asked != parts[0][0] for asked, _ in parts):  # with other prompts others are dealt out
            self.ranks.agree("prompts to be sampled", digest(keys))
        found = {i: one for _, part in parts for i, one in part.items()}
        return [found[i] for i in range(len(prompts))]

    def fork(self, seed: int, greedy: bool = False) -> Generator:
        """The same engine and settings with its own random numbers and one response per prompt, for evaluations."""
        sampling = dataclasses.replace(self.sampling, greedy=greedy)
        return Generator(self.engine, self, sampling, seed, ranks=self.ranks)

    def metrics(self) -> dict[str, float]:
        """What the engine says about itself."""
        return self.engine.metrics() if isinstance(self.engine, MeasuredEngine) else {}

    def state_dict(self) -> State:
        """The state of the random number generator."""
        return {"random": self.random.get_state()}

    def load_state_dict(self, state: State) -> None:
        """Resume with the next random number.

        Responses that another generator had sampled ahead are sampled afresh, with the numbers they were sampled with.
        """
        ahead = state.get("ahead")
        self.random.set_state((ahead or state).get("random", state["random"]))

    def release(self) -> None:
        """Let the engine remove what it has put elsewhere; it can be used again afterwards."""
        if isinstance(self.engine, ReleasedEngine):
            self.engine.release()

    def encode(self, prompt: Prompt, number: int) -> list[int]:
        """Token ids of a prompt; raises if it is empty or leaves no room for the response."""
        ids = self.tokenizer.encode(prompt.content)
        if not ids:
            raise DataError(f"Prompt {number} has no tokens. Remove it or write something in it.")
        if not self.fits(ids):
            raise DataError(
                f"Prompt {number} has {len(ids)} tokens; with max_new_tokens {self.sampling.max_new_tokens} it does "
                f"not fit the model's context of {self.context_length}. Shorten it, lower max_new_tokens, or set "
                f"long_prompts: skip. It begins: {prompt.preview()}"
            )
        return ids

    def fits(self, ids: Sequence[int]) -> bool:
        """Whether a prompt leaves room for max_new_tokens."""
        return self.context_length is None or len(ids) + self.sampling.max_new_tokens <= self.context_length
