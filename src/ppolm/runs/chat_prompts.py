"""Whether a run's prompts were chats, and text as what a user says in one: a policy is asked as it was trained."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from ppolm.data.prompts import Prompt


def trained_on_chats(adapter: str | Path | None) -> bool:
    """Whether the prompts of the run that an adapter comes from were chats; no, if it does not tell."""
    try:
        return adapter is not None and bool(json.loads((Path(adapter) / "best.json").read_text()).get("chat"))
    except (OSError, ValueError, AttributeError, RecursionError):  # an adapter from elsewhere, or of an older run
        return False


def as_chat(prompt: Prompt) -> Prompt:
    """Text as what a user says in a chat."""
    if not isinstance(prompt.content, str):
        return prompt
    return dataclasses.replace(prompt, content=[{"role": "user", "content": prompt.content}])
