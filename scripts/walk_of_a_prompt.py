"""The files of ppolm that one PPO step runs through, from prompt to update, and its deepest stack.

    python -m scripts.walk_of_a_prompt            counts by floor
    python -m scripts.walk_of_a_prompt --files    the files, too, and the deepest stack

It traces the second step of a trainer on the embedded model, when everything is loaded. Comprehensions and lambdas do
not count as frames: they are read in place.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ppolm import PPOConfig, PPOTrainer
from scripts.architecture_picture import FLOORS
from scripts.import_graph import PACKAGE

INLINE = {"<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>"}
PROMPTS = [f"SUBREDDIT: r/advice\nTITLE: Help {i}\nPOST: She left.\nTL;DR:" for i in range(4)]


class Walk:
    """A profile function that records the files visited and the deepest stack."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.deepest: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call inside ppolm."""
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            self.files.add(_name(frame))
            stack = list(_ours(frame))
            if len(stack) > len(self.deepest):
                self.deepest = stack


def _ours(frame: FrameType | None) -> Any:
    while frame is not None:
        if frame.f_code.co_filename.startswith(str(PACKAGE)) and frame.f_code.co_name not in INLINE:
            yield f"{_name(frame)}: {frame.f_code.co_name}"
        frame = frame.f_back


def _name(frame: FrameType) -> str:
    return Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix()


def walk() -> Walk:
    """Trace the prompts of one step."""
    torch.set_num_threads(1)
    config = PPOConfig(model_name="embedded", batch_size=4, minibatch_size=4, max_new_tokens=8, device="cpu", threads=1)
    trainer = PPOTrainer(config, reward=lambda _, responses: [float(len(response)) for response in responses])
    trainer.ppo_step(PROMPTS)
    found = Walk()
    sys.setprofile(found)
    try:
        trainer.ppo_step(PROMPTS)
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    """Print the counts."""
    found = walk()
    rooms = {room: floor.name for floor in FLOORS for room in floor.rooms}
    by_floor: dict[str, list[str]] = {floor.name: [] for floor in FLOORS}
    for file in sorted(found.files):
        by_floor[rooms[file.partition("/")[0].removesuffix(".py")]].append(file)
    for floor, files in by_floor.items():
        print(f"{floor}: {len(files)} files")
    print(f"in all: {len(found.files)} files, {len(found.deepest)} frames at the deepest")
    if "--files" in sys.argv:
        print("", *sorted(found.files), "", *reversed(found.deepest), sep="\n")


if __name__ == "__main__":
    main()
