"""Something to see and to judge right after installation: the example run, and a study of its answers."""

from __future__ import annotations

from pathlib import Path

from ppolm.embedded import EXAMPLE_COMPARISONS
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Study, create_study
from ppolm.studies.from_file import from_file

GUIDELINES = """Which summary would you rather read? A good one says what happened, what was done about it and what is
asked, and invents nothing. If both miss the point, say that both are bad."""


def make_example_store(folder: Path) -> str:
    """A new feedback store with a study of the example run: its reference's answers against its best policy's."""
    store = FeedbackStore(str(folder / "example-feedback.db"))
    study = Study("Example: which summary is better?", guidelines=" ".join(GUIDELINES.split()))
    create_study(store, study, from_file(str(EXAMPLE_COMPARISONS), "preference"))
    store.close()
    return store.name
