"""HTTP to one vLLM server: health, adapters, scores and samples, each within a time limit."""

from __future__ import annotations

import http.client
import json
import os
import re
import threading
import urllib.error
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ppolm.config.secrets import expand, hide
from ppolm.engines.vllm_messages import GarbageError, Job, read_samples, read_scores, scoring_body
from ppolm.engines.vllm_pulse import Pulse, StalledError
from ppolm.errors import EngineError
from ppolm.http_call import TooLargeError, call, without_login
from ppolm.messages import brief, reason
from ppolm.rollout.sampling import Sampled, Sampling

AUTHORIZATION = "PPOLM_ENGINE_AUTHORIZATION"
"""Environment variable whose value is sent as the Authorization header of every call, such as "Bearer ..."."""
SHORT = 5.0
"""Seconds for calls that compute nothing."""
TOKEN_COUNTS = re.compile(rb"^vllm:\w*tokens\w*(?:\{.*\})? .*$", re.MULTILINE)
"""In a server's metrics: tokens read and sampled so far, of all requests."""
SWITCH = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"


class ServerFaultError(Exception):
    """A server did not do its work; another one may. ``gone``: it need not be asked again soon."""

    def __init__(self, problem: str, gone: bool = False, status: int = 0) -> None:
        super().__init__(problem)
        self.gone, self.status = gone, status


@dataclass(frozen=True)
class ServedModel:
    """What a server says about itself."""

    base: str
    context: int
    adapters: dict[str, str]
    """Folder of each loaded adapter, by name."""


class VllmClient:
    """Calls of one server. A fault of the server raises ServerFaultError, a mistake in the settings EngineError."""

    def __init__(self, url: str, vocabulary: int, timeout: float, stalled: float = 45.0, look: float = 2.0) -> None:
        """``stalled`` are the seconds without progress after which it is given up, ``look`` those between two looks."""
        self.url, self.vocabulary, self.timeout = url.rstrip("/"), vocabulary, timeout
        self.pulse = Pulse(self._progress, stalled, look)
        self._base = ""

    def is_healthy(self) -> bool:
        """Whether it answers, and its engine lives."""
        try:
            self._call("/health", None, SHORT)
        except ServerFaultError:
            return False
        return True

    def served(self) -> ServedModel:
        """The base model and the adapters that it serves."""
        rows = _parsed(self._call("/v1/models", None, SHORT)).get("data")
        rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        bases = [row for row in rows if row.get("parent") is None and isinstance(row.get("max_model_len"), int)]
        if not bases:
            raise ServerFaultError("lists no model with a context length under /v1/models")
        adapters = {str(row.get("id")): str(row.get("root")) for row in rows if row.get("parent") is not None}
        self._base = str(bases[0].get("id"))
        return ServedModel(self._base, bases[0]["max_model_len"], adapters)

    def load(self, name: str, folder: Path, rank: int) -> None:
        """Load the adapter in ``folder``, which the server must be able to read, as ``name``."""
        try:
            self._watched("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        except ServerFaultError as fault:
            said = str(fault)
            if "max_lora_rank" in said:
                problem = f"has too small a --max-lora-rank for rank {rank}. Start it with {rank_to_serve(rank)}"
            elif "No adapter found" in said:
                problem = f"finds no adapter in {folder}. Set engine_folder to one that it sees under the same path"
            elif fault.status in (404, 405):
                problem = f"does not load adapters while it runs. Start it with --enable-lora and {SWITCH}"
            elif fault.status == 400:
                problem = f"refuses the adapter: it {said}"
            else:
                raise
            raise self._error(problem) from None

    def unload(self, name: str) -> None:
        """Forget an adapter. One that is not there is fine."""
        try:
            self._call("/v1/unload_lora_adapter", {"lora_name": name}, SHORT)
        except ServerFaultError as fault:
            if fault.status != 404:
                raise

    def score(self, model: str, texts: Sequence[Sequence[int]]) -> Tensor:
        """log p of every token but the first of each text, flat, at temperature 1."""
        answers = [self._complete(scoring_body(model, ids)) for ids in texts]
        try:
            return torch.cat([read_scores(ids, answer) for ids, answer in zip(texts, answers, strict=True)])
        except GarbageError as error:
            raise ServerFaultError(f"answered with {reason(error)}") from None

    def sample(self, model: str, job: Job) -> list[Sampled]:
        """The samples of a job."""
        answer = self._complete(job.body(model), job.over)
        try:
            return read_samples(job, answer, self.vocabulary)
        except GarbageError as error:
            raise ServerFaultError(f"answered with {reason(error)}") from None

    def max_adapters(self) -> int | None:
        """How many adapters it keeps at a time, if its metrics say so: only after a first request."""
        try:
            found = re.search(rb'max_lora="(\d+)"', self._call("/metrics", None, SHORT))
        except ServerFaultError:
            return None
        return int(found[1]) if found else None

    def ask_one_token(self) -> None:
        """Have the base continue a text by one token, which takes a server that works no time to speak of."""
        one = Job(0, [0], 1, Sampling(1, greedy=True), 0, ())
        self._call("/v1/completions", one.body(self._base), SHORT)

    def _progress(self) -> object:
        """What changes while it computes: its counts of tokens; without any, a new object when it gives a token."""
        try:
            counts = TOKEN_COUNTS.findall(self._call("/metrics", None, SHORT))
        except ServerFaultError:
            counts = []
        if counts:
            return counts
        try:
            self.ask_one_token()
        except (ServerFaultError, EngineError):
            return None
        return object()

    def _complete(self, body: dict[str, Any], over: threading.Event | None = None) -> Any:
        try:
            return _parsed(self._watched("/v1/completions", body, over))
        except ServerFaultError as fault:
            if fault.status in (400, 422):  # all servers would say the same
                raise self._error(f"refuses a request: it {fault}") from None
            raise

    def _watched(self, path: str, body: dict[str, Any], over: threading.Event | None = None) -> bytes:
        """A call that computes: it may take as long as there is progress, and the answer is wanted."""

        def look() -> None:
            if over is not None and over.is_set():
                raise ServerFaultError("was told that its answer is not wanted")  # by closing the connection
            self.pulse.check()

        with self.pulse.request():
            return self._call(path, body, self.timeout, look)

    def _call(
        self, path: str, body: dict[str, Any] | None, seconds: float, look: Callable[[], None] | None = None
    ) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        try:
            return call(expand(self.url) + path, data, _headers(), seconds, look, self.pulse.every)
        except TooLargeError as error:
            raise ServerFaultError(f"answered with more than {error}") from None
        except urllib.error.HTTPError as error:
            said = _said(error)
            if error.code in (401, 403):
                raise self._error(f"refuses us ({error.code}). Put its key into {AUTHORIZATION}") from None
            lost = error.code == 404 and path == "/v1/completions"  # restarted: the adapter is no longer there
            raise ServerFaultError(f"answered {error.code} {self._hidden(said)}", lost, error.code) from None
        except StalledError as error:
            raise ServerFaultError(str(error), gone=True) from None
        except TimeoutError:
            self.pulse.stalled |= look is not None
            raise ServerFaultError(f"did not answer {path} within {seconds:g} s", gone=True) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
            cause = getattr(error, "reason", error)
            said = reason(cause) if isinstance(cause, Exception) else str(cause)
            raise ServerFaultError(f"could not be reached ({self._hidden(said)})", gone=True) from None

    def _hidden(self, text: str) -> str:
        """The text with secrets hidden, since a server may echo its URL or headers."""
        header = os.environ.get(AUTHORIZATION, "").strip()
        login = without_login(expand(self.url))[1].get("Authorization", "").removeprefix("Basic ")
        for secret in filter(None, (header, header.partition(" ")[2], login)):
            text = text.replace(secret, "(hidden)")
        return hide(text, self.url)

    def _error(self, problem: str) -> EngineError:
        return EngineError(f"Server {self.url} {problem}.")


RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM's --max-lora-rank takes."""


def rank_to_serve(rank: int) -> int:
    """The smallest --max-lora-rank for adapters of ``rank``."""
    return next(allowed for allowed in RANKS if allowed >= rank)


def _headers() -> dict[str, str]:
    given = os.environ.get(AUTHORIZATION, "").strip()
    if not given.isascii() or not given.isprintable():
        raise EngineError(f"The environment variable {AUTHORIZATION} holds a character that no header can have.")
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    return headers | ({"Authorization": given} if given else {})


def _parsed(said: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError):
        raise ServerFaultError(f"answered {brief(said[:60])}, which is not JSON") from None
    if not isinstance(answer, dict):
        raise ServerFaultError(f"answered {brief(answer)}, expected an object")
    return answer


def _said(error: urllib.error.HTTPError) -> str:
    """What the body of an error says, in one short line."""
    try:
        text = error.read(4096).decode(errors="replace")
    except OSError:
        return str(error.reason)
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = text
    return brief(str(message), 200)[1:-1]
