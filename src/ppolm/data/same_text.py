"""Comparing texts: two count as the same if they differ only in white space."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt


def digest(content: Any) -> bytes:
    """A 16-byte hash of a text, of chat messages or of a list of digests; runs of white space count as one space."""
    if isinstance(content, str):
        parts = [" ".join(content.split())]
    else:
        parts = [
            f"{item['role']}\n{' '.join(item['content'].split())}" if isinstance(item, dict) else item
            for item in content
        ]
    made = blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        made.update(len(data).to_bytes(8, "big") + data)
    return made.digest()


def prompt_numbers(contents: Sequence[object]) -> npt.NDArray[np.intp]:
    """A number for each row's prompt (text or chat), equal for rows with the same prompt."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(digest(content), len(numbers)) for content in contents], dtype=np.intp)
