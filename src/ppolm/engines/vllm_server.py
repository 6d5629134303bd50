"""One server and what it holds: checked when it is first seen, then given each version of the adapter and proven."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from ppolm.engines.swap_proof import OTHER_MODEL, OTHER_PRECISION, Scored, SwapProof, prove_swap
from ppolm.engines.vllm_client import ServerFaultError, VllmClient
from ppolm.engines.vllm_messages import Job
from ppolm.errors import EngineError
from ppolm.rollout.sampling import Sampling

log = logging.getLogger(__name__)
LogprobsMode = Literal["raw", "processed"]
"""What a server's log-probabilities are: of the model's own softmax, or of what is sampled from after temperature,
top-k and top-p."""
UNSEEN = "has not been asked yet"
RESTART = "Start it with --logprobs-mode"
MODES: dict[LogprobsMode, str] = {"raw": "raw_logprobs", "processed": "processed_logprobs"}


@dataclass(frozen=True)
class Probe:
    """A fixed text, and our log-probabilities of it under the bare base."""

    texts: Sequence[Sequence[int]]
    base: Tensor


@dataclass(frozen=True)
class Version:
    """A version of the adapter: where it is, and our log-probabilities of the probe under it."""

    name: str
    folder: Path
    rank: int
    expected: Tensor
    oldest: str
    """Name of the oldest version that servers should keep; names are in the order of their versions."""


class StaleError(ServerFaultError):
    """A server that samples from another adapter than it was told to."""


class VllmServer:
    """A server with its state. ``down`` says why it is out of use, None if it is in use."""

    def __init__(self, client: VllmClient, probe: Probe, model_name: str, adapters_needed: int) -> None:
        self.client, self.probe, self.model_name = client, probe, model_name
        self.adapters_needed = adapters_needed
        self.down: str | None = UNSEEN
        self.was_up = False
        self.context = 0
        self.mode: LogprobsMode = "raw"
        self.lives = 0
        """How many times it was found, or found again: each time it may be another process."""
        self.faults = 0
        """Faults since its last success."""
        self.silences = 0
        """Looks in a row that it did not answer."""
        self.proof: SwapProof | None = None
        """The last proof."""
        self.loaded: list[str] = []
        self._proven = Scored(probe.base, probe.base)
        """The probe under the last version whose swap was beyond doubt."""

    @property
    def url(self) -> str:
        """Its address."""
        return self.client.url

    @property
    def is_wrong(self) -> bool:
        """Whether it answered from another adapter than it was given."""
        return self.proof is not None and self.proof.problem is not None

    def take(self, versions: Sequence[Version], mode: LogprobsMode | None = None) -> None:
        """Serve these versions: connect if it was down, load, prove, unload what is too old.

        ``mode`` is what it must report, if that is settled. Several versions, the newest last, are in use if a rollout
        from an earlier one is under way.
        """
        if self.down is not None:
            self._connect(mode)
        for version in versions:
            if version.name not in self.loaded:
                self._swap(version)
        self.lives += self.down is not None
        self.down, self.was_up, self.faults, self.silences = None, True, 0, 0
        oldest = min(version.oldest for version in versions)
        for name in [one for one in self.loaded if one < oldest]:
            self.client.unload(name)
            self.loaded.remove(name)

    def unload_all(self) -> None:
        """Forget all versions, as far as it can still be told to."""
        loaded, self.loaded = self.loaded, []
        with suppress(ServerFaultError, EngineError):
            for name in loaded:
                self.client.unload(name)

    def _swap(self, version: Version) -> None:
        for _ in range(2):  # loading once more is cheap, and losing a server is not
            self.loaded.append(version.name)  # also if the answer is lost
            self.client.load(version.name, version.folder, version.rank)
            now = Scored(version.expected, self.client.score(version.name, self.probe.texts))
            proof = self.proof = prove_swap(now, self._proven)
            if proof.problem is None:
                self._proven = now if proof.decided else self._proven
                return
            self.client.unload(version.name)
            self.loaded.remove(version.name)
        raise StaleError(f"was given {version.name}, but {proof.problem}", gone=True)

    def _connect(self, mode: LogprobsMode | None) -> None:
        """Check a server that is new, or that has come back and may be another process."""
        served = self.client.served()
        if self.client.pulse.stalled:  # do not wait as long as for one that works
            self.client.ask_one_token()
        self.client.pulse.forget()
        for name in served.adapters:
            if name in self.loaded:  # load and prove it again
                self.client.unload(name)
        self.loaded = []
        self.context = served.context
        if self.context <= max(map(len, self.probe.texts)):
            raise self._error(f"has a context of {self.context} tokens, too short. Raise its --max-model-len")
        try:
            theirs = self.client.score(served.base, self.probe.texts)
        except EngineError as error:
            if "out of vocabulary" in str(error):
                raise self._other_model("has a smaller vocabulary") from None
            raise
        self._proven = Scored(self.probe.base, theirs)
        if self._proven.mismatch > OTHER_MODEL:
            raise self._other_model(f"gives log-probabilities that are {self._proven.mismatch:.2g} away from ours")
        if self._proven.mismatch > OTHER_PRECISION:
            log.warning(
                "Server %s gives log-probabilities that are %.2g away from ours: a base of another precision, or not "
                "quite the same model as %s.",
                *(self.url, self._proven.mismatch, self.model_name),
            )
        self.mode = self._find_mode(served.base)
        if mode is not None and mode != self.mode:
            found = f"reports {self.mode} log-probabilities, and this run has {mode} ones"
            raise self._error(f"{found}. {RESTART} {MODES[mode]}")
        held = self.client.max_adapters()
        if held is not None and held < self.adapters_needed:
            raise self._error(
                f"holds {held} adapter at a time, {self.adapters_needed} are needed: a new version is loaded while the "
                f"one before is still used. Start it with --max-loras {self.adapters_needed}"
            )

    def _find_mode(self, base: str) -> LogprobsMode:
        """Which log-probabilities it reports: among a single candidate (top-k 1) the processed one is 0."""
        sampling = Sampling(1, top_k=1)
        sampled = [
            self.client.sample(base, Job(i, text, 1, sampling, 0, ()))[0] for i, text in enumerate(self.probe.texts)
        ]
        texts = [[*text, *one.token_ids] for text, one in zip(self.probe.texts, sampled, strict=True)]
        raw = [float(self.client.score(base, [text])[-1]) for text in texts]
        told = [one.logprobs[0] for one in sampled]
        if min(told) > -1e-6 > min(raw):
            return "processed"
        if max(abs(one - other) for one, other in zip(told, raw, strict=True)) > OTHER_MODEL:
            raise self._error(f"reports no log-probabilities. {RESTART} {MODES['raw']}")
        return "raw"

    def _other_model(self, found: str) -> EngineError:
        return self._error(f"serves another model than {self.model_name}: it {found}. Start it with that model")

    def _error(self, problem: str) -> EngineError:
        return EngineError(f"Server {self.url} {problem}.")
