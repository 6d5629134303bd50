"""The exact bytes of tokens, and which tokens are special, from the tokenizer's own file.

Decoded texts cannot say it: a token that is only a part of a character decodes to a replacement mark. The file is read
by the tokenizers library alone; no model code is loaded, and nothing is fetched.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ppolm.embedded import model_path

log = logging.getLogger(__name__)
FILE = "tokenizer.json"
LARGEST = 64 << 20
"""Bytes; a larger tokenizer file is not read."""
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
BROKEN = "\ufffd"
"""The text that a part of a character decodes to."""


@dataclass(frozen=True)
class Piece:
    """One token of the vocabulary."""

    content: bytes | None
    """Its exact bytes; None if they are unknown."""
    special: bool


@dataclass(frozen=True)
class TokenPieces:
    """Pieces by token id; without a tokenizer, from the stored text alone."""

    name_of: Callable[[int], str | None] | None = None
    to_bytes: Callable[[str], bytes] = str.encode
    special: frozenset[int] = frozenset()
    added: frozenset[int] = frozenset()
    """Tokens whose names are their texts."""

    def of(self, token: int, text: str) -> Piece:
        """The piece of a token that was stored with this text."""
        name = self.name_of(token) if self.name_of and token >= 0 else None
        if name is None:
            return Piece(None if BROKEN in text else _encoded(text), token in self.special)
        content = _encoded(name) if token in self.added else self.to_bytes(name)
        return Piece(content, token in self.special)

    def all_of(self, tokens: Sequence[int], texts: Sequence[str]) -> list[Piece]:
        """The pieces of a response."""
        return [self.of(token, text) for token, text in zip(tokens, texts, strict=True)]


def find_pieces(model_name: str) -> TokenPieces:
    """The pieces of a run's model, if its tokenizer's file is on this machine; else of the stored texts alone."""
    path = _tokenizer_file(model_name)
    if path is None:
        return TokenPieces()
    found = path.stat()
    return _read(path, found.st_mtime_ns, found.st_size)


def _tokenizer_file(model_name: str) -> Path | None:
    path = Path(model_path(model_name)) / FILE
    try:
        if not path.is_file() and not Path(model_name).is_absolute():
            from huggingface_hub import try_to_load_from_cache  # a name on the Hub: only what is here already

            cached = try_to_load_from_cache(model_name, FILE)
            path = Path(cached) if isinstance(cached, str) else path
        return path if path.is_file() and path.stat().st_size <= LARGEST else None
    except (OSError, ValueError):  # a name that cannot be one
        return None


@lru_cache(maxsize=4)
def _read(path: Path, _mtime: int, _size: int) -> TokenPieces:
    from tokenizers import Tokenizer

    try:
        text = path.read_text(encoding="utf-8")
        tokenizer, described = Tokenizer.from_str(text), json.loads(text)
        kinds = set(_types(described.get("decoder")))
        added = described.get("added_tokens") or ()
        return TokenPieces(
            name_of=tokenizer.id_to_token,
            to_bytes=_byte_level if "ByteLevel" in kinds else _spaced if kinds else str.encode,
            special=frozenset(int(token["id"]) for token in added if token.get("special")),
            added=frozenset(int(token["id"]) for token in added),
        )
    except Exception as error:  # of the library, which has no class of its own for a bad file
        log.warning("%s cannot be used, so tokens show only what was stored of them: %s", path, str(error)[:200])
        return TokenPieces()


def _types(decoder: Any) -> list[str]:
    """Kinds of decoders, of a sequence of them too."""
    if not isinstance(decoder, dict):
        return []
    inner = decoder.get("decoders")
    below = [kind for one in inner for kind in _types(one)] if isinstance(inner, list) else []
    return [str(decoder.get("type")), *below]


@lru_cache(maxsize=1)
def _byte_letters() -> dict[str, int]:
    """The letter that a byte-level tokenizer writes for each byte (as GPT-2 did): printable bytes are themselves."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _byte_level(name: str) -> bytes:
    letters = _byte_letters()
    return b"".join(bytes([letters[letter]]) if letter in letters else letter.encode() for letter in name)


def _spaced(name: str) -> bytes:
    """A name of a SentencePiece vocabulary: ▁ is a space, <0xE2> a byte."""
    if match := BYTE_TOKEN.fullmatch(name):
        return bytes([int(match[1], 16)])
    return _encoded(name.replace("▁", " "))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
