"""What the store refuses: it takes only what any database holds and an export can give back."""

from __future__ import annotations

from ppolm.data.examples import LARGEST, in_range
from ppolm.errors import FeedbackError
from ppolm.feedback.record import Record, Source
from ppolm.messages import brief


def check_record(record: Record) -> None:
    """Raise if a judgement cannot be stored."""
    _check_numbers(record)
    _check_name(record.judgement.annotator, "an annotator")
    check_source(record.source)
    check_source(record.rejected_source)
    for name in (record.details.study, record.details.item):
        _check_name(name, "a study's item")


def check_source(source: Source) -> None:
    """Raise if a name in it cannot be stored."""
    _check_name(source.run, "a run")
    _check_name(source.policy, "a policy")
    _check_name(source.purpose, "a purpose")


def _check_numbers(record: Record) -> None:
    """What the store takes, an export must be able to give back."""
    for name in ("score", "confidence", "margin"):
        number = getattr(record.judgement, name, 0.0)
        if not in_range(number):
            raise FeedbackError(f"The {name} {brief(number)} cannot be stored: expected a number within ±{LARGEST:g}.")
    details = record.details
    said = {"seconds": details.seconds, **(details.axes or {})}
    for name, value in said.items():
        if value is not None and not in_range(value):
            raise FeedbackError(f"{brief(name)} is {brief(value)}: expected a number within ±{LARGEST:g}.")


def _check_name(value: str | None, what: str) -> None:
    """Names are stored as they are, so they must be text that any database holds."""
    if value is not None and ("\0" in value or value.encode("utf-8", "ignore").decode() != value):
        raise FeedbackError(f"The name of {what}, {brief(value)}, holds a character that cannot be stored. Change it.")
