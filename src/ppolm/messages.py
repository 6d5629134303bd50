"""What people gave us, as messages repeat it: short, on one line, and with nothing in it that drives a terminal."""

from __future__ import annotations

import json
import reprlib
from typing import Any

LONGEST_VALUE = 60
LONGEST_MESSAGE = 1500
"""Characters of a whole error message: beyond it nobody reads, and a terminal loses what stood above."""


def brief(value: Any, length: int = LONGEST_VALUE) -> str:
    """The ``repr`` of a value, cut to ``length`` characters; of a nested or huge value only the outside is read."""
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = shortener.maxlong = length
    shortener.maxlevel = 3
    try:
        text = shortener.repr(value)
    except Exception:  # a whole number too long to be written, or an object whose repr fails
        digits = f" of {value.bit_length()} bits" if isinstance(value, int) else ""
        return f"a {type(value).__name__}{digits}"
    return cut(printable(text, keep=""), length)


def printable(text: str, keep: str = "\n\t") -> str:
    """Text whose control characters, which could move the cursor or hide what is said, are escaped."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else repr(letter)[1:-1] for letter in text)


def cut(text: str, length: int) -> str:
    """Text of at most ``length`` characters: the middle is left out, for advice stands at the end."""
    if len(text) <= length:
        return text
    head = (length - 5) * 2 // 3
    return f"{text[:head]} ... {text[len(text) - (length - 5 - head) :]}"


def reason(error: BaseException, length: int = 300) -> str:
    """What an error of a library says, on one short line; its kind if it says nothing."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # an error of somebody's own, whose text is broken too
        text = ""
    return cut(printable(text), length) if text else type(error).__name__


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON that people can read in their own letters, escaped only where a terminal or encoding would suffer."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text if text.replace("\n", "").isprintable() else json.dumps(value, indent=indent)


def is_utf8(text: str) -> bool:
    """Whether text is whole: a byte that could not be read, or half a character, is a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
