"""Names of annotators and studies come from files of others: they are shown as text, and execute nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppolm.feedback.desk import Desk
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Item, Study, create_study
from tests.studio.serving import serving

NAMES = ["<script>window.hacked = 1</script>", "<img src=x onerror='window.hacked = 1'>", "ann\u202enna"]


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_of_people_and_studies_are_text(tmp_path: Path, visit: Callable[..., Any], name: str) -> None:
    place = str(tmp_path / "feedback.db")
    store = FeedbackStore(place)
    items = [Item(f"{name} {i}?", (f"{name} first", f"{name} second")) for i in range(3)]
    create_study(store, Study(name.replace("\u202e", ""), guidelines=name, wanted=2, repeats=0.0), items)
    for annotator, verdict in ((name, "first"), (f"{name} too", "second")):
        desk = Desk(store, annotator)
        while tasks := desk.next():
            desk.commit(tasks[0].id, verdict, note=name)
    store.close()
    with serving(tmp_path, store=place) as served:
        for path in ("/people", "/studies", "/studies?conflicts=none", "/judge"):
            page = visit(served, path)
            page.wait_for_selector("main:not(:has(.loading))")
            page.wait_for_timeout(300)
            assert page.evaluate("window.hacked") is None, path
            assert "\u202e" not in page.locator("body").inner_text(), path
        people = visit(served, "/people")
        people.get_by_text("too", exact=False).first.wait_for()
