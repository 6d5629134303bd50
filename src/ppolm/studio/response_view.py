"""One response as the page shows it: its prompt, its tokens, and every column."""

from __future__ import annotations

from typing import Any

import numpy as np

from ppolm.studio.step_overview import gap
from ppolm.studio.step_table import Numbers, StepTable
from ppolm.studio.token_pieces import Piece, TokenPieces

LONGEST_PROMPT = 100_000
"""Letters of a prompt that a page shows; the middle of a longer one is left out."""
MOST_TOKENS = 20_000
"""Tokens of a response that a page shows; the rest of a longer one is left out, and the page says so."""
LONGEST_TOKEN = 2000
"""Letters and bytes of a token that a page shows: no vocabulary has longer ones."""
DIGITS = 7
"""Significant digits of a number on a page: those that a float32 has."""


def response_view(table: StepTable, sequence: int, pieces: TokenPieces) -> dict[str, Any]:
    """A response with all its tokens and columns; missing numbers are None."""
    start, length = int(table.offsets[sequence]), int(table.lengths[sequence])
    end = start + min(length, MOST_TOKENS)
    texts = [text[:LONGEST_TOKEN] for text in table.texts(start, end)]
    ids = table.columns["action_id"][start:end].tolist()
    found = pieces.all_of(ids, texts)
    ended = bool(table.ended[sequence])
    if ended and length == len(found) > 0:  # whatever the tokenizer says, this is the token that ended it
        found[-1] = Piece(found[-1].content, special=True)
    owner = int(table.owners[sequence])
    prompt = table.prompt_text(sequence)
    return {
        "sequence": sequence,
        "prompt": owner,
        "prompt_text": _shortened(prompt),
        "prompt_tokens": len(table.prompt_ids[owner]) if 0 <= owner < len(table.prompt_ids) else None,
        "ended": ended,
        "length": length,
        "ids": ids,
        "texts": texts,
        "bytes": [None if piece.content is None else piece.content[:LONGEST_TOKEN].hex() for piece in found],
        "special": [index for index, piece in enumerate(found) if piece.special],
        "columns": {name: numbers(table.columns[name][start:end]) for name in table.numeric},
        "samples": np.flatnonzero(table.owners == owner).tolist(),
    }


def numbers(column: Numbers) -> list[float | int | None]:
    """A column for JSON, with the digits of a float32."""
    if column.dtype.kind in "iu":
        return list(column.tolist())
    return [gap(float(f"{value:.{DIGITS}g}")) for value in column.astype(np.float64).tolist()]


def _shortened(text: str) -> str:
    if len(text) <= LONGEST_PROMPT:
        return text
    half = LONGEST_PROMPT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} letters left out ...]\n{text[-half:]}"
