"""People as the reward: what they said of responses, questions about those of which they said nothing."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ppolm.errors import FeedbackError, RewardError
from ppolm.feedback.record import Queued, Record, Source, Wait, now, response_id
from ppolm.feedback.resolve import latest, mean_verdict, net_win_share
from ppolm.feedback.store import FeedbackStore
from ppolm.rewards.occasion import Occasion
from ppolm.rewards.protocol import Reward, RewardCallError, scores_or_errors

POLL_SECONDS = 0.5
"""How often to look whether people have judged: a step goes on within two seconds of the last judgement."""


class HumanReward:
    """The mean of what each annotator last said of a response, on the scale of the stored scores.

    A score counts as it is, weighted by its confidence. Where there is none, z is put onto the same scale as μ + σ·z,
    with mean μ and deviation σ of all stored scores (0 and 1 in a store without any). z is the mean of the thumbs as 1
    and -1; without thumbs, the net share of comparisons that the response won, (wins − losses) / comparisons, where
    both bad is a loss of both; after the time-out, the model's score (mean 0, deviation 1).
    """

    def __init__(
        self, store: FeedbackStore, timeout: float, model: Reward | None = None, occasion: Occasion | None = None
    ) -> None:
        """After ``timeout`` seconds without judgements ``model`` scores the responses; without it that is an error."""
        self.store, self.timeout, self.model = store, timeout, model
        self.occasion = occasion or Occasion()

    def __call__(
        self, prompts: Sequence[Any], responses: Sequence[str], **columns: Sequence[Any]
    ) -> list[float | RewardError]:
        """A score per response, or why the model had none; waits for people where nobody has said anything."""
        ids = [response_id(content, text) for content, text in zip(prompts, responses, strict=True)]
        try:
            judged = self._wait(ids, prompts, responses)
            mean, deviation = self.store.score_scale()
        except FeedbackError as error:
            raise RewardCallError(f"Reward human: {error}") from error
        missing = [position for position, id_ in enumerate(ids) if id_ not in judged]
        scores: dict[str, float | RewardError] = {
            id_: _score(id_, records, mean, deviation) for id_, records in judged.items()
        }
        if missing:
            guesses = self._fall_back(missing, prompts, responses, columns)
            for i, guess in zip(missing, guesses, strict=True):
                scores[ids[i]] = guess if isinstance(guess, RewardError) else mean + deviation * guess
        return [scores[id_] for id_ in ids]

    def _wait(self, ids: list[str], prompts: Sequence[Any], responses: Sequence[str]) -> dict[str, list[Record]]:
        """Judgements of the responses, once all have some or the time is over."""
        known = self.store.judged(ids)
        open_ = {id_: position for position, id_ in reversed(list(enumerate(ids))) if id_ not in known}
        if not open_:
            return self.store.verdicts(ids)
        about, began = self.occasion, now()
        wait = Wait(began, began + timedelta(seconds=self.timeout)) if self.timeout else None
        self.store.ask(
            [
                Queued(
                    prompts[i], str(responses[i]), Source(about.run, about.step, i, None, about.purpose), began, wait
                )
                for i in sorted(open_.values())
            ]
        )
        if not self.timeout:
            return self.store.verdicts(ids)
        self._say(len(open_))
        try:
            return self._poll(ids, set(open_))
        finally:
            with contextlib.suppress(FeedbackError):  # a store that has gone is reported by what was asked of it
                self.store.stop_waiting(open_, about.run)

    def _poll(self, ids: list[str], asked: set[str]) -> dict[str, list[Record]]:
        """Look for judgements by one short query, until all responses have one or the time is over."""
        until, open_ = time.monotonic() + self.timeout, set(asked)
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(POLL_SECONDS, left))
            open_ -= self.store.judged(open_)
            if not open_:
                found = self.store.verdicts(ids)
                open_ = asked - found.keys()  # somebody may just have taken a judgement back
                if not open_:
                    return found
        return self.store.verdicts(ids)

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
    ) -> list[float | RewardError]:
        """The reward model's scores of responses that nobody judged in time. They stay in the queue.

        What the model cannot score is an error of that response alone: to raise it would let the caller ask again for
        every response, and people would be waited for again each time.
        """
        if self.model is None:
            raise RewardCallError(
                f"Reward human: {len(missing)} of {len(responses)} responses were not judged within human_timeout "
                f"{self.timeout:g} s. They stay queued: judge them with `{self._command}` and continue with --resume, "
                "or set human_fallback: model."
            )
        chosen = {name: [values[i] for i in missing] for name, values in columns.items()}
        about = [prompts[i] for i in missing], [responses[i] for i in missing]
        answers = scores_or_errors(self.model, "human, its fallback model,", *about, chosen)
        # the reward model scores whole responses
        return [answer if isinstance(answer, RewardError) else float(answer) for answer in answers]  # type: ignore[arg-type]


def _score(id_: str, records: Sequence[Record], mean: float, deviation: float) -> float:
    """Scores, else thumbs, else comparisons."""
    newest = latest(records) or list(records)
    by_kind = {kind: [record for record in newest if record.kind == kind] for kind in ("scores", "thumbs")}
    if by_kind["scores"]:
        return mean_verdict(by_kind["scores"])
    z = mean_verdict(by_kind["thumbs"]) if by_kind["thumbs"] else net_win_share(id_, newest)
    return mean + deviation * z
