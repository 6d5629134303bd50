"""How the page's server and a model's process talk: one JSON object per line, over pipes, each of bounded size.

    server → model    {"id": 7, "ask": {...}}    {"cancel": 7}
    model → server    {"ready": {...}}  or  {"failed": "sentence"}, once
                      {"id": 7, "result": {...}}  or  {"id": 7, "error": "sentence"}

JSON and never pickle: what comes from a process that read somebody's files cannot run anything here.
"""

from __future__ import annotations

import json
from typing import Any

LARGEST_REQUEST = 4 << 20
"""Bytes of a line: what a page may send, with every letter written as a code."""
LARGEST_REPLY = 8 << 20
"""Two answers of 2,048 tokens with their numbers take a tenth of it."""


class LineError(ValueError):
    """A line that is too long or no JSON object."""


def to_line(message: dict[str, Any], largest: int) -> bytes:
    """A message as a line, in ASCII, so that half a character in a text does no harm."""
    try:
        line = json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise LineError(f"a message cannot be written as JSON: {error}") from error
    if len(line) > largest:
        raise LineError(f"a message has {len(line):,} bytes, at most {largest:,} are allowed")
    return line


def from_line(line: bytes) -> dict[str, Any]:
    """The message of a line."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError("a line is not JSON") from error
    if not isinstance(message, dict):
        raise LineError(f"a line holds a {type(message).__name__}, expected an object")
    return message
