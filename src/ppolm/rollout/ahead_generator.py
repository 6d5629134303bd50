"""Responses for the next step, sampled elsewhere while this one trains, with one step of staleness."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ppolm.data.prompts import Prompt, as_prompts
from ppolm.ranks import Ranks
from ppolm.rollout.generated_text import GeneratedText
from ppolm.rollout.generator import Engine, Generator, PromptLimits
from ppolm.rollout.sampling import Sampled, Sampling
from ppolm.state import State

HEARS = 0.1
"""Seconds within which a signal is heard while a rollout is waited for, on systems where waiting is deaf."""


class AheadEngine(Engine, Protocol):
    """An engine that can sample from weights that have been handed to it, while others are trained."""

    def publish(self) -> Any:
        """Hand the weights of now to the engine; returns what names them."""

    def sample(
        self,
        version: Any,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        uniforms: Tensor,
        stop: threading.Event | None = None,
    ) -> list[Sampled]:
        """Like ``generate``, from published weights, and from any thread; raises soon after ``stop`` is set."""

    def refuse_ahead(self, sampling: Sampling) -> None:
        """Raise if the log-probabilities of such a rollout could not be known."""


class AheadGenerator(Generator):
    """A generator that is told which prompts come next and samples them as soon as it has answered the present ones.

    Random numbers are drawn in the order of the steps, as without it. A checkpoint contains the rollout under way, and
    waits for it: the weights that sampled it are gone by then. One that is given up is sampled afresh, with its own
    random numbers.

    Of several processes only the first one has a thread. All of them know what is under way, and get its
    answer where it is used, in the exchange that they are all in: the thread itself exchanges nothing.
    """

    def __init__(
        self,
        engine: AheadEngine,
        setup: PromptLimits,
        sampling: Sampling,
        seed: int = 0,
        samples_per_prompt: int = 1,
        ranks: Ranks | None = None,
    ) -> None:
        super().__init__(engine, setup, sampling, seed, samples_per_prompt, ranks)
        self.ranks.do_once(lambda: engine.refuse_ahead(sampling))
        self.ahead_engine = engine
        self.staleness = 0
        """Steps by which the weights that sampled the last rollout were behind."""
        self._next: list[Prompt] | None = None
        self._rollout: _Rollout | None = None

    def expect(self, prompts: Sequence[Any] | None) -> None:
        """The prompts of the call after the next one; None if there is none."""
        self._next = None if prompts is None else as_prompts(prompts)

    def generate(self, prompts: Sequence[Any]) -> tuple[list[GeneratedText], list[Tensor]]:
        """The rollout that was sampled ahead, if it is of these prompts; then begin with the expected ones."""
        checked = as_prompts(prompts)
        owned = self._owned(checked)
        ready, self._rollout = self._rollout, None
        if ready is not None and ready.prompts == owned:
            made, self.staleness = self._texts(checked, owned, self._result(ready)), 1
        else:
            if ready is not None:
                ready.stop.set()
            made, self.staleness = super().generate(prompts), 0
        if self._next is not None:
            self._rollout = self._begin(self._owned(self._next))
            self._next = None
        return made

    def metrics(self) -> dict[str, float]:
        """What the engine says about itself, and the staleness of the last rollout."""
        return {**super().metrics(), "staleness": self.staleness}

    def wait(self) -> None:
        """Until the rollout under way has ended, well or badly. A signal may interrupt it."""
        if self._rollout is not None:
            self.ranks.do_once(self._rollout.wait)

    def give_up(self) -> None:
        """Without the rollout under way, unless it has ended."""
        if self._rollout is not None and not self.ranks.once(self._rollout.ended.is_set):
            self._forget()

    def release(self) -> None:
        """Without the rollout under way: what it is sampled from goes. Processes exchange nothing here."""
        self._forget()
        super().release()

    def remember(self) -> Any:
        """What ``go_back`` needs. Unlike a checkpoint it need not wait for the rollout under way."""
        return self.random.get_state(), self._rollout

    def go_back(self, remembered: Any) -> None:
        """As it was then. A rollout begun since is given up; one that has failed is sampled afresh."""
        random, rollout = remembered
        if self._rollout is not None and self._rollout is not rollout:
            self._rollout.stop.set()
        self.random.set_state(random)
        self._rollout, self._next = rollout, None
        if rollout is not None and rollout.failed:
            self._forget()

    def state_dict(self) -> State:
        """The random numbers, and the rollout ahead; if that failed, the state from before it was begun."""
        if self._rollout is None:
            return {**super().state_dict(), "ahead": None}
        try:
            sampled = self._result(self._rollout)
        except Exception:  # raised again when the rollout is asked for
            return {"random": self._rollout.random, "ahead": None}
        rows = [{"token_ids": one.token_ids, "logprobs": one.logprobs, "ended": one.ended} for one in sampled]
        ahead = {"prompts": self._rollout.prompts, "responses": rows, "random": self._rollout.random}
        return {**super().state_dict(), "ahead": ahead}

    def compared_state(self) -> State:
        """What must be the same on all processes, without a wait for the rollout: only the first one has that."""
        return {**super().state_dict(), "ahead": None if self._rollout is None else self._rollout.prompts}

    def load_state_dict(self, state: State) -> None:
        """Resume with the next random number, and with the rollout that was sampled ahead."""
        self._forget()
        self.random.set_state(state["random"])
        ahead, self._next = state.get("ahead"), None
        if ahead is not None:
            found = [Sampled(row["token_ids"], row["logprobs"], bool(row["ended"])) for row in ahead["responses"]]
            before = ahead.get("random", state["random"])  # which the first checkpoints did not have
            self._rollout = _Rollout([list(ids) for ids in ahead["prompts"]], before)
            self._rollout.finish(found)

    def _forget(self) -> None:
        """Without the rollout ahead, and with its random numbers."""
        if self._rollout is not None:
            self._rollout.stop.set()
            self.random.set_state(self._rollout.random)
            self._rollout = None

    def _result(self, rollout: _Rollout) -> list[Sampled]:
        try:
            return self.ranks.once(rollout.result)
        except Exception:
            rollout.failed = True  # in all processes
            raise

    def _owned(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """The ids of the prompt of every response."""
        encoded = [self.encode(prompt, i) for i, prompt in enumerate(prompts)]
        return [ids for ids in encoded for _ in range(self.samples_per_prompt)]

    def _texts(
        self, prompts: Sequence[Prompt], owned: Sequence[list[int]], sampled: Sequence[Sampled]
    ) -> tuple[list[GeneratedText], list[Tensor]]:
        owners = [i for i in range(len(prompts)) for _ in range(self.samples_per_prompt)]
        texts = [
            GeneratedText(self.tokenizer, prompts[i], i, ids, one.token_ids, one.ended)
            for i, ids, one in zip(owners, owned, sampled, strict=True)
        ]
        return texts, [torch.tensor(one.logprobs) for one in sampled]

    def _begin(self, owned: list[list[int]]) -> _Rollout:
        begun = _Rollout(owned, self.random.get_state())
        shape = (len(owned), self.sampling.max_new_tokens)
        uniforms = torch.rand(*shape, generator=self.random, dtype=torch.float64)
        version = self.ahead_engine.publish()  # before the update changes the weights
        self.ranks.do_once(
            lambda: begun.start(lambda: self.ahead_engine.sample(version, owned, self.sampling, uniforms, begun.stop))
        )
        return begun


class _Rollout:
    """A rollout under way in a thread of its own, or finished; in other processes than the first, what was asked."""

    def __init__(self, prompts: list[list[int]], random: Tensor) -> None:
        """``random`` is the state of the random numbers before its own were drawn."""
        self.prompts, self.random = prompts, random
        self.stop, self.ended = threading.Event(), threading.Event()
        self.failed = False
        """Whether it was asked for in vain."""
        self._found: list[Sampled] | None = None
        self._error: Exception | None = None

    def start(self, sample: Callable[[], list[Sampled]]) -> None:
        """Begin, in a thread."""

        def work() -> None:
            try:
                self._found = sample()
            except Exception as error:  # raised where the result is asked for
                self._error = error
            finally:
                self.ended.set()

        threading.Thread(target=work, daemon=True, name="rollout ahead").start()

    def finish(self, found: list[Sampled]) -> None:
        """What was sampled is known already."""
        self._found = found
        self.ended.set()

    def wait(self) -> None:
        """Until it has ended."""
        while not self.ended.wait(HEARS):
            pass

    def result(self) -> list[Sampled]:
        """What was sampled, once it is there; raises what went wrong."""
        self.wait()
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found
