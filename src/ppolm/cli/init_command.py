"""``ppolm init``: a commented YAML file for a PPO run, after a few questions or flags."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
import yaml

from ppolm.cli.settings import parse
from ppolm.config import PPOConfig
from ppolm.config.presets import PRESETS, preset_values
from ppolm.config.setting import meanings
from ppolm.errors import ConfigError
from ppolm.messages import brief
from ppolm.names import EMBEDDED

WIDTH = 100
QUESTIONS = {
    "model_name": "Which model? A folder, a name on the Hub, or embedded (a tiny one to try things out)",
    "prompts": "Which prompts? A .jsonl, .csv, .parquet or .txt file, or a dataset name",
    "reward": "What gives the reward? path/file.py:function, http://..., human, or the folder of a reward model",
    "max_new_tokens": "How long may a response be, in tokens",
    "preset": f"Which preset? {', '.join(PRESETS)}",
}


@dataclass(frozen=True)
class InitArguments:
    """Write a commented YAML file for `ppolm train`. At a terminal it asks for what is not given as a flag."""

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE]")] = "my-run.yaml"
    """File to write. It must not exist."""
    preset: str | None = None
    """Where the values come from (docs/presets.md). Default: lora-small, and demo for the embedded model."""
    model_name: str | None = None
    """Base model."""
    prompts: str | None = None
    """Training prompts."""
    reward: str | None = None
    """path/file.py:function, module:function, http(s)://..., human, gold, or the folder of a trained reward model."""
    max_new_tokens: int | None = None
    """Longest response. Default: the preset's."""
    yes: bool = False
    """Ask nothing; what is not given has its default."""


def main(argv: list[str]) -> None:
    """Ask, check, write, and say what to do next."""
    arguments = parse(InitArguments, "ppolm init", argv)
    path = Path(arguments.file)
    if path.exists():
        raise ConfigError(f"{brief(str(path))} exists. Choose another name, or remove it: nothing is overwritten.")
    if not path.parent.is_dir():
        raise ConfigError(f"There is no folder {brief(str(path.parent))}. Make it first.")
    asks = sys.stdin.isatty() and not arguments.yes
    chosen = choose(arguments, ask if asks else lambda _, usual: usual)
    text = yaml_text(chosen, arguments.file)
    PPOConfig.from_dict(yaml.safe_load(text))  # refused here, not by the first run
    path.write_text(text, encoding="utf-8")
    print(f"Wrote {path}. Read it, change it, then:\n\n  ppolm train --config {path} --estimate\n  {command(path)}")


def command(path: Path) -> str:
    """What trains with the file."""
    return f"ppolm train --config {path}"


def ask(question: str, usual: str) -> str:
    """An answer from the terminal; an empty one is the usual."""
    print(f"{question} [{usual}]: " if usual else f"{question}: ", end="", flush=True)
    return sys.stdin.readline().strip() or usual


def choose(arguments: InitArguments, answer: Callable[[str, str], str]) -> dict[str, Any]:
    """The settings that were given or answered, over those of the preset, by name; ``preset`` is the preset's name."""

    def value(name: str, usual: str) -> str:
        given = getattr(arguments, name)
        return answer(QUESTIONS[name], usual) if given is None else str(given)

    model = value("model_name", PPOConfig.model_name)
    embedded = model == EMBEDDED
    preset = value("preset", "demo" if embedded else "lora-small")
    values = preset_values(preset)
    task = {"model_name": model, "prompts": value("prompts", EMBEDDED if embedded else "prompts.jsonl")}
    task |= reward_settings(value("reward", EMBEDDED if embedded else "my_rewards.py:score"))
    tokens = value("max_new_tokens", str(values.get("max_new_tokens", PPOConfig.max_new_tokens)))
    return {"preset": preset, **task, **values, "max_new_tokens": whole(tokens)}


def whole(text: str) -> int:
    """A number of tokens, as it was answered."""
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{brief(text)} is no whole number. Give the longest response in tokens.") from None


def reward_settings(reward: str) -> dict[str, Any]:
    """A folder is a reward model; anything else names a reward."""
    if Path(reward).is_dir() or reward == EMBEDDED:
        return {"reward": ["model"], "reward_model": [reward]}
    return {"reward": [reward]}


def yaml_text(chosen: Mapping[str, Any], file: str) -> str:
    """The file: the task, then the preset's values with their reasons, then how long it runs."""
    preset = PRESETS[chosen["preset"]]
    lines = [
        f"# PPO with the settings of the preset {chosen['preset']}.",
        f"# {preset.about}",
        "#",
        f"#   {command(Path(file))}",
        "#",
        "# Every other setting has its default: ppolm train --help, or docs/settings.md.",
        "",
        *section("What is trained on what", chosen, [name for name in chosen if name in TASK], meanings(PPOConfig)),
        *section("How", chosen, [name for name in chosen if name not in (*TASK, "preset")], preset.reasons),
        "# How long, and when to look. Without max_steps it is one pass over the prompts.",
        "max_steps: 100",
        "eval_every: 10",
        "checkpoint_every: 10",
    ]
    return "\n".join(lines) + "\n"


TASK = ("model_name", "prompts", "reward", "reward_model")


def section(title: str, values: Mapping[str, Any], names: list[str], comments: Mapping[str, str]) -> Iterator[str]:
    """Settings below a title, each after a comment."""
    if not names:
        return
    yield f"# {title}"
    for name in names:
        said = comments.get(name) or meanings(PPOConfig).get(name, "")
        yield from textwrap.wrap(said, WIDTH, initial_indent="# ", subsequent_indent="# ") if said else ()
        yield f"{name}: {in_yaml(values[name])}"
    yield ""


def in_yaml(value: Any) -> str:
    """A value on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()
