"""Write docs/presets.md: the presets with their values and reasons, from config/presets.py.

python -m scripts.presets_page
"""

from __future__ import annotations

from pathlib import Path

from ppolm.config import PPOConfig
from ppolm.config.presets import PRESETS
from scripts.settings_page import shown

PAGE = Path(__file__).resolve().parent.parent / "docs" / "presets.md"
INTRODUCTION = """# Presets

The defaults are the values of the documents that ppolm was designed by: a learning rate of 1e-5, 10 new tokens, top-k
50. They stay, so that a run without settings is what those documents describe. For LoRA on a model of your own better
starting points are known, and a preset sets them together:

```bash
ppolm train --preset lora-small --model-name path/to/model --prompts prompts.jsonl --reward my_rewards.py:score
ppolm init my-run.yaml --preset lora-small
```

A flag overrides a setting of the YAML file, which overrides the preset, which overrides the default. `ppolm init`
writes the values into a file, each with its reason. In Python: `PPOConfig.from_preset("lora-small",
model_name="path/to/model")`.

`demo` was measured ([demo.md](demo.md)). The others are starting points from what is commonly found for adapters, not
from a search: look at the warnings of the [report](runs.md) after a first run, which say what to turn.

Made by `python -m scripts.presets_page`; a test fails if it is out of date.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for name, preset in PRESETS.items():
        parts += [f"## {name}\n", f"{preset.about}\n"]
        if preset.values:
            parts.append("| setting | value | default | why |\n|---|---|---|---|")
            for key, value in preset.values.items():
                cells = (f"`{key}`", shown(value), shown(getattr(PPOConfig, key)), preset.reasons[key])
                parts.append(f"| {' | '.join(cells)} |")
            parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
