"""Write docs/settings.md: every setting with its default, range, meaning and resume rule, from its declaration.

python -m scripts.settings_page
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ppolm.config import ModelSettings, PPOConfig, RewardConfig, SFTConfig, SupervisedConfig
from ppolm.config.groups import GROUPS, Group
from ppolm.config.limits import Limits
from ppolm.config.setting import meanings, settings_of
from ppolm.config.value_types import NAMES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
SECTIONS: dict[type[ModelSettings], str] = {
    ModelSettings: "All trainings: `ppolm train`, `sft` and `reward`",
    PPOConfig: "PPO: `ppolm train`, `PPOConfig`",
    SupervisedConfig: "Both supervised trainings: `ppolm sft` and `reward`",
    SFTConfig: "Supervised fine-tuning: `ppolm sft`, `SFTConfig`",
    RewardConfig: "Reward models: `ppolm reward`, `RewardConfig`",
}
"""Each class lists only what it adds to its parent, so that nothing is repeated."""
INTRODUCTION = """# Settings

Every setting is a field of the configuration in Python (`PPOConfig(learning_rate=2e-5)`), a line of a YAML file
(`learning_rate: 2e-5`) and a flag (`--learning-rate 2e-5`). None is written `null` in YAML and `None` as a flag. A
value outside its range is refused, with the range; so is a setting that could not act beside the others, with what to
do.

**On resume** says whether `--resume` takes another value than the training was started with. A change of what is
*fixed* would make it another training, and is refused. What *may change* leaves the numbers of a step as they are, but
for rounding: where and how long a training runs, what it writes, how much memory it takes, which code computes it, and
what happens when a reward fails or people do not answer. Some of these are bound in another way:

- `prompts` and `eval_prompts` may lie elsewhere, but must hold the same prompts: they are compared by their content.
- `num_epochs` and `max_steps` cannot change the length of a run whose `lr_schedule` is linear or cosine.
- `output` is the folder that `--resume` names, also if it was moved.

Made by `python -m scripts.settings_page` from the fields in `src/ppolm/config`; a test fails if it is out of date.
"""
HEAD = "| setting | default | range | meaning | on resume |\n|---|---|---|---|---|"


def page() -> str:
    """The whole page."""
    parts, explained = [INTRODUCTION], set[Group]()
    for kind, title in SECTIONS.items():
        parts.append(f"## {title}\n")
        for group, names in _added(kind).items():
            about = [] if group in explained else [f"{GROUPS[group]}\n"]
            explained.add(group)
            parts += [f"### {group[0].upper()}{group[1:]} settings\n", *about, HEAD]
            parts += [*(_row(kind, name) for name in names), ""]
    return "\n".join(parts)


def _added(kind: type[ModelSettings]) -> dict[Group, list[str]]:
    """The settings that a class adds to its parent's, by group."""
    parent = kind.__mro__[1]
    inherited = settings_of(parent) if issubclass(parent, ModelSettings) else {}
    added = {name: one.group for name, one in settings_of(kind).items() if name not in inherited}
    return {group: [name for name in added if added[name] == group] for group in GROUPS if group in added.values()}


def _row(kind: type[ModelSettings], name: str) -> str:
    one = settings_of(kind)[name]
    accepts = allowed(get_type_hints(kind)[name], one.limits)
    cells = (f"`{name}`", shown(getattr(kind, name)), accepts, meanings(kind)[name], one.on_resume)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def shown(value: Any) -> str:
    """A default as written in YAML, except None and empty lists."""
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def allowed(hint: Any, limits: Limits) -> str:
    """The accepted values of a setting: its type or choices, then its bounds."""
    origin, arms = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (arm,) = (arm for arm in arms if arm is not type(None))
        return f"{allowed(arm, limits)}; or none"
    if origin is tuple:
        return f"a list: {allowed(arms[0], limits)}"
    words = ", ".join(f"`{choice}`" for choice in arms) if origin is Literal else NAMES[hint]
    return ", ".join(filter(None, (words, limits.words())))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
