"""What the judgements of a study's item say together, kept beside the item so that it need not be read out of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, select, update

from ppolm.feedback.record import REPEAT
from ppolm.feedback.tables import items, judgements, studies

DISPUTED_SHARE = 0.25
"""Scores further apart than this share of their scale are a disagreement: on a scale of 1 to 7, two points."""


def recount(connection: Connection, ids: Iterable[str | None]) -> None:
    """Count the judgements of some items again, in the transaction that has changed them."""
    for id_ in sorted({id_ for id_ in ids if id_ is not None}):
        # PostgreSQL: the row is locked before it is counted, else two writers would each miss the other's judgement.
        query = select(items.c.first_id, studies.c.lowest, studies.c.highest).join(
            studies, studies.c.id == items.c.study
        )
        item = connection.execute(query.where(items.c.id == id_).with_for_update(of=items)).one_or_none()
        if item is None:  # a question of the queue, or a study that this store does not have
            continue
        said = connection.execute(select(judgements).where(judgements.c.item == id_)).mappings().all()
        originals = [row for row in said if row["repetition"] != REPEAT]
        firsts = [row for row in originals if not row["repetition"]]
        verdicts = [_verdict(row, item.first_id) for row in originals]
        disputed = _differ(verdicts, item.highest - item.lowest if said and said[0]["kind"] == "scores" else None)
        connection.execute(update(items).where(items.c.id == id_).values(judged=len(firsts), disputed=disputed))


def _verdict(row: Any, first_id: str) -> float:
    """The score; 1 or -1 for a thumb, or for the item's first or second response; 0 for a tie or both bad."""
    if row["kind"] == "preferences":
        return 0.0 if row["tie"] else 1.0 if row["response_id"] == first_id else -1.0
    return float(row["score"]) if row["kind"] == "scores" else 2.0 * row["label"] - 1.0


def _differ(verdicts: Sequence[float], scale: float | None) -> bool:
    """Whether annotators disagree: on scores by more than a share of their scale."""
    spread = max(verdicts, default=0.0) - min(verdicts, default=0.0)
    return spread > (DISPUTED_SHARE * scale if scale is not None else 0.0)
