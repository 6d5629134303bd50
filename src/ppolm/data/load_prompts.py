"""Prompts from files and datasets."""

from __future__ import annotations

from ppolm.data.prompts import Prompt, as_prompt
from ppolm.data.read_rows import read_rows
from ppolm.errors import DataError


def load_prompts(source: str, split: str = "train") -> list[Prompt]:
    """All prompts of a file or dataset; a bad row is an error that names its file and line."""
    prompts = [as_prompt(value, where) for where, value in read_rows(source, split)]
    if not prompts:
        raise DataError(f"{source} holds no prompts. Give at least one.")
    return prompts
