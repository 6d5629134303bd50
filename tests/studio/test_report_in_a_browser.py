"""The report in a real browser, without a network: its charts are drawn, and texts execute nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ppolm.embedded import example_run_path
from ppolm.studio.report_page import write_report
from ppolm.studio.report_run import read_run
from tests.made_runs import HOSTILE, make_run
from tests.studio.conftest import WATCH
from tests.studio.hostile_run import hostile_run

DRAWN = """
document.querySelector('.plot') !== null
  && [...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('.trace .js-line, .trace .point'))
"""
TRACES = """
[...document.querySelectorAll('.js-plotly-plot')].map((plot) => plot.querySelectorAll('.scatterlayer .trace').length)
"""
EXECUTED = "window.alert = (what) => { window.executed = (window.executed ?? 0) + 1; };"


def wait_until(page: Any, expression: str) -> None:
    """Playwright's own way evaluates text inside the page, which the policy of a report does not allow."""
    until = time.monotonic() + 20
    while not page.evaluate(expression):
        assert time.monotonic() < until, expression
        page.wait_for_timeout(50)


@pytest.fixture
def open_report(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Write a report of some runs and open it from the disk. At the end: no script error, no violation, no request."""
    contexts: list[Any] = []
    problems: list[str] = []

    def open_page(*runs: Path, **options: Any) -> Any:
        file = tmp_path / "report.html"
        write_report([read_run(run.name, run) for run in runs], file)
        context = browser.new_context(**{"offline": True, "viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(20_000)
        context.add_init_script(WATCH + EXECUTED)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(f"script: {error}"))
        page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: problems.append(asked.url) if asked.url != file.as_uri() else None)
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            if page.evaluate("document.scripts.length > 0 && 'violations' in window"):
                problems += page.evaluate("window.violations")
        context.close()
    assert problems == []


def test_the_charts_of_a_run_are_drawn_without_a_network(open_report: Callable[..., Any]) -> None:
    page = open_report(example_run_path())
    wait_until(page, DRAWN)
    assert page.evaluate(TRACES) == [3, 2, 2, 2, 1, 2, 2, 5]
    assert page.locator(".tokens .cell").count() > 100
    strong = page.locator(".cell.above").first.evaluate("node => getComputedStyle(node).backgroundColor")
    assert strong != "rgba(0, 0, 0, 0)", "tokens have colours"


def test_runs_are_overlaid_in_the_same_charts(open_report: Callable[..., Any], tmp_path: Path) -> None:
    page = open_report(example_run_path(), make_run(tmp_path / "other", steps=12))
    wait_until(page, DRAWN)
    assert page.evaluate(TRACES)[:2] == [6, 4]
    assert page.evaluate("document.querySelector('.js-plotly-plot').data.map((line) => line.x.length)")[3] == 12


def test_hostile_texts_execute_nothing(open_report: Callable[..., Any], tmp_path: Path) -> None:
    named = make_run(tmp_path / HOSTILE.replace("/", "").replace("\x00", ""))
    page = open_report(hostile_run(tmp_path / "bad"), named)
    wait_until(page, DRAWN)
    for cell in page.locator(".cell").all()[:8]:
        cell.hover()
    page.locator(".js-plotly-plot").first.hover()
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("window.executed ?? 0") == 0
    assert page.locator("img, a, iframe, object, embed, form").count() == 0
    assert "<script>alert(2)</script>" in page.locator("body").inner_text(), "it is shown as what it is"
    wide = page.evaluate(
        "[...document.querySelectorAll('main > *, section > *')].filter((one) => one.scrollWidth > 1280)"
    )
    assert wide == [], "a million letters do not widen the page"
    assert page.evaluate("document.documentElement.scrollWidth") == 1280


def test_the_policy_would_stop_a_script_that_got_in(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write_report([read_run("example", example_run_path())], file)
    file.write_text(file.read_text().replace("</main>", "<script>alert(1)</script><img src=x onerror=alert(2)></main>"))
    page = browser.new_context(offline=True).new_page()
    page.add_init_script(WATCH + EXECUTED)
    page.goto(file.as_uri())
    wait_until(page, DRAWN)
    found = " ".join(page.evaluate("window.violations"))
    assert [name in found for name in ("script-src-elem inline", "script-src-attr inline", "img-src")] == [True] * 3
    assert page.evaluate("window.executed ?? 0") == 0
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_enough_contrast(open_report: Callable[..., Any], scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_report(example_run_path(), color_scheme=scheme)
    wait_until(page, DRAWN)
    for summary in page.locator("summary").all():
        summary.click()
    found = axe.Axe().run(page).response["violations"]
    assert [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found] == []


def test_charts_follow_when_the_page_turns_dark(open_report: Callable[..., Any]) -> None:
    page = open_report(example_run_path())
    wait_until(page, DRAWN)
    first = "document.querySelector('.js-plotly-plot').data[0].line.color"
    light = page.evaluate(first)
    page.emulate_media(color_scheme="dark")
    wait_until(page, f"{first} !== '{light}'")


def test_without_script_everything_but_the_charts_is_readable(open_report: Callable[..., Any]) -> None:
    page = open_report(example_run_path(), java_script_enabled=False)
    assert "this viewer runs none" in page.locator("noscript").inner_text()
    text = page.locator("body").inner_text()
    assert "Verdict: improved" in text
    page.get_by_text("All numbers of these tokens").first.click()
    row = page.locator("table.small tbody tr").first
    assert row.is_visible()
    assert row.locator("td").count() == 12
