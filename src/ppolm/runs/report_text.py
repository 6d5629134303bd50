"""Untrusted text in a report: bounded in length, with invisible characters made visible.

The template escapes markup. Here, control characters, marks that change the writing direction and lone surrogates are
replaced by visible text.
"""

from __future__ import annotations

import unicodedata
from typing import Any

from ppolm.messages import brief

NAME, SENTENCE, SETTING, PROMPT, RESPONSE = 120, 800, 400, 6000, 8000
"""Letters that are shown of each."""
JOINERS = "\u200c\u200d"
"""Invisible, but some languages and emoji need them."""
HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp", "Cn")
"""Unicode categories of characters that a page would not show."""


def visible(text: str, longest: int, keep: str = "\n\t") -> str:
    """Text of about ``longest`` letters at most, without its middle if it is longer; hidden characters made visible."""
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]} [... {len(text) - 2 * half:,} letters left out ...] {text[len(text) - half :]}"
    if text.isprintable():
        return text
    return "".join(letter if letter in keep or not _is_hidden(letter) else _mark(letter) for letter in text)


def _is_hidden(letter: str) -> bool:
    return letter not in JOINERS and unicodedata.category(letter) in HIDDEN


def _mark(letter: str) -> str:
    """␛ for a control character, as it is drawn in tables of them; else the number of the character."""
    code = ord(letter)
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


def setting_text(value: Any) -> str:
    """The value of a setting, as its file writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)) and all(isinstance(one, (str, int, float)) for one in value):
        return visible(", ".join(map(str, value[:50])) or "none", SETTING, keep="")
    return visible(value if isinstance(value, str) else brief(value, SETTING), SETTING, keep="")


def content_text(content: Any) -> str:
    """A prompt: text as it is, messages of a chat one below the other, each after its role."""
    if isinstance(content, str):
        return visible(content, PROMPT)
    if isinstance(content, list) and all(isinstance(one, dict) for one in content):
        lines = (f"{one.get('role', '?')}: {one.get('content', '')}" for one in content[:50])
        return visible("\n".join(lines), PROMPT)
    return visible(brief(content, PROMPT), PROMPT)


def number_text(value: float | None) -> str:
    """Four digits; a dash for a missing number."""
    return "–" if value is None else f"{value:.4g}"
