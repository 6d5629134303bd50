"""The documents as a site: built without warnings, every page in its navigation, read in a browser offline."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from scripts.docs_site.links import rewritten, targets
from scripts.docs_site.notebook_page import notebook_page
from scripts.docs_site.places import NAMED, file_of, page_of
from tests.conftest import ROOT
from tests.studio.serving import BROWSER_FLAGS, CHROMIUM

PAGES = ("index", "settings", "metrics", "tokens", "first-steps", "source/src/ppolm/advantage/td_error.py")
"""The home page, wide tables, code, the notebook, a file of the source."""
LOADED = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data")}
"""Addresses that a browser loads by itself."""
NO_LOAD = {"canonical", "next", "prev"}


class Addresses(HTMLParser):
    """What a page makes a browser load, and everything it names."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.named: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.named += [given[name] for name in ("href", "src") if name in given]
        if given.get("rel") not in NO_LOAD:
            self.loaded += [value for name, value in given.items() if (tag, name) in LOADED]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs-material is not installed: it needs Python 3.11")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    answer = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "WARNING" not in answer.stderr
    return folder


@pytest.fixture(scope="module")
def addresses(site: Path) -> dict[Path, Addresses]:
    """What each page names."""
    return {page: Addresses(page) for page in site.rglob("*.html") if page.name != "404.html"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, driven by Playwright."""
    if not CHROMIUM.exists():
        pytest.skip(f"there is no browser at {CHROMIUM}: install Debian's package chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=str(CHROMIUM), args=BROWSER_FLAGS)
        yield found
        found.close()


def navigation() -> list[str]:
    """The pages that mkdocs.yml lists."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2].partition("\ntheme:")[0]
    return re.findall(r"- (?:[^\n]*: )?([\w/-]+\.md)$", text, re.MULTILINE)


def test_every_page_is_in_the_navigation_once() -> None:
    docs = [page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").glob("**/*.md")]
    wanted = sorted({page_of(page) for page in docs} | set(NAMED.values()))
    assert sorted(navigation()) == wanted, (
        "add the page to `nav` in mkdocs.yml, in the group where a reader looks for it"
    )


def test_no_group_of_the_navigation_is_too_long_to_read() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2].partition("\ntheme:")[0]
    groups = yaml.safe_load(text)
    assert {len(pages) <= 20 for group in groups for pages in group.values()} == {True}


def test_the_site_builds_without_warnings_and_shows_every_page(site: Path) -> None:
    for page in navigation():
        assert (site / page).with_suffix(".html").is_file(), page
    assert (site / "studio" / "tokens.png").is_file() or list((site / "studio").glob("*.png"))


def test_bars_in_the_cells_of_tables_are_bars(site: Path) -> None:
    for name in ("architecture", "api-training", "settings"):
        assert "\\|" not in (site / f"{name}.html").read_text(encoding="utf-8"), name


def test_nothing_of_the_site_is_loaded_over_a_network(site: Path, addresses: dict[Path, Addresses]) -> None:
    outside = []
    for page, found in addresses.items():
        outside += [f"{page.name}: {one}" for one in found.loaded if re.match(r"(https?:)?//", one)]
    for sheet in site.rglob("*.css"):
        text = re.sub(r"url\([\"']?data:.*?\)", "", sheet.read_text(encoding="utf-8"))
        outside += [
            f"{sheet.name}: {one}" for one in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", text)
        ]
    assert outside == []


def test_every_link_of_the_site_leads_to_a_file(site: Path, addresses: dict[Path, Addresses]) -> None:
    """mkdocs checks what Markdown links to; this also what hooks and the theme have written."""
    missing = set()
    for page, found in addresses.items():
        for link in found.named:
            name = unquote(link).partition("#")[0].partition("?")[0]
            if name and not re.match(r"[a-z]+:", name) and not (page.parent / name).exists():
                missing.add(f"{page.relative_to(site)}: {link}")
    assert missing == set()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_open_in_a_browser_without_errors_requests_or_sideways_scrolling(
    site: Path, browser: Any, width: int, scheme: str
) -> None:
    problems: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(f"script: {error}"))
    page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
    page.on("requestfailed", lambda asked: problems.append(f"failed: {asked.url[:200]}"))
    page.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else problems.append(asked.url))
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri())
        page.wait_for_load_state()
        assert page.evaluate("document.documentElement.scrollWidth") == width, name
        assert page.evaluate("[...document.images].every((one) => one.complete && one.naturalWidth > 0)"), name
        assert page.locator("h1").count() == 1, name
        dark = page.locator("body").get_attribute("data-md-color-scheme")
        assert dark == {"light": "default", "dark": "slate"}[scheme]
    context.close()
    assert problems == []


def test_search_finds_a_metric_from_the_disk(site: Path, browser: Any) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    page.locator(".md-search__input").click()
    page.keyboard.type("clip_fraction")
    first = page.locator(".md-search-result__item a").first
    first.wait_for(timeout=20_000)
    assert "metrics.html" in (first.get_attribute("href") or "")
    context.close()


def test_a_page_and_its_file_name_each_other() -> None:
    for file in ("README.md", "docs/README.md", "docs/runs.md", "src/ppolm/errors.py", "configs", "bench/RESULTS.md"):
        assert file_of(page_of(file)) == file


def test_links_lead_where_they_lead_in_a_checkout() -> None:
    written = (
        "[readme](../README.md#two-commands) [s](../src/ppolm/errors.py) [l](../src/ppolm/errors.py#L4) "
        "[c](../configs) ![p](pipeline.png) [same](#here) [out](https://x.y/z) `[code](../README.md)` "
        "[runs.md](runs.md#signals)\n"
        "```\n[code](../README.md)\n```\n"
    )
    assert rewritten("commands.md", written) == (
        "[readme](index.md#two-commands) [s](source/src/ppolm/errors.py.md) "
        "[l](source/src/ppolm/errors.py.md#__codelineno-0-4) [c](source/configs/index.md) "
        "![p](pipeline.png) [same](#here) [out](https://x.y/z) `[code](../README.md)` "
        "[A run is a folder](runs.md#signals)\n"
        "```\n[code](../README.md)\n```\n"
    )
    assert list(targets("[a](b) `[c](d)`")) == ["b"]
    assert rewritten("index.md", "![p](docs/pipeline.png)") == "![p](pipeline.png)"


def test_the_page_of_the_notebook_has_its_code_and_what_it_printed() -> None:
    page = notebook_page(ROOT / "examples" / "first-steps.ipynb")
    assert page.startswith("# First steps\n")
    assert "trainer.train(prompts)" in page
    assert 'src="data:image/png;base64,' in page
    assert "<table" in page
    assert "<style" not in page
