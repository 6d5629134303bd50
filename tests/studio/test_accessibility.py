"""Every page, light and dark: readable contrast, names for everything that can be pressed, one main heading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ppolm.embedded import EXAMPLE
from ppolm.studio.example import make_example_store
from ppolm.studio.pages import PAGES
from tests.studio.serving import Served, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("store")
    with serving(EXAMPLE, store=make_example_store(folder)) as running:
        yield running


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", [page.path for page in PAGES])
def test_axe_finds_nothing_serious(served: Served, visit: Callable[..., Any], path: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    rewards = served.visitor().get("/api/rewards").json["rewards"]
    address = path.format(run="first-look", reward=rewards[0]["id"]) + (
        "?run=first-look" if path in ("/compare", "/try") else ""
    )
    page = visit(served, address, color_scheme=scheme)
    page.wait_for_selector("main:not(:has(.loading))")
    page.wait_for_timeout(700)
    found = axe.run(page).response["violations"]
    serious = [
        f"{one['id']}: {one['help']} ({one['nodes'][0]['html'][:200]})"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert page.locator("h1").count() == 1


def test_everything_can_be_reached_by_the_keyboard(served: Served, visit: Callable[..., Any]) -> None:
    page = visit(served)
    page.wait_for_selector("table.runs")
    names = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        names.add(
            page.evaluate("document.activeElement.textContent || document.activeElement.getAttribute('aria-label')")
        )
    assert {"Skip to the content", "first-look", "Theme", "Keys", "Filter by name"} <= names
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
