"""Runs and processes for the tests of models in processes of their own."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ppolm.studio.worker_process import ModelChoice

T = TypeVar("T")
POST = "SUBREDDIT: r/advice\nTITLE: What now?\nPOST: My roommate drives after drinking {}.\nTL;DR:"
POSTS = [POST.format(drink) for drink in ("beer", "wine", "tea", "milk", "rum", "gin", "coffee", "water")]

SCRIPTED = """
import json, os, sys, time
sys.stderr.write("loading\\n"); sys.stderr.flush()
def say(**message): sys.stdout.write(json.dumps(message) + "\\n"); sys.stdout.flush()
def work(number, ask):
    if ask.get("prompt") == "sleep": time.sleep(60)
    if ask.get("do") == "die": sys.stderr.write("no room \\x1b[31mleft\\n"); sys.stderr.flush(); os._exit(3)
    if ask.get("do") == "sleep": time.sleep(ask["seconds"])
    if ask.get("do") == "flood": sys.stdout.write("x" * 9_000_000 + "\\n"); sys.stdout.flush()
    if ask.get("do") == "babble": print("hello")
    say(id=number, result={"pid": os.getpid(), "echo": ask})
if "{start}" == "fail": say(failed="The files are damaged."); sys.exit(1)
if "{start}" == "hang": time.sleep(60)
say(ready={"pid": os.getpid()})
for line in sys.stdin:
    message = json.loads(line)
    if "ask" in message: work(message["id"], message["ask"])
"""
"""A process that speaks the protocol and does what a test tells it to, without a model."""


@dataclass(frozen=True)
class Scripted(ModelChoice):
    """A choice whose process is the script."""

    start: str = "well"

    def command(self, device: str) -> list[str]:  # noqa: ARG002
        """What starts it."""
        return scripted_command(self.start)


def scripted_command(start: str = "well") -> list[str]:
    """What starts the script."""
    return [sys.executable, "-c", SCRIPTED.replace("{start}", start)]


def scripted(name: str = "one", start: str = "well") -> Scripted:
    """A choice by name."""
    return Scripted("policy", Path(name), start=start)


class LoopThread:
    """An event loop in a thread of its own: the main one may be a browser's."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def do(self, work: Coroutine[Any, Any, T], seconds: float = 120) -> T:
        """The result of a coroutine that must not take longer."""

        async def limited() -> T:
            return await asyncio.wait_for(work, seconds)

        return asyncio.run_coroutine_threadsafe(limited(), self.loop).result()

    def close(self) -> None:
        """End it."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine."""
    loop = LoopThread()
    try:
        return loop.do(work, 60)
    finally:
        loop.close()


def train_tiny_run(folder: Path) -> Path:
    """A run of the embedded model whose last policy has moved far from the reference."""
    from ppolm.config import PPOConfig
    from ppolm.ppo_trainer import PPOTrainer
    from tests.conftest import spread

    config = PPOConfig(
        model_name="embedded",
        output_dir=str(folder),
        run_name="tiny",
        max_steps=2,
        batch_size=6,
        minibatch_size=3,
        ppo_epochs=2,
        max_new_tokens=12,
        learning_rate=5e-3,
        value_learning_rate=1e-3,
        temperature=0.9,
        lora_r=4,
        eval_every=2,
        eval_fraction=0.25,
        checkpoint_every=2,
        log_to=(),
        device="cpu",
    )
    return PPOTrainer(config, reward=spread).train(POSTS).run_dir
