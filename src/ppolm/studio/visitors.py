"""Who may see what: the owner by the link that was printed, annotators by personal links that open judging alone."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ppolm.errors import ConfigError
from ppolm.messages import brief

LONGEST_NAME = 100
FEWEST_LETTERS = 16
"""Letters of a personal key below which it could be guessed."""


@dataclass(frozen=True)
class Visitor:
    """Somebody who came with a valid key."""

    key: str
    annotator: str | None = None
    """The annotator's name; None for the owner, who may see everything."""

    @property
    def is_owner(self) -> bool:
        """Whether everything is open to them."""
        return self.annotator is None


@dataclass(frozen=True)
class Keys:
    """The keys that open the page."""

    owner: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    annotators: Mapping[str, str] = field(default_factory=dict)
    """Names by personal key."""
    csrf_secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def visitor(self, key: str) -> Visitor | None:
        """Whose key it is. Every key is compared in constant time, and all of them, so time tells nothing."""
        found = Visitor(self.owner) if same(key, self.owner) else None
        for theirs, name in self.annotators.items():
            if same(key, theirs):
                found = Visitor(theirs, name)
        return found

    def csrf_token(self, visitor: Visitor) -> str:
        """What a page of ours knows and a foreign one cannot: it goes with every request that writes."""
        return hmac.new(self.csrf_secret, visitor.key.encode(), hashlib.sha256).hexdigest()


def same(one: str, other: str) -> bool:
    """Whether two secrets are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def read_annotators(path: Path) -> dict[str, str]:
    """Names by personal key, from a file with a line ``name key`` each; a line with a name alone is an error.

    A name may hold spaces; the key is the last word of its line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The annotators' file {path} cannot be read: {error}.") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or line.lstrip().startswith("#"):
            continue
        name, key = " ".join(words[:-1]), words[-1]
        problem = _problem(name, key, found)
        if problem:
            raise ConfigError(f"Line {number} of {path} {problem}")
        found[key] = name
    if not found:
        raise ConfigError(f"{path} names no annotators. Write a line `name key` for each; {suggestion()}")
    return found


def _problem(name: str, key: str, found: Mapping[str, str]) -> str | None:
    if not name:
        return f"has no key beside the name {brief(key)}. Write `name key`; {suggestion()}"
    if len(name) > LONGEST_NAME or not name.isprintable():
        return f"has {brief(name)} as a name: expected up to {LONGEST_NAME} printable characters."
    if len(key) < FEWEST_LETTERS or not (key.isascii() and key.isprintable()):
        return f"has a key that could be guessed: expected {FEWEST_LETTERS} letters or more; {suggestion()}"
    if key in found:
        return f"has the same key as {brief(found[key])}. Every annotator needs a key of their own."
    if name in found.values():
        return f"names {brief(name)} a second time: their judgements could not be told apart."
    return None


def suggestion() -> str:
    """A key that nobody has used."""
    return f"a new key: {secrets.token_urlsafe(18)}"
