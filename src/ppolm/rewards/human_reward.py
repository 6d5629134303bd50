"""People as the reward: stored scores where there are any; other responses are queued for judging."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from typing import Any

from ppolm.errors import FeedbackError
from ppolm.feedback.record import Queued, Record, Source, response_id
from ppolm.feedback.resolve import latest, mean_verdict
from ppolm.feedback.store import FeedbackStore
from ppolm.rewards.protocol import Reward, RewardCallError

POLL_SECONDS = 1.0
"""Interval at which to check for new judgements."""


class HumanReward:
    """The mean of each annotator's latest judgement of a response, on the scale of the stored scores.

    Scores are used as they are, weighted by confidence. A response without scores gets μ + σ·z, with mean μ and
    standard deviation σ of all stored scores (0 and 1 in a store without any): z is 1 or -1 for thumbs, or, if nobody
    judged it in time, the reward model's score (mean 0, deviation 1).
    """

    def __init__(
        self, store: FeedbackStore, timeout: float, model: Reward | None = None, run: str | None = None
    ) -> None:
        """``model`` scores responses that are not judged within ``timeout`` seconds; without it that is an error."""
        self.store, self.timeout, self.model, self.run = store, timeout, model, run

    def __call__(self, prompts: Sequence[Any], responses: Sequence[str], **columns: Sequence[Any]) -> list[float]:
        """A score per response; waits for people to judge those without one."""
        ids = [response_id(content, text) for content, text in zip(prompts, responses, strict=True)]
        try:
            judged = self._wait(ids, prompts, responses)
            mean, deviation = self.store.score_scale()
        except FeedbackError as error:
            raise RewardCallError(f"Reward human: {error}") from error
        missing = [position for position, id_ in enumerate(ids) if id_ not in judged]
        scores = {id_: _score(records, mean, deviation) for id_, records in judged.items()}
        if missing:
            guesses = self._fall_back(missing, prompts, responses, columns)
            scores |= {ids[i]: mean + deviation * guess for i, guess in zip(missing, guesses, strict=True)}
        return [scores[id_] for id_ in ids]

    def _wait(self, ids: list[str], prompts: Sequence[Any], responses: Sequence[str]) -> dict[str, list[Record]]:
        """Judgements of the responses, once all have been judged or the time is up."""
        judged = self.store.verdicts(ids)
        open_ = [position for position, id_ in enumerate(ids) if id_ not in judged]
        if not open_:
            return judged
        self.store.ask([Queued(prompts[i], str(responses[i]), Source(self.run, sequence=i)) for i in open_])
        until = time.monotonic() + self.timeout
        if self.timeout:
            self._say(len({ids[i] for i in open_}))
        while open_ and (left := until - time.monotonic()) > 0:
            time.sleep(min(POLL_SECONDS, left))
            judged |= self.store.verdicts(ids[i] for i in open_)
            open_ = [i for i in open_ if ids[i] not in judged]
        return judged

    def _say(self, number: int) -> None:
        then = "the reward model scores the rest" if self.model else "the run stops"
        waiting = "1 response waits" if number == 1 else f"{number} responses wait"
        print(
            f"{waiting} in {self.store.name} to be judged, for {self.timeout:g} s; then {then}. "
            f"Judge with: {self._command}",
            file=sys.stderr,
            flush=True,
        )

    @property
    def _command(self) -> str:
        return f"ppolm feedback label --store {shlex.quote(self.store.name)}"

    def _fall_back(
        self, missing: list[int], prompts: Sequence[Any], responses: Sequence[str], columns: dict[str, Sequence[Any]]
    ) -> list[float]:
        """The reward model's scores for responses that nobody judged in time; they stay in the queue."""
        if self.model is None:
            raise RewardCallError(
                f"Reward human: {len(missing)} of {len(responses)} responses were not judged within human_timeout "
                f"{self.timeout:g} s. They stay queued: judge them with `{self._command}` and continue with --resume, "
                "or set human_fallback: model."
            )
        chosen = {name: [values[i] for i in missing] for name, values in columns.items()}
        scores = self.model([prompts[i] for i in missing], [responses[i] for i in missing], **chosen)
        return [float(score) for score in scores]  # type: ignore[arg-type]  # the reward model scores whole responses


def _score(records: Sequence[Record], mean: float, deviation: float) -> float:
    newest = latest(records)
    scored = [record for record in newest if record.kind == "scores"]
    return mean_verdict(scored) if scored else mean + deviation * mean_verdict(newest)
