"""When two texts count as the same: if they differ in white space alone."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt


def digest(content: Any) -> bytes:
    """16 bytes that stand for a text, chat messages or a list of digests; white space counts as one space."""
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
    """The same number for rows with the same prompt, text or chat."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(digest(content), len(numbers)) for content in contents], dtype=np.intp)
