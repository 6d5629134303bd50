"""Rewards that misbehave: what a function returns or raises, and what an endpoint answers."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from random import Random
from typing import Any

from attack import mutate
from attack.samples import Samples
from attack.sandbox import Case, Sandbox

RESPONSES = ["Blue.", "A dog, a cat.", ""]
BODIES = (
    "return {value}",
    "return [1.0, {value}, 2.0]",
    "return [[1.0], [{value}], [0.5]]",
    "return (x for x in [1, 2, 3])",
    "raise ValueError({value})",
    "raise BaseException({value})",
    "import sys; sys.exit({value})",
    "raise Odd()",
    "return Odd()",
    "return [Odd(), Odd(), Odd()]",
    "return __import__('torch').tensor([1.0, float('nan'), 1e38])",
    "return __import__('numpy').array([[1, 2], [3, 4], [5, 6]])",
    "f = lambda n: f(n + 1)\n    return f(0)",
    "return [10**400] * 3",
    "return [1e308, -1e308, 1e308]",
    "return [True, False, True]",
    "return ['1', '2', '3']",
    "return [[], [], []]",
    "return {{1: 2}}",
    "import time; time.sleep(0.4); return [1, 2, 3]",
)
ODD = """
class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no text")
    __repr__ = __str__
    def tolist(self):
        raise KeyError("no list")
"""


def functions(rng: Random, samples: Samples, box: Sandbox) -> Case:  # noqa: ARG001
    """Reward files: wrong values, errors of every kind, files that cannot be imported."""
    given = mutate.value(rng)
    shown = f"float('{given}')" if isinstance(given, float) else repr(given)[:2000] if _has_repr(given) else "None"
    body = rng.choice(BODIES).format(value=shown)
    source = f"{ODD}\ndef score(prompts, responses, **columns):\n    {body}\n"
    if rng.random() < 0.2:
        source = mutate.text(rng, source)
    path = box.given / f"reward_{rng.randrange(10**9)}.py"
    path.write_bytes(source.encode("utf-8", "surrogatepass"))
    return Case(lambda: _score(f"{path}:score", rng), f"reward {path}\n{source[-300:]}")


def _has_repr(value: object) -> bool:
    try:
        repr(value)
    except (ValueError, RecursionError):
        return False
    return True


def _score(name: str, rng: Random) -> int:
    """What training does with a reward: load, call, check, sum and normalise; returns 1 for a reported error."""
    from ppolm.cli.main import fail
    from ppolm.config import PPOConfig
    from ppolm.errors import PpolmError
    from ppolm.ppo_trainer.reward_computer import RewardComputer
    from ppolm.rewards.build import build_rewards

    kind = rng.choice(["none", "batch", "running"])
    try:
        retries: dict[str, Any] = {"reward_retries": 0} if name.startswith("http") else {}
        config = PPOConfig(reward=(name,), reward_timeout=0.2, **retries)
        rewards = build_rewards(config, None)
        computer = RewardComputer(rewards, (), kind, 0.0, rng.choice(["raise", "default"]))
        scores = computer.compute_rewards(["a", "b", "c"], RESPONSES)
        computer.normalizer.normalize(scores)
    except PpolmError as error:
        return fail(str(error))
    return 0


def answers(rng: Random, samples: Samples, box: Sandbox) -> Case:  # noqa: ARG001
    """HTTP answers: not HTTP, not JSON, too short, redirected, or the wrong JSON."""
    good: object = rng.choice([{"rewards": [1.0, 2.5, -3]}, [1, 2, 3]])
    try:
        body = json.dumps(mutate.tree(rng, good)).encode()
    except (ValueError, RecursionError, OverflowError):
        body = b"{"
    status = rng.choice([200, 200, 200, 200, 204, 301, 307, 404, 418, 500, 999])
    head = f"HTTP/1.1 {status} {rng.choice(['OK', '', 'x' * 9000, mutate.NASTY_TEXT[3]])}\r\n"
    length = rng.choice([len(body), len(body), 0, len(body) + 5, -1, 10**30])
    head += rng.choice(
        [f"Content-Length: {length}\r\n", "", "Transfer-Encoding: chunked\r\n", "Location: file:///x\r\n"]
    )
    raw = head.encode() + b"\r\n" + body
    if rng.random() < 0.5:
        raw = mutate.data(rng, raw)
    return Case(lambda: _served(raw, rng), f"answer {raw[:300]!r}")


def _served(raw: bytes, rng: Random) -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server, raw), daemon=True).start()
        print(f"endpoint on {server.getsockname()[1]}", file=sys.stderr)
        return _score(f"http://127.0.0.1:{server.getsockname()[1]}/score", rng)


def _serve(server: socket.socket, raw: bytes) -> None:
    server.settimeout(0.5)  # closing a socket does not wake up a thread that waits on it
    while server.fileno() != -1:
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.settimeout(5)
                connection.recv(1 << 16)
                connection.sendall(raw)
