"""Prompts: text or chat messages, with the extra columns of their data row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ppolm.data.dataset_shapes import standard_row
from ppolm.data.same_text import digest
from ppolm.errors import DataError
from ppolm.messages import brief, is_utf8

REFERENCE_COLUMNS = ("reference", "completion")
"""Columns that may hold a human-written answer, used for ROUGE in evaluation."""


@dataclass(frozen=True)
class Prompt:
    """Text or messages to answer; ``columns`` are passed to the reward function."""

    content: str | list[dict[str, Any]]
    """A text, or the messages of a chat."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The other columns of its row."""

    @property
    def reference(self) -> str | None:
        """The reference answer of the data row, if it has one."""
        for name in REFERENCE_COLUMNS:
            value = self.columns.get(name)
            if isinstance(value, (list, tuple)) and len(value) == 1 and isinstance(value[0], Mapping):
                value = value[0].get("content")  # an assistant message
            if isinstance(value, str) and value.strip():
                return value
        return None

    @cached_property
    def key(self) -> bytes:
        """A digest, equal for prompts that differ only in white space; the held-out split is made by it."""
        return digest(self.content)

    def preview(self) -> str:
        """The beginning of the prompt, for error messages."""
        return preview(self.content)


def preview(content: Any, length: int = 80) -> str:
    """The beginning of a prompt or response, quoted, on one line."""
    text = content if isinstance(content, str) else " ".join(str(message.get("content", "")) for message in content)
    return repr(text if len(text) <= length else text[: length - 3] + "...")


def as_prompts(items: Sequence[Any]) -> list[Prompt]:
    """Check and convert prompts: text, chat messages, data rows (``prompt`` or ``messages``) or Prompt objects."""
    if isinstance(items, (str, Mapping)):
        raise DataError("prompts is a single prompt, expected a list. Write [prompt].")
    prompts = [as_prompt(item, f"Prompt {number}") for number, item in enumerate(items)]
    if not prompts:
        raise DataError("The list of prompts is empty. Give at least one prompt.")
    return prompts


def as_prompt(item: Any, where: str) -> Prompt:
    """One prompt; ``where`` names it in errors."""
    if isinstance(item, Prompt):
        return item
    if isinstance(item, Mapping):
        return _from_row(standard_row(item, where), where)
    return (
        _from_row({"messages": item}, where) if isinstance(item, (list, tuple)) else Prompt(_check_content(item, where))
    )


def _from_row(row: Mapping[str, Any], where: str) -> Prompt:
    present = [name for name in ("prompt", "messages") if row.get(name) is not None]
    if not present:
        found = ", ".join(map(str, row)) or "none"
        raise DataError(f"{where} has neither a 'prompt' nor a 'messages' column. Its columns: {found}.")
    # In a spreadsheet with both columns, the unused one is an empty cell.
    column = next((name for name in present if row[name] != ""), present[0])
    content = row[column]
    if column == "messages" and isinstance(content, str):
        raise DataError(
            f"{where} has text as its 'messages' ({brief(content)}), expected a list of messages (in CSV: as JSON). "
            "Call the column 'prompt' if it holds text."
        )
    content = _check_content(content, where)
    columns = {str(name): value for name, value in row.items() if name not in ("prompt", "messages")}
    if not isinstance(content, str) and content[-1].get("role") == "assistant":
        # A complete conversation: its last answer, by a human or model, is not part of the prompt.
        columns.setdefault("reference", content[-1]["content"])
        content = _check_content(content[:-1], where)
    return Prompt(content, columns)


def _check_content(content: Any, where: str) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        if not content.strip():
            raise DataError(f"{where} is empty. Remove it or write something in it.")
        if not is_utf8(content):
            raise DataError(
                f"{where} holds half a character, or bytes that are not UTF-8: {brief(content)}. Remove it."
            )
        return content
    if isinstance(content, (list, tuple)):
        messages = list(content)
        good = [
            isinstance(m, Mapping) and all(isinstance(m.get(k), str) and is_utf8(m[k]) for k in ("role", "content"))
            for m in messages
        ]
        if messages and all(good):
            # Parquet gives every message the keys of all messages; chat templates test whether a key is present.
            return [{key: value for key, value in message.items() if value is not None} for message in messages]
        raise DataError(
            f"{where} must be a list of messages, each with 'role' and 'content' text; found {brief(content, 80)}."
        )
    raise DataError(
        f"{where} is {type(content).__name__} ({brief(content)}), expected text or a list of chat messages."
    )
