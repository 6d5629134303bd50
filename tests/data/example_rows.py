"""Rows in text and chat form, and the examples they become."""

from __future__ import annotations

import dataclasses
from typing import Any

from ppolm.data.examples import Example, as_example
from ppolm.data.prompts import Prompt

TEXT = "Name a colour."
CHAT = [{"role": "system", "content": "Be short."}, {"role": "user", "content": TEXT}]


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def bare(example: Example) -> Example:
    """The example without the columns for the reward function, which depend on the file format."""
    if isinstance(example, Prompt):
        return Prompt(example.content)
    return dataclasses.replace(example, prompt=Prompt(example.prompt.content))


def example(row: Any) -> Example:
    return bare(as_example(row, "row 1,"))


# ---- bad rows -------------------------------------------------------------------------------------------------------

PAIR = {"prompt": "p", "chosen": "a", "rejected": "b"}
RATED = {"prompt": "p", "completion": "a", "score": 1}
