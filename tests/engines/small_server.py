"""A small HTTP server that speaks vLLM's protocol with our own sampler, and can be told to misbehave."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ppolm.base_setup.model_setup import Models
from ppolm.batches.sequences import TokenSequences
from ppolm.models.language_model import LanguageModel
from ppolm.rollout.sampling import Sampling

Fault = Literal[
    "hang",
    "stuck",
    "engine stuck",
    "slow",
    "503",
    "400",
    "not json",
    "no tokens",
    "cut short",
    "stale",
    "unapplied",
    "too strong",
]
"""``hang``: nothing is answered; ``stuck``: only samples are not; ``engine stuck``: nothing that is computed; ``slow``:
samples are answered ``slow_seconds`` late, and tokens are counted meanwhile. The last three answer well, from wrong
weights."""


class _Listening(http.server.ThreadingHTTPServer):
    """Takes as many connections at once as a real server does."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256


class RefusedError(Exception):
    """An answer with an error status."""


class SmallServer:
    """Serves a base model and named adapters on a free port of the loopback interface."""

    def __init__(self, models: Models, context: int = 128, max_rank: int = 16, max_loras: int = 2) -> None:
        self.models, self.context, self.max_rank, self.max_loras = models, context, max_rank, max_loras
        self.fault: Fault | None = None
        self.key = ""
        """What the header Authorization must be."""
        self.processed = False
        """Whether log-probabilities are those after temperature and top-k."""
        self.counts = True
        """Whether its metrics have the tokens so far."""
        self.tokens = 0
        self.slow_seconds = 0.0
        self.requests: list[dict[str, Any]] = []
        """Bodies of the requests for samples."""
        self.loads: list[str] = []
        self.adapters: dict[str, tuple[str, dict[str, Tensor]]] = {}
        self._lock = threading.Lock()  # the model has one active adapter at a time
        self._released = threading.Event()
        self._http: http.server.ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Serve, at the same address as before; adapters of before are forgotten."""
        self.adapters = {}
        self._released.clear()
        self._http = _Listening(("127.0.0.1", self.port), _handler(self))
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        """Refuse connections from now on; requests that are being answered get no answer."""
        ending, self._http = self._http, None
        self._released.set()
        if ending is not None:
            ending.shutdown()
            ending.server_close()

    def answer(self, path: str, body: dict[str, Any]) -> bytes:
        sampling = path == "/v1/completions" and body.get("prompt_logprobs") is None
        computing = path in ("/v1/completions", "/v1/load_lora_adapter")
        held = {"hang": True, "stuck": sampling, "engine stuck": computing}
        if self.fault is not None and held.get(self.fault, False):
            self._released.wait(60)
        if self.fault == "slow" and sampling and body["max_tokens"] > 1:
            self._compute_slowly()
        if self._http is None:
            raise ConnectionAbortedError
        if self.fault == "503" and sampling:
            raise RefusedError(503, "overloaded")
        if self.fault == "400" and sampling:
            raise RefusedError(400, "no such parameter")
        if self.fault == "not json" and sampling:
            return b"<html>Bad gateway</html>"
        if path == "/v1/completions":
            with self._lock:
                return json.dumps(self._complete(body)).encode()
        if path == "/v1/models":
            return json.dumps({"data": self._models()}).encode()
        if path == "/metrics":
            counts = f'\nvllm:generation_tokens_total{{engine="0"}} {self.tokens}\n' if self.counts else ""
            return f'vllm:lora_requests_info{{max_lora="{self.max_loras}"}} 1.0{counts}'.encode()
        if path == "/v1/load_lora_adapter":
            with self._lock:
                self._load(body["lora_name"], body["lora_path"])
        elif path == "/v1/unload_lora_adapter":
            if self.adapters.pop(body["lora_name"], None) is None:
                raise RefusedError(404, "cannot be found")
        elif path != "/health":
            raise RefusedError(404, "Not Found")
        return b"ok"

    def _compute_slowly(self) -> None:
        until = time.monotonic() + self.slow_seconds
        while time.monotonic() < until and not self._released.wait(0.05):
            self.tokens += 1

    def _models(self) -> list[dict[str, Any]]:
        base = {"id": "base", "parent": None, "root": "x", "max_model_len": self.context}
        return [base, *({"id": name, "parent": "base", "root": root} for name, (root, _) in self.adapters.items())]

    def _load(self, name: str, folder: str) -> None:
        if not (Path(folder) / "adapter_config.json").is_file():
            raise RefusedError(404, f"Loading lora {name} failed: No adapter found for {folder}")
        rank = json.loads((Path(folder) / "adapter_config.json").read_text())["r"]
        if rank > self.max_rank:
            raise RefusedError(500, f"LoRA rank {rank} is greater than max_lora_rank {self.max_rank}.")
        if name in self.adapters:
            raise RefusedError(400, f"The lora adapter '{name}' has already been loaded.")
        self.loads.append(name)
        if self.fault == "stale" and self.adapters:
            self.adapters[name] = (folder, list(self.adapters.values())[-1][1])
            return
        self.models.policy.load_weights(folder)
        own = {key: value.detach().clone() for key, value in self.models.policy.parameters().items()}
        if self.fault == "too strong":
            own = {key: 2 * value if "lora_B" in key else value for key, value in own.items()}
        self.adapters[name] = (folder, own)

    def _model(self, name: str) -> LanguageModel:
        if name == "base" or (self.fault == "unapplied" and name in self.adapters):
            return LanguageModel(self.models.adapters, None)
        if name not in self.adapters:
            raise RefusedError(404, f"The model `{name}` does not exist.")
        with torch.no_grad():
            for key, value in self.models.policy.parameters().items():
                value.copy_(self.adapters[name][1][key])
        return self.models.policy

    def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        model, ids = self._model(body["model"]), list(body["prompt"])
        if max(ids) >= self.models.setup.text_config.vocab_size:
            raise RefusedError(400, f"Token id {max(ids)} is out of vocabulary")
        if body.get("prompt_logprobs") is not None:
            scores = _logprobs(model, ids[:1], ids[1:])
            rows = [{str(token): {"logprob": score}} for token, score in zip(ids[1:], scores, strict=True)]
            return {"choices": [{"index": 0, "prompt_logprobs": [None, *rows]}]}
        self.requests.append(body)
        greedy = body["temperature"] == 0
        limits = (body["temperature"] or 1.0, body["top_k"], body["top_p"])
        sampling = Sampling(body["max_tokens"], *limits, greedy=greedy)
        seeds = [torch.Generator().manual_seed(body["seed"] + i) for i in range(body["n"])]
        uniforms = [torch.rand(body["max_tokens"], generator=one, dtype=torch.float64) for one in seeds]
        found = model.generate([ids] * body["n"], sampling, torch.stack(uniforms))
        choices = []
        for index, one in enumerate(found):
            tokens = one.token_ids[:-1] if self.fault == "cut short" else one.token_ids
            raw = _logprobs(model, ids, one.token_ids)
            told = [0.0] * len(raw) if sampling.top_k == 1 else one.logprobs
            given = (told if self.processed else raw)[: len(tokens)]
            choices.append({"index": index, "token_ids": tokens, "logprobs": {"token_logprobs": given}})
        return {"choices": [{"index": 0}] if self.fault == "no tokens" else choices}


def _logprobs(model: LanguageModel, context: Sequence[int], actions: Sequence[int]) -> list[float]:
    sequences = TokenSequences([torch.tensor(list(context))], [torch.tensor(list(actions))])
    return model.logprobs(sequences, 1.0, 4096).tolist()


def _handler(small: SmallServer) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: dict[str, Any]) -> None:
            try:
                if small.key and self.headers["Authorization"] != small.key:
                    raise RefusedError(401, f"not {self.headers['Authorization']}")
                status, said = 200, small.answer(self.path, body)
            except RefusedError as error:
                status, said = error.args[0], json.dumps({"error": {"message": error.args[1]}}).encode()
            except ConnectionAbortedError:
                return
            with suppress(OSError):  # nobody waits for it any more
                self.send_response(status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

        def log_message(self, format: str, *args: Any) -> None:
            """Keep the test output clean."""

    return Handler
