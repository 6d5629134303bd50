"""How messages quote user input and errors: short, on one line, and without terminal control characters."""

from __future__ import annotations

import json
import reprlib
from typing import Any

LONGEST_VALUE = 60
LONGEST_MESSAGE = 1500
"""Longest error message in characters: nobody reads more, and it would scroll earlier output off the terminal."""


def brief(value: Any, length: int = LONGEST_VALUE) -> str:
    """The ``repr`` of a value, cut to ``length`` characters; of a nested or huge value only the outer part is read."""
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = shortener.maxlong = length
    shortener.maxlevel = 3
    try:
        text = shortener.repr(value)
    except Exception:  # an integer too long to print, or an object whose repr fails
        digits = f" of {value.bit_length()} bits" if isinstance(value, int) else ""
        return f"a {type(value).__name__}{digits}"
    return cut(printable(text, keep=""), length)


def printable(text: str, keep: str = "\n\t") -> str:
    """Text with control characters escaped, because they could move the cursor or hide output."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else repr(letter)[1:-1] for letter in text)


def cut(text: str, length: int) -> str:
    """Text of at most ``length`` characters: the middle is cut, because advice comes at the end."""
    if len(text) <= length:
        return text
    head = (length - 5) * 2 // 3
    return f"{text[:head]} ... {text[len(text) - (length - 5 - head) :]}"


def reason(error: BaseException, length: int = 300) -> str:
    """The message of a library's error on one short line, or its type if it has no message."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # a user's own error class whose ``__str__`` fails
        text = ""
    return cut(printable(text), length) if text else type(error).__name__


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON in which non-ASCII text stays readable, escaped only if it contains unprintable characters."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text if text.replace("\n", "").isprintable() else json.dumps(value, indent=indent)


def is_utf8(text: str) -> bool:
    """Whether text can be encoded: an undecodable byte or half a character is a lone surrogate, which cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
