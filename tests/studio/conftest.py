"""A browser for the tests of pages; without one they are skipped, and say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.studio.serving import BROWSER_FLAGS, CHROMIUM, Served

WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (found) => {
  window.violations.push(`${found.violatedDirective} ${found.blockedURI}`);
});
"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium, driven by Playwright."""
    if not CHROMIUM.exists():
        pytest.skip(f"there is no browser at {CHROMIUM}: install Debian's package chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=str(CHROMIUM), args=BROWSER_FLAGS)
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page of a server in a context of its own. At the end: no script error, no violation of the policy."""
    contexts: list[Any] = []
    problems: list[str] = []

    def open_page(served: Served, path: str = "/", key: str | None = None, **options: Any) -> Any:
        size = (390, 844) if options.pop("phone", False) else (1280, 900)
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
        context.set_default_timeout(20_000)
        context.add_init_script(WATCH)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(f"script: {error}"))
        page.goto(served.link if key is None else f"{served.address}/open?key={key}")
        page.wait_for_url(lambda address: "/open" not in address)
        if path != "/":
            page.goto(served.address + path)
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            problems += [f"policy: {one}" for one in page.evaluate("window.violations ?? []")]
        context.close()
    assert problems == []
