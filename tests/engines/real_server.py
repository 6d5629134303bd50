"""Real vLLM servers on this machine's CPU, in an environment of their own: `make test-vllm` makes it."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from ppolm.config import PPOConfig
from ppolm.embedded import DEMO, MODEL

PYTHON = os.environ.get("PPOLM_VLLM_PYTHON", "")
"""The interpreter of that environment; empty if there is none."""
STARTS_WITHIN = 300.0
CLOSE = 1e-4
"""Tolerance of a log-probability between vLLM and us, both in float32."""


def demo(output: Path, **changes: Any) -> PPOConfig:
    """The demo's settings for a short run into a folder."""
    fixed: dict[str, Any] = {"output_dir": str(output), "run_name": "run", "log_to": (), "device": "cpu"}
    return dataclasses.replace(PPOConfig.from_yaml(DEMO), **(fixed | changes))


class RealServer:
    """A vLLM server of the embedded model on a free port; ``start`` returns at once, ``wait`` when it answers."""

    def __init__(self, folder: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log, self.options = folder / f"vllm-{self.port}.log", options
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> RealServer:
        command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(MODEL)]
        command += ["--served-model-name", "base", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "256", "--enable-lora"]
        command += ["--max-lora-rank", "8", "--max-loras", "3", "--no-enable-chunked-prefill", *self.options]
        ours = {"PYTHONPATH", "OMP_NUM_THREADS"}
        environment = {key: value for key, value in os.environ.items() if key not in ours}
        environment |= {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        environment |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        return self

    def wait(self) -> None:
        until = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < until:
            assert self.process is not None
            assert self.process.poll() is None, f"the server ended:\n{self.log.read_text()[-3000:]}"
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=2).close()
            except OSError:
                time.sleep(1)
            else:
                return
        raise AssertionError(f"no server after {STARTS_WITHIN:g} s:\n{self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        """End it and its workers at once, as a lost machine would."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()

    def engine_processes(self) -> list[int]:
        """The processes that compute for it: all below the one that answers."""
        assert self.process is not None
        found, below = list[int](), [self.process.pid]
        while below:
            asked = ["ps", "-o", "pid=", "--ppid", ",".join(map(str, below))]
            below = [int(pid) for pid in subprocess.run(asked, capture_output=True, text=True).stdout.split()]
            found += below
        return found
