"""Whether a run was trained on chat prompts, and text prompts as chats: a policy is prompted as it was trained."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from ppolm.data.prompts import Prompt


def trained_on_chats(adapter: str | Path | None) -> bool:
    """Whether an adapter comes from a run with chat prompts; False if that is not known."""
    try:
        return adapter is not None and bool(json.loads((Path(adapter) / "best.json").read_text()).get("chat"))
    except (OSError, ValueError, AttributeError, RecursionError):  # an adapter from elsewhere, or from an older run
        return False


def as_chat(prompt: Prompt) -> Prompt:
    """A text prompt as a user message in a chat."""
    if not isinstance(prompt.content, str):
        return prompt
    return dataclasses.replace(prompt, content=[{"role": "user", "content": prompt.content}])
