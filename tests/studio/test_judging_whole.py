"""Judging from end to end in a real browser: to a reward model, and as the reward of a live run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from ppolm.cli.main import run as ppolm
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.tables import queue
from ppolm.feedback.transactions import transact
from ppolm.supervised.load_reward import load_reward_model
from tests.studio.judging import begin, pair_study, pairs, press, prompt, records, stored
from tests.studio.serving import serving, wait_until
from tests.warm import Program, start_warm

Visit = Callable[..., Any]
TRAIN = [
    *("--model-name", "embedded", "--reward", "human", "--max-steps", "1", "--log-to", "--max-new-tokens", "6"),
    *("--batch-size", "4", "--minibatch-size", "4", "--samples-per-prompt", "2", "--max-eval-prompts", "2"),
    *("--human-timeout", "240", "--run-name", "live"),
]


def test_twenty_pairs_by_keyboard_become_a_reward_model(tmp_path: Path, visit: Visit) -> None:
    place = tmp_path / "feedback.db"
    study = pair_study(place, 30, repeats=0.0)
    with serving(tmp_path, store=place) as served:
        page = begin(visit(served, "/judge"))
        for number in range(20):
            first = page.locator(".side .box-text").first.inner_text()
            press(page, "a" if "good and long" in first else "l")
            if number in (4, 11):
                before = len(stored(page, place, number + 1))
                asked = prompt(page)
                press(page, "u")
                assert len(records(place)) == before - 1
                press(page, "t" if number == 4 else "l")
                assert prompt(page) == asked, "the same task is next again"
        stored(page, place, 20)
        page.goto(f"{served.address}/studies")
        page.locator("article").get_by_text("Export", exact=True).click()
        with page.expect_download() as download:
            page.locator("article").get_by_role("link", name="Download").click()
        download.value.save_as(tmp_path / "export.jsonl")
    assert len((tmp_path / "export.jsonl").read_text().splitlines()) == 20
    assert study.name == "Pairs"
    output = tmp_path / "reward-model"
    flags = ["--data", str(tmp_path / "export.jsonl"), "--output", str(output), "--num-epochs", "1"]
    assert ppolm(["reward", "--model-name", "embedded", "--batch-size", "8", *flags]) == 0
    trained_on = (output / "trained_on.txt").read_text().splitlines()
    held_out = json.loads((output / "readiness.json").read_text())["rows"]["prompts"]
    assert len(trained_on) + held_out == 20, "every judged pair was trained on or held out"
    judged = {record.judgement.prompt.content for record in records(place)}
    unseen = [item for item in pairs(30) if item.content not in judged]
    model = load_reward_model(str(output))
    assert len(unseen) == 10
    for item in unseen:
        good, short = model.score_texts([item.content] * 2, list(item.responses))
        assert good > short, "people preferred the long answers, and so does the model where nobody judged"


def live_run(folder: Path, place: Path) -> Program:
    """A real training whose reward are people."""
    return start_warm("ppolm", "train", *TRAIN, "--feedback-store", place, "--output-dir", folder)


def waits(place: Path) -> int:
    """Responses that the run has not gone on from."""
    query = select(func.count()).where(queue.c.waits_until.is_not(None))
    store = FeedbackStore(str(place), create=False)
    return int(transact(store.engine, lambda connection: connection.execute(query).scalar_one()))


@pytest.mark.parametrize(("ask", "keys"), [("score", "5"), ("preference", "a")])
def test_a_run_ends_because_its_responses_were_judged_in_the_page(
    tmp_path: Path, visit: Visit, ask: str, keys: str
) -> None:
    runs, place = tmp_path / "runs", tmp_path / "feedback.db"
    runs.mkdir()
    with serving(runs, store=place) as served, live_run(runs, place) as process:
        overview, page = visit(served), visit(served, f"/judge?ask={ask}")
        page.get_by_label("Name").fill("me")
        page.keyboard.press("Enter")
        overview.get_by_role("link", name="waiting for people").wait_for(timeout=120_000)
        until = time.monotonic() + 200
        while process.code is None and time.monotonic() < until:
            if page.locator(".verdict").count():
                thumb = page.locator(".verdicts.thumb").count() == 1  # a response that waits alone is not compared
                press(page, "y" if thumb else keys)
                if page.locator(".verdict").count() == 0:
                    wait_until(page, lambda: waits(place) == 0 or page.locator(".verdict").count() > 0, 30)
            page.wait_for_timeout(50)
        assert process.end(60) == 0, process.err
        found = records(place)
        assert {record.source.run for record in found} == {"live"}
        assert ("preferences" if ask == "preference" else "scores") in {record.kind for record in found}
        overview.locator(".state.finished").wait_for()
    assert (runs / "live" / "report" / "summary.md").is_file()
