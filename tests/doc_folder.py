"""The folder that the commands of the pages run in, and how they are made small."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from ppolm.embedded import REWARD
from scripts.bad_settings import ALIKE, REWARDS
from tests.conftest import ROOT
from tests.tiny_models import make_model_folder

SMALL = shlex.split(
    "--max-steps 1 --batch-size 4 --minibatch-size 4 --max-new-tokens 4 --lora-r 2 --eval-every 1 --max-eval-prompts 2 "
    "--log-to"
)
SIZES = {
    "train": SMALL,
    "sft": shlex.split("--batch-size 64 --trainable-layers 1"),
    "reward": shlex.split("--batch-size 64 --trainable-layers 1"),
    "demo": shlex.split("--steps 1 --posts 4"),
    "generate": shlex.split("--samples 1 --max-new-tokens 4"),
    "eval": [],
}
"""Flags that replace those of a page: the size of what is computed."""
SHAPE = {"--lora-r", "--trainable-layers"}
"""Those of them that only a new adapter takes."""
ROWS = {"embedded": "embedded:validation"}
"""Data that is replaced by a smaller part of it."""
REWARD_FILES = ("my_rewards.py", "your_rewards.py")
OWN_REWARD = "def score(prompts, responses):\n    return [float(len(one)) for one in responses]\n"


def furnish(folder: Path, ppolm: Callable[[list[str]], int]) -> None:
    """Everything that pages take for granted: a model, prompts, a reward, a finished run, a reward model."""
    for name in ("configs", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.ipynb", "__pycache__"))
    (folder / "path" / "to" / "model").mkdir(parents=True)
    make_model_folder(folder / "path" / "to" / "model", context=1024)
    for name in ("prompts.jsonl", "your_prompts.jsonl", "path/to/prompts.jsonl"):
        shutil.copy(ROOT / "examples" / "prompts.jsonl", folder / name)
    for name in REWARD_FILES:
        (folder / name).write_text(OWN_REWARD)
    endings = (
        {"prompt": f"There was a {word} who", "completion": " ran home."} for word in ("dog", "cat", "bird", "hat")
    )
    (folder / "endings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in endings))
    (folder / ALIKE).write_text(REWARDS)
    run = "train --model-name path/to/model --prompts prompts.jsonl --reward my_rewards.py:score --run-name my-run"
    sizes = "--max-steps 10 --batch-size 4 --minibatch-size 4 --max-new-tokens 12 --eval-every 5 --log-to"
    assert ppolm(shlex.split(f"{run} {sizes} --max-eval-prompts 4 --table-every 5 --lora-r 2")) == 0
    shutil.move(folder / "runs", folder / ".furnished")
    shutil.copytree(folder / ".furnished" / "my-run", folder / ".furnished" / "my-policy")
    shutil.copytree(REWARD, folder / ".furnished" / "my-reward")


def tidy(folder: Path) -> None:
    """The runs as they were, for the next page."""
    shutil.rmtree(folder / "runs", ignore_errors=True)
    shutil.copytree(folder / ".furnished", folder / "runs")
    for left in (*folder.glob("feedback.db*"), *folder.glob("*.yaml"), folder / "my-folder"):
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def small(words: list[str]) -> list[str]:
    """The arguments of a command with the sizes of a test, and without what is in its way."""
    command, rest = words[0], list(words[1:])
    if command not in SIZES or "--help" in rest or "--resume" in rest or "--estimate" in rest:
        return words
    sizes = SIZES[command]
    if "--sft-adapter" in rest or "--start-from" in rest:  # an adapter that is there keeps its shape
        sizes = [word for at, word in enumerate(sizes) if not {word, *sizes[at - 1 : at]} & SHAPE]
    for flag in (word for word in sizes if word.startswith("--")):
        if flag in rest:
            at = end = rest.index(flag)
            while end + 1 < len(rest) and not rest[end + 1].startswith("--"):  # a flag may have several values
                end += 1
            del rest[at : end + 1]
    if command == "sft":
        rest = [ROWS.get(word, word) if rest[at - 1] == "--data" else word for at, word in enumerate(rest)]
    if "--config" in rest and "--model-name" not in rest:
        rest += ["--model-name", "path/to/model"]
    if command == "train" and "--run-name" not in rest:
        rest += ["--run-name", "my-run"]
    for flag in ("--output", "--run-name"):
        if flag in rest:
            name = rest[rest.index(flag) + 1]
            shutil.rmtree(name if flag == "--output" else Path("runs") / name, ignore_errors=True)
    return [command, *rest, *sizes]
