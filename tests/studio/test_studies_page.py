"""Studies and people in a real browser: made by a form, with conflicts, exports, agreement, and empty states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import all_studies, count_items
from tests.studio.judging import judge_all, pair_study, single_study
from tests.studio.serving import Served, serving, wait_until

Visit = Callable[..., Any]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "feedback.db"


@pytest.fixture
def served(tmp_path: Path, place: Path) -> Iterator[Served]:
    with serving(tmp_path / "runs", store=place) as running:
        yield running


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one short run of the embedded model."""
    folder = tmp_path_factory.mktemp("trained")
    flags = ["--model-name", "embedded", "--max-steps", "1", "--log-to", "--max-new-tokens", "6"]
    flags += ["--batch-size", "8", "--minibatch-size", "8", "--samples-per-prompt", "2", "--max-eval-prompts", "4"]
    assert ppolm(["train", *flags, "--run-name", "first", "--output-dir", str(folder), "--table-every", "1"]) == 0
    return folder


def test_empty_pages_say_what_to_do_next(served: Served, visit: Visit) -> None:
    page = visit(served, "/studies")
    page.get_by_role("heading", name="There are no studies yet").wait_for()
    assert "ppolm feedback study NAME --file" in page.locator("code").inner_text()
    page.get_by_role("button", name="Make a study").click()
    page.get_by_text("There are no runs here to sample answers from").wait_for()
    page.goto(f"{served.address}/people")
    page.get_by_role("heading", name="Nobody has judged yet").wait_for()
    page.get_by_role("main").get_by_role("link", name="Judge").click()
    page.get_by_label("Name").fill("me")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="There is nothing to judge at the moment").wait_for()


def test_a_study_is_made_from_the_page_and_can_be_judged(trained: Path, place: Path, visit: Visit) -> None:
    with serving(trained, store=place) as served:
        page = visit(served, "/studies")
        page.keyboard.press("n")
        page.get_by_label("Name").fill("Best against reference")
        wait_until(page, lambda: page.get_by_label("Second: policy").input_value() == "reference")
        page.get_by_label("At most so many prompts").fill("3")
        page.get_by_label("Guidelines").fill("Be fair.\nTake your time.")
        page.get_by_role("button", name="Make the study").click()
        page.get_by_text("Making “Best against reference”").wait_for()
        page.get_by_role("heading", name="Best against reference").wait_for(timeout=60_000)
        wait_until(page, lambda: page.locator(".job.running").count() == 0)
        page.get_by_role("button", name="New study").click()
        page.get_by_label("Name").fill("Step 1")
        page.get_by_label("What is judged").select_option("step")
        page.get_by_label("How").select_option("score")
        page.get_by_label("Step", exact=True).wait_for()
        page.get_by_role("button", name="Make the study").click()
        page.get_by_role("heading", name="Step 1").wait_for(timeout=60_000)
    store = FeedbackStore(str(place))
    pairs, answers = all_studies(store)
    assert (pairs.guidelines, pairs.kind, answers.kind) == ("Be fair.\nTake your time.", "preference", "score")
    assert 0 < count_items(store, pairs) + pairs.identical <= 3
    assert count_items(store, answers) > 1
    judge_all(place, "ann")
    with serving(trained, store=place) as served:
        reward = served.visitor().get("/api/people", study=answers.id).json["reward"]
        assert reward["judgements"] == count_items(store, answers), "the step's table knows their scores"
        rates = served.visitor().get("/api/studies").json["studies"][1]["rates"]
        assert {rate["opponent"] for rate in rates} == {"reference"}


def test_a_study_that_is_being_made_can_be_cancelled(trained: Path, place: Path, visit: Visit) -> None:
    with serving(trained, store=place) as served:
        page = visit(served, "/studies?make=1")
        page.get_by_label("Name").fill("Never")
        wait_until(page, lambda: page.get_by_label("Second: policy").input_value() == "reference")
        page.get_by_role("button", name="Make the study").click()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_text("“Never” was cancelled").wait_for()
        (job,) = served.visitor().get("/api/studies").json["jobs"]
        assert job["state"] == "cancelled"
    assert not place.exists() or all_studies(FeedbackStore(str(place))) == []


def test_conflicts_stand_beside_what_was_said_and_get_a_second_look(served: Served, place: Path, visit: Visit) -> None:
    study = pair_study(place, 4, wanted=2, repeats=0.0)
    judge_all(place, "ann", longer="first")
    judge_all(place, "ben", longer="second")
    page = visit(served, "/studies")
    page.get_by_role("button", name="Conflicts (4)").click()
    page.locator("article.conflict").first.wait_for()
    assert page.locator("article.conflict").count() == 4
    said = page.locator("article.conflict").first.locator("li").all_inner_texts()
    assert sorted(said) in (["ann: first", "ben: second"], ["ann: second", "ben: first"])
    assert "hidden-policy" not in page.locator("main").inner_text(), "blind here too"
    page.get_by_label("Second look").check()
    wait_until(page, lambda: all_studies(FeedbackStore(str(place)))[0].second_look)
    judge_all(place, "ann", longer="second")
    page.reload()
    page.get_by_text("second look", exact=True).first.wait_for()
    assert page.url.endswith(f"conflicts={study.id}"), "the view is in the address"


def test_people_are_shown_with_agreement_side_bias_and_consistency(served: Served, place: Path, visit: Visit) -> None:
    pair_study(place, 12, wanted=2, repeats=0.3)
    single_study(place, "score")
    judge_all(place, "ann", longer="first")
    judge_all(place, "ben", longer="first")
    page = visit(served, "/people")
    row = page.get_by_role("row", name="ann").first
    row.wait_for()
    cells = row.get_by_role("cell").all_inner_texts()
    assert cells[2].startswith("100 %"), "ann says the same when the sides are swapped"
    pair = page.get_by_role("row", name="ann and ben").first.get_by_role("cell").all_inner_texts()
    assert pair[0] == "12"
    assert pair[1].startswith("1.00")
    page.get_by_text("No judged response has a logged score").wait_for()
    page.get_by_label("Study").select_option(label="By score")
    wait_until(page, lambda: page.get_by_role("heading", name="Comparisons").count() == 0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_violation_of_accessibility(served: Served, place: Path, visit: Visit, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    pair_study(place, 12, wanted=2, repeats=0.0, axes=("true",))
    judge_all(place, "ann", longer="first", count=6)
    judge_all(place, "ben", longer="second", count=6)
    page = visit(served, "/judge", color_scheme=scheme, bypass_csp=True)
    found = serious(axe, page, "name")
    page.get_by_label("Name").fill("me")
    page.keyboard.press("Enter")
    page.locator(".verdict").first.wait_for()
    page.keyboard.press("d")
    page.keyboard.press("m")
    found += serious(axe, page, "judge")
    for path in (
        "/studies",
        "/studies?make=1",
        "/people",
        f"/studies?conflicts={all_studies(FeedbackStore(str(place)))[0].id}",
    ):
        page.goto(served.address + path)
        page.locator("main h1").wait_for()
        page.wait_for_timeout(300)
        found += serious(axe, page, path)
    assert found == []


def serious(axe: Any, page: Any, where: str) -> list[str]:
    violations = axe.run(page).response["violations"]
    return [
        f"{where}: {one['id']}: {node['html'][:120]}"
        for one in violations
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
