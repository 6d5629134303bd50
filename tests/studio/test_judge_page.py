"""Judging in a real browser: single keys, blind, nothing lost, on a phone too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ppolm.feedback.record import REPEAT
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Item, Study, create_study
from ppolm.studio.visitors import Keys
from tests.studio.judging import (
    SECRETS,
    begin,
    live_wait,
    pair_study,
    pairs,
    press,
    prompt,
    ready,
    records,
    single_study,
    stored,
)
from tests.studio.serving import Served, serving, wait_until

ANN, BEN = "ann-has-a-long-key-of-her-own", "ben-has-a-long-key-of-his-own"
HOSTILE = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>\u202eevil\x1b[31m</div>"
Visit = Callable[..., Any]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "feedback.db"


@pytest.fixture
def served(tmp_path: Path, place: Path) -> Iterator[Served]:
    with serving(tmp_path, store=place, keys=Keys(annotators={ANN: "ann", BEN: "ben"})) as running:
        yield running


def test_one_key_says_which_answer_is_better_and_the_shuffle_is_recorded(
    served: Served, place: Path, visit: Visit
) -> None:
    pair_study(place, 12, repeats=0.0)
    page = begin(visit(served, "/judge"))
    for key in ("a", "ArrowLeft", "1", "l", "ArrowRight", "2", "t", "b"):
        press(page, key)
    found = stored(page, place, 8)
    assert [record.verdict == 0 for record in found] == [False] * 6 + [True] * 2
    assert [record.details.chosen_first for record in found][:6] == [True] * 3 + [False] * 3
    assert [record.details.both_bad for record in found] == [False] * 7 + [True]
    assert {record.source.policy for record in found[:3]} == {"hidden-policy-a", "hidden-policy-b"}, (
        "sides are shuffled"
    )
    assert all(0 <= (record.details.seconds or -1) < 30 for record in found)
    assert {record.judgement.annotator for record in found} == {"me"}


def test_undo_skip_strength_and_note_by_keyboard_alone(served: Served, place: Path, visit: Visit) -> None:
    pair_study(place, 8, repeats=0.0)
    page = begin(visit(served, "/judge"))
    first = prompt(page)
    press(page, "a")
    press(page, "u")
    assert prompt(page) == first
    page.keyboard.press("m")
    page.keyboard.press("m")
    page.keyboard.press("c")
    page.keyboard.type("a l t b s u: keys in a note are letters")
    assert prompt(page) == first
    page.keyboard.press("Escape")
    press(page, "l")
    (record,) = stored(page, place, 1)
    assert (record.details.strength, record.details.chosen_first) == (2, False)
    assert record.details.note == "a l t b s u: keys in a note are letters"
    skipped = prompt(page)
    press(page, "s")
    assert page.locator(".last").inner_text() == "Last: skipped"
    press(page, "u")
    assert prompt(page) == skipped
    page.get_by_role("button", name="First", exact=False).focus()
    press(page, "Enter")
    stored(page, place, 2)


def test_a_key_that_is_held_down_commits_once(served: Served, place: Path, visit: Visit) -> None:
    pair_study(place, 8, repeats=0.0)
    page = begin(visit(served, "/judge"))
    page.keyboard.down("a")
    for _ in range(5):
        page.keyboard.down("a")  # repeated, as a held key is
    page.keyboard.up("a")
    stored(page, place, 1)
    page.wait_for_timeout(300)
    assert len(records(place)) == 1


def test_scores_with_axes_and_thumbs(served: Served, place: Path, visit: Visit) -> None:
    study = single_study(place, "score", axes=("helpful", "true"))
    page = begin(visit(served, f"/judge?study={study.id}"))
    for key in ("x", "3", "5"):
        page.keyboard.press(key)
    press(page, "6")
    press(page, "7")
    one, other = stored(page, place, 2)
    assert (one.verdict, one.details.axes) == (6.0, {"helpful": 3.0, "true": 5.0})
    assert (other.verdict, other.details.axes) == (7.0, None)
    thumbs = single_study(place, "thumb")
    page.goto(f"{served.address}/judge?study={thumbs.id}")
    for key in ("ArrowUp", "y", "ArrowDown", "n"):
        press(ready(page), key)
    assert [record.verdict for record in stored(page, place, 6)[2:]] == [1.0, 1.0, -1.0, -1.0]


def test_pairs_come_again_with_the_sides_swapped(served: Served, place: Path, visit: Visit) -> None:
    pair_study(place, 40, repeats=0.5)
    page = begin(visit(served, "/judge"))
    for _ in range(30):
        press(page, "a")
    found = stored(page, place, 30)
    originals = {record.details.item: record for record in found if not record.details.repetition}
    again = [record for record in found if record.details.repetition == REPEAT]
    assert len(again) >= 3
    for record in again:
        assert record.verdict == -originals[record.details.item].verdict, "the first side is now the other answer"


def test_gold_questions_look_like_all_others_and_the_owner_sees_how_they_were_answered(
    served: Served, place: Path, visit: Visit
) -> None:
    plain = pairs(12)
    gold = [Item(f"Known {i}?", (f"Right {i}.", f"Wrong {i}."), gold="first") for i in range(3)]
    create_study(FeedbackStore(str(place)), Study("Checked", repeats=0.0), [*plain, *gold])
    sent = served.visitor(ANN).post("/api/judge/next", {"count": 15}).body.decode()
    assert sent.count("Known") == 3
    assert "gold" not in sent.lower(), "nothing that the page is sent says which they are"
    page = ready(visit(served, "/judge", key=ANN))
    seen, looks = 0, {}
    for _ in range(15):
        known = prompt(page).startswith("Known")
        seen += known
        looks[known] = page.locator("main").evaluate(
            "(node) => [...node.querySelectorAll('*')].map((e) => e.className).join()"
        )
        right_first = page.locator(".side .box-text").first.inner_text().startswith("Right")
        wrong = known and seen == 3  # one of three is answered wrong
        press(page, "a" if right_first != wrong else "l")
    stored(page, place, 15)
    assert seen == 3
    assert looks[True] == looks[False]
    owner = visit(served, "/people")
    row = owner.get_by_role("row").filter(has_text="ann")
    row.wait_for()
    assert "67 %" in row.inner_text()
    assert "3 gold questions" in row.inner_text()


def test_two_annotators_never_see_each_others_votes(served: Served, place: Path, visit: Visit) -> None:
    pair_study(place, 6, wanted=2, repeats=0.0)
    pages = [ready(visit(served, "/judge", key=key)) for key in (ANN, BEN)]
    seen: list[str] = []
    for page in pages:
        page.on("response", lambda answer: seen.append(answer.text()) if "/api/" in answer.url else None)
    for _ in range(6):
        for page, key in zip(pages, ("a", "l"), strict=True):
            press(page, key)
    found = stored(pages[0], place, 12)
    assert {record.judgement.annotator for record in found} == {"ann", "ben"}
    for page, other in zip(pages, ("ben", "ann"), strict=True):
        page.get_by_text("All done").wait_for()
        text = page.content()
        assert not [word for word in (*SECRETS, f">{other}<", f"as {other}") if word in text]
        assert page.get_by_role("link", name="Runs").count() == 0
    assert not [one for one in seen if any(secret in one for secret in SECRETS)]
    assert not [one for one in seen if '"ann"' in one and '"ben"' in one]


def test_offline_for_a_moment_nothing_is_lost(served: Served, place: Path, visit: Visit) -> None:
    pair_study(place, 20, repeats=0.0)
    page = begin(visit(served, "/judge"))
    page.context.set_offline(True)
    for _ in range(3):
        press(page, "a")
    page.get_by_text("3 answers are not stored yet").wait_for()
    press(page, "u")  # not sent yet: taken back in the page
    page.get_by_text("2 answers are not stored yet").wait_for()
    assert records(place) == []
    page.context.set_offline(False)
    stored(page, place, 2)
    wait_until(page, lambda: page.locator(".note-bar").count() == 0)
    page.context.set_offline(True)
    press(page, "l")
    page.get_by_text("1 answer is not stored yet").wait_for()
    context = page.context
    page.close()
    context.set_offline(False)
    again = context.new_page()
    again.goto(f"{served.address}/judge")
    stored(again, place, 3)
    kept = "Object.keys(localStorage).filter((key) => key.startsWith('ppolm-unsent')).length"
    wait_until(again, lambda: again.evaluate(kept) == 0)


def test_an_answer_that_is_on_its_way_and_does_not_arrive_can_be_taken_back(
    served: Served, place: Path, visit: Visit
) -> None:
    pair_study(place, 20, repeats=0.0)
    page = begin(visit(served, "/judge"))
    held: list[Any] = []
    page.route("**/api/judge/answer", lambda route: route.abort() if held else held.append(route))
    press(page, "a")
    wait_until(page, lambda: len(held) == 1)
    before = page.locator(".texts").inner_text()
    page.keyboard.press("u")
    page.wait_for_timeout(200)
    assert page.locator(".texts").inner_text() == before, "as long as it may still arrive, nothing is taken back"
    held[0].abort()
    wait_until(page, lambda: page.locator(".texts").inner_text() != before)
    page.unroute("**/api/judge/answer")
    press(page, "l")
    stored(page, place, 1)


def test_an_answer_whose_reply_was_lost_is_stored_once(served: Served, place: Path, visit: Visit) -> None:
    pair_study(place, 20, repeats=0.0)
    page = begin(visit(served, "/judge"))
    lost: list[int] = []

    def lose(route: Any) -> None:
        route.fetch()  # the server stores it
        lost.append(1)
        route.abort()  # and nobody hears of it

    page.route("**/api/judge/answer", lose)
    press(page, "a")
    page.get_by_text("1 answer is not stored yet").wait_for()
    page.unroute("**/api/judge/answer")
    wait_until(page, lambda: page.locator(".note-bar").count() == 0)
    assert lost
    assert len(records(place)) == 1


def test_what_a_run_waits_for_comes_first_even_if_other_tasks_are_loaded(
    served: Served, place: Path, visit: Visit
) -> None:
    pair_study(place, 20)
    page = begin(visit(served, "/judge"))
    other = ready(visit(served, "/judge", key=ANN))
    live_wait(place, 2, prompts=2)
    page.get_by_text("step 3, has waited").wait_for()
    assert "secret-run-live" in page.locator(".note-bar").inner_text(), "the owner is told which run"
    other.get_by_text("A training run is waiting.").wait_for()
    assert "secret-run" not in other.content()
    press(page, "a")
    assert prompt(page).startswith("Live question")
    press(page, "5")
    press(page, "6")
    wait_until(page, lambda: page.locator(".note-bar").count() == 0)
    wait_until(other, lambda: other.locator(".note-bar").count() == 0)


def test_hostile_prompts_and_answers_are_text(served: Served, place: Path, visit: Visit) -> None:
    chat = [{"role": HOSTILE, "content": HOSTILE}, {"role": "user", "content": "x" * 1_000_000}]
    items = [Item(HOSTILE, (HOSTILE, f"{HOSTILE} again")), Item(chat, ("one " * 20_000, "two"))]
    create_study(FeedbackStore(str(place)), Study(HOSTILE.replace("\x1b", ""), guidelines=HOSTILE), items)
    page = begin(visit(served, "/judge"))
    for _ in range(2):
        text = page.locator(".texts").inner_text()
        assert "<img src=x" in text
        assert "⟨202E⟩" in text
        page.keyboard.press("d")
        page.keyboard.press("g")
        page.get_by_role("dialog").get_by_text("onerror", exact=False).first.wait_for()
        page.keyboard.press("Escape")
        press(page, "t")
    for path in ("/studies", "/people"):
        page.goto(served.address + path)
        page.locator("h1").wait_for()
        page.wait_for_timeout(300)
    assert page.evaluate("window.hacked") is None


def test_on_a_phone_everything_is_in_reach(served: Served, place: Path, visit: Visit) -> None:
    long = "A long answer that goes on and on. " * 200
    items = [Item(f"Question {i}: " + "words " * 300, (f"{i} {long}", f"{i} short")) for i in range(4)]
    create_study(FeedbackStore(str(place)), Study("Phone", repeats=0.0), items)
    page = begin(visit(served, "/judge", has_touch=True, phone=True))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in ("First", "Tie", "Both bad", "Second"):
        box = page.locator(".verdict", has_text=name).first.bounding_box()
        assert box["height"] >= 44
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["y"] + box["height"] <= 844
    first, second = (page.locator(".side").nth(i).bounding_box() for i in (0, 1))
    assert second["y"] > first["y"] + first["height"] - 1, "below each other"
    assert page.evaluate(
        "[...document.querySelectorAll('.box-text')].some((box) => box.scrollHeight > box.clientHeight + 50)"
    )
    page.locator(".verdict", has_text="Second").tap()
    (record,) = stored(page, place, 1)
    assert record.details.chosen_first is False
