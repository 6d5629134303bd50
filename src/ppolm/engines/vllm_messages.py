"""What is said to a vLLM server, and how its answers are checked: plain values in, plain values out."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ppolm.messages import brief
from ppolm.rollout.sampling import Sampled, Sampling

PLAIN = {"min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "min_tokens": 0}
"""Sent with every request: what is not sent, a server takes from the model's generation_config.json."""


class GarbageError(Exception):
    """An answer that is not what the protocol promises."""


@dataclass(frozen=True)
class Job:
    """One request: ``copies`` samples of one prompt."""

    number: int
    prompt: Sequence[int]
    copies: int
    sampling: Sampling
    seed: int
    eos_ids: tuple[int, ...]
    over: threading.Event = field(default_factory=threading.Event, compare=False, repr=False)
    """Set once nobody wants the answer any more."""

    @property
    def samples(self) -> int:
        """Samples to ask for: greedy ones are all the same, and a server refuses to compute them twice."""
        return 1 if self.sampling.greedy else self.copies

    def body(self, model: str) -> dict[str, Any]:
        """The body of a request to ``/v1/completions``.

        ``ignore_eos`` with our own ``stop_token_ids`` makes exactly our EOS tokens end a response: otherwise the server
        adds those that it finds in the model folder. Log-probabilities are wanted of the sampled tokens only.
        """
        sampling = self.sampling
        how = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
        return {
            **PLAIN,
            **({"temperature": 0.0, "top_k": 0, "top_p": 1.0} if sampling.greedy else how),
            "model": model,
            "prompt": list(self.prompt),
            "n": self.samples,
            "seed": self.seed,
            "max_tokens": sampling.max_new_tokens,
            "stop_token_ids": list(self.eos_ids),
            "ignore_eos": True,
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
        }


def jobs_of(
    prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor, eos_ids: Sequence[int]
) -> list[Job]:
    """One job for each run of equal prompts; its seed is the first of their random numbers.

    A server draws with generators of its own, so only the seed can be handed over: the same uniforms make the same
    requests. Sample i of a request is drawn with seed + i.
    """
    jobs: list[Job] = []
    for _, rows in groupby(range(len(prompts)), key=lambda row: tuple(prompts[row])):
        first, *others = rows
        seed = int(float(uniforms[first, 0]) * 2**53)
        jobs.append(Job(len(jobs), prompts[first], 1 + len(others), sampling, seed, tuple(eos_ids)))
    return jobs


def read_samples(job: Job, answer: Any, vocabulary: int) -> list[Sampled]:
    """The samples of a job from the server's JSON; raises GarbageError unless all of it is as expected."""
    choices = _get(answer, "choices", list)
    if sorted(_get(choice, "index", int) for choice in choices) != list(range(job.samples)):
        raise GarbageError(f"{len(choices)} samples for one prompt, expected {job.samples}")
    ordered = sorted(choices, key=lambda choice: int(choice["index"]))
    samples = [_read_sample(job, choice, vocabulary) for choice in ordered]
    return samples * (job.copies // job.samples)


def _read_sample(job: Job, choice: Any, vocabulary: int) -> Sampled:
    ids, logprobs = _get(choice, "token_ids", list), _get(_get(choice, "logprobs", dict), "token_logprobs", list)
    if choice.get("prompt_token_ids") not in (None, list(job.prompt)):
        raise GarbageError("another prompt than the one that was sent")
    if not ids or len(ids) > job.sampling.max_new_tokens or len(ids) != len(logprobs):
        raise GarbageError(f"{len(ids)} tokens with {len(logprobs)} log-probabilities")
    for token in ids:
        if not isinstance(token, int) or not 0 <= token < vocabulary:
            raise GarbageError(f"the token {brief(token)}")
    for number in logprobs:
        if not isinstance(number, (int, float)) or not math.isfinite(number) or number > 1e-3:
            raise GarbageError(f"the log-probability {brief(number)}")
    stops = [place for place, token in enumerate(ids) if token in job.eos_ids]
    ended = stops == [len(ids) - 1]
    if stops and not ended:
        raise GarbageError("tokens after the end of a response")
    if not ended and len(ids) < job.sampling.max_new_tokens:
        raise GarbageError(f"a response that stops after {len(ids)} tokens without an end token")
    return Sampled(ids, [min(0.0, float(number)) for number in logprobs], ended)


def scoring_body(model: str, ids: Sequence[int]) -> dict[str, Any]:
    """A request for the log-probability of each token of ``ids`` after those before it."""
    return {
        **PLAIN,
        "model": model,
        "prompt": list(ids),
        "max_tokens": 1,
        "temperature": 0.0,
        "prompt_logprobs": 0,
        "logprobs": 0,
        "return_token_ids": True,
    }


def read_scores(ids: Sequence[int], answer: Any) -> Tensor:
    """log p of ids[1:] [len − 1] from the server's JSON; raises GarbageError."""
    choices = _get(answer, "choices", list)
    rows = _get(choices[0] if choices else None, "prompt_logprobs", list)
    if len(rows) != len(ids):
        raise GarbageError(f"{len(rows)} scores for {len(ids)} tokens")
    found = [
        _get(_get(row, str(token), dict), "logprob", (int, float)) for row, token in zip(rows[1:], ids[1:], strict=True)
    ]
    scores = torch.tensor(found, dtype=torch.float64)
    if not scores.isfinite().all():
        raise GarbageError("log-probabilities that are not finite")
    return scores


def _get(value: Any, name: str, kind: type | tuple[type, ...]) -> Any:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind) or isinstance(found, bool):
        raise GarbageError(f"{name!r} is {brief(found)}")
    return found
