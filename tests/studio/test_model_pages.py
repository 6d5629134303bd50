"""The pages of models in a real browser: reports, scores and answers of the embedded model, all by keyboard."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ppolm.data.examples import Preference
from ppolm.data.prompts import Prompt
from ppolm.embedded import REWARD
from ppolm.feedback.store import FeedbackStore
from ppolm.readiness import assess
from tests.studio.serving import Served, serving
from tests.studio.worker_cases import POSTS, train_tiny_run

Visit = Callable[..., Any]
HOSTILE = "<img src=x onerror=alert(1)><script>document.title='hacked'</script>\u202e\x1b[31m"
ANSWER = " My roommate drives after drinking beer. Should I move out?"
FIRST_LOAD = 60_000


def make_reward_model(folder: Path) -> Path:
    """The embedded reward model with a report whose texts are hostile."""
    shutil.copytree(REWARD, folder)
    pairs = [("yes " * (i % 7 + 2), "no " * (i % 5 + 1)) for i in range(120)]
    rows = [Preference(Prompt(f"prompt {i}"), *pair, annotator=f"ann{i % 3}") for i, pair in enumerate(pairs)]
    report = assess(rows, lambda _, texts: [len(text) % 11 / 10 for text in texts]).to_dict()
    report["reasons"][0]["text"] += HOSTILE
    report["mistakes"][0]["chosen"] = HOSTILE
    report["agreement"][HOSTILE] = report["agreement"].pop("ann0")
    (folder / "readiness.json").write_text(json.dumps(report))
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("runs")
    train_tiny_run(folder)
    make_reward_model(folder / "judge")
    with serving(folder, store=folder / "feedback.db") as running:
        yield running


def query(page: Any) -> dict[str, str]:
    """The view in the address."""
    return {name: values[-1] for name, values in parse_qs(urlsplit(page.url).query, keep_blank_values=True).items()}


def numbers(text: str) -> list[float]:
    """The numbers of a text, as the page writes them."""
    return [float(one.replace("−", "-")) for one in re.findall(r"[+−]?\d+(?:\.\d+)?(?:e[+−-]?\d+)?", text)]


def test_a_reward_model_is_found_and_its_report_is_a_page(served: Served, visit: Visit) -> None:
    page = visit(served, "/rewards")
    page.get_by_role("link", name="judge", exact=True).wait_for()
    page.keyboard.press("ArrowDown")
    while page.evaluate("document.activeElement.textContent") != "judge":
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Why it is not ready").wait_for()
    reward = page.url.rpartition("/")[2]
    report = served.visitor().get(f"/api/reward/{reward}").json["report"]
    assert f"accuracy [{report['accuracy']['low']:.3f}, {report['accuracy']['high']:.3f}]" in page.inner_text(".tiles")
    for title in ("Agreement with people", "Calibration", "Trivial edits", "Scores", "Length", "Worst mistakes"):
        assert page.get_by_role("heading", name=title).count() == 1, title
    assert "<img src=x onerror=alert(1)>" in page.inner_text(".reasons"), "hostile text is text"
    assert "⟨202E⟩␛[31m" in page.inner_text(".reasons")
    assert page.locator("#main img, #main script").count() == 0
    assert page.title() == "judge · ppolm studio"


def test_a_damaged_report_is_shown_as_far_as_it_can_be_read(served: Served, visit: Visit) -> None:
    folder = served.studio.workspace.folders[0] / "damaged"
    report = json.loads((make_reward_model(folder) / "readiness.json").read_text())
    report["verdict"] = report["length"]["unit"] = report["length"]["gain"] = None
    report["accuracy"]["mean"] = report["calibration"]["buckets"][0] = report["mistakes"] = "<b>"
    report["distribution"]["edges"][0] = report["edits"]["trailing space"]["change"] = {}
    report["distribution"]["spreads"]["chosen"]["quantiles"] = [1]
    del report["reasons"], report["rows"], report["agreement"]["ann1"]["low"]
    (folder / "readiness.json").write_text(json.dumps(report))
    page = visit(served, "/rewards")
    page.get_by_role("link", name="damaged").click()
    page.get_by_text("readiness.json is damaged, or was written by another version").wait_for()
    for title in ("Calibration", "Trivial edits", "Length", "Training"):
        assert page.get_by_role("heading", name=title).count() == 1, title
    (folder / "readiness.json").write_text("{")
    page.reload()
    page.get_by_role("heading", name="No readiness report").wait_for()
    assert "readiness.json cannot be read" in page.inner_text("#main")
    shutil.rmtree(folder)


def test_texts_are_scored_by_keyboard_alone_and_a_link_holds_them(served: Served, visit: Visit) -> None:
    page = visit(served, "/rewards")
    page.get_by_role("link", name="judge", exact=True).click()
    page.get_by_role("heading", name="Calibration").wait_for()
    page.keyboard.press("s")
    page.keyboard.type(POSTS[0])
    page.get_by_label("Answer", exact=True).focus()
    page.keyboard.type(ANSWER)
    page.keyboard.press("Control+Enter")
    page.locator(".cells .token").first.wait_for(timeout=FIRST_LOAD)
    reward = urlsplit(page.url).path.rpartition("/")[2]
    asked = {"prompt": POSTS[0], "answers": [ANSWER], "unit": "sentence"}
    (expected,) = served.visitor().post(f"/api/reward/{reward}/score", asked).json["answers"]
    assert numbers(page.inner_text(".score")) == [pytest.approx(expected["score"], abs=1e-3)]
    assert page.locator(".cells .token").all_text_contents() == expected["pieces"]
    page.locator(".cells").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert numbers(page.inner_text(".detail"))[-1] == pytest.approx(expected["changes"][1], abs=1e-3)
    page.wait_for_url(lambda address: "move" in address)
    view = query(page)
    assert (view["view"], view["prompt"], view["a"]) == ("score", POSTS[0], ANSWER)
    page.reload()
    page.get_by_label("Answer", exact=True).wait_for()
    assert page.get_by_label("Answer", exact=True).input_value() == ANSWER
    assert page.locator(".prompt-fields textarea").input_value() == POSTS[0]


def test_two_texts_are_compared_and_tokens_left_out(served: Served, visit: Visit) -> None:
    page = visit(served, "/rewards")
    page.get_by_role("link", name="judge", exact=True).click()
    page.get_by_role("button", name="Score a text").click()
    page.locator(".prompt-fields textarea").fill(POSTS[0])
    page.get_by_label("compare with a second answer").check()
    page.get_by_label("Answer", exact=True).fill(ANSWER)
    page.get_by_label("Second answer", exact=True).fill(" I like tea.")
    page.get_by_label("Leave out").select_option("token")
    page.get_by_role("button", name="Score", exact=True).click()
    page.locator(".wins").wait_for(timeout=FIRST_LOAD)
    assert re.search(r"prefers the (first|second) answer: \d+ % sure", page.inner_text(".wins"))
    cells = [cells.locator(".token").all_text_contents() for cells in page.locator(".cells").all()]
    assert ["".join(texts) for texts in cells] == [ANSWER, " I like tea."]
    colours = page.locator(".cells .token").evaluate_all("cells => cells.map(cell => cell.style.backgroundColor)")
    assert len(set(colours)) > 3, "pieces that matter have colours of their own"
    page.keyboard.press("Escape")
    page.get_by_label("Second answer", exact=True).fill("word " * 3000)
    page.get_by_role("button", name="Score", exact=True).click()
    assert "reads at most" in page.get_by_role("alert").inner_text()
    assert "too long for the address" in page.inner_text("#main")
    assert len(page.url) < 4000


def test_policy_and_reference_answer_side_by_side(served: Served, visit: Visit) -> None:
    page = visit(served, "/try?run=tiny")
    area = page.locator(".prompt-fields textarea")
    area.wait_for()
    held_out = served.visitor().get("/api/try/tiny").json["prompts"]
    assert area.input_value() == held_out[0], "there is something to ask from the start"
    page.keyboard.press("Enter")
    page.locator(".cells").nth(1).wait_for(timeout=FIRST_LOAD)
    expected = served.visitor().post("/api/try/tiny/answer", {"prompt": held_out[0]}).json
    for number, side in enumerate(("policy", "reference")):
        shown = page.locator(".cells").nth(number).locator(".token").all_text_contents()
        assert shown == [piece.replace("\n", "⏎") for piece in expected[side]["pieces"]]
    page.locator(".cells").first.focus()
    page.keyboard.press("End")
    last = [expected["policy"][name][-1] for name in ("logprob_policy", "logprob_ref", "kl")]
    assert numbers(page.locator(".detail").first.inner_text())[-3:] == [pytest.approx(one, rel=1e-2) for one in last]
    seen = page.inner_text("#main")
    assert "temperature 0.9, top k 50, top p 0.95, at most 12 tokens, seed 0" in seen
    page.keyboard.press("n")
    page.get_by_text("seed 1;").wait_for()
    page.wait_for_url(lambda address: "seed=1" in address)
    assert query(page) == {"run": "tiny", "held": "0", "seed": "1"}
    page.go_back()
    assert page.get_by_label("Seed").input_value() == "0"


def test_answers_go_to_the_judges_with_a_key(served: Served, visit: Visit) -> None:
    page = visit(served, "/try?run=tiny&max_new_tokens=5")
    page.get_by_role("button", name="Answer", exact=True).click()
    page.locator(".cells").nth(1).wait_for(timeout=FIRST_LOAD)
    page.get_by_role("region", name="Policy (best)").get_by_role("button", name="Send to judging").click()
    page.get_by_text("The answer waits to be judged.").wait_for()
    page.locator("h1").click()
    page.keyboard.press("j")
    page.get_by_text("Both answers wait to be judged.").wait_for()
    store = FeedbackStore(served.studio.store)
    waiting = {item.response for item in store.waiting()}
    store.close()
    texts = [served.visitor().post("/api/try/tiny/answer", question(served)).json[side]["text"] for side in SIDES]
    assert waiting >= set(texts)


SIDES = ("policy", "reference")


def question(served: Served) -> dict[str, Any]:
    """What the page asked."""
    return {"prompt": served.visitor().get("/api/try/tiny").json["prompts"][0], "max_new_tokens": 5}


def test_a_link_holds_prompt_and_settings_and_a_chat_is_written_message_by_message(
    served: Served, visit: Visit
) -> None:
    page = visit(served, "/try?run=tiny&prompt=Hello&temperature=0.5&greedy=yes&which=step-000002&color=logprob_ref")
    area = page.locator(".prompt-fields textarea")
    area.wait_for()
    assert area.input_value() == "Hello"
    assert page.get_by_label("Temperature").input_value() == "0.5"
    assert page.get_by_label("greedy").is_checked()
    page.get_by_label("chat").check()
    page.get_by_role("button", name="Add a message").click()
    page.get_by_label("Message 2", exact=True).fill("And <b>again</b>")
    page.wait_for_url(lambda address: "again" in address)
    assert json.loads(query(page)["messages"])[1]["content"] == "And <b>again</b>"
    page.get_by_role("button", name="Answer", exact=True).click()
    page.locator(".cells").nth(1).wait_for(timeout=FIRST_LOAD)
    assert "greedy, at most 12 tokens" in page.inner_text("#main")
    page.get_by_text("The prompt as the model reads it").click()
    assert "Human:\nHello\n\nHuman:\nAnd <b>again</b>" in page.inner_text(".prompt-read")
    assert page.locator("#main b", has_text="again").count() == 0


def test_what_a_model_refuses_is_a_sentence_on_the_page(served: Served, visit: Visit) -> None:
    page = visit(served, "/try?run=tiny&temperature=0")
    page.get_by_role("button", name="Answer", exact=True).click()
    page.get_by_role("alert").wait_for(timeout=FIRST_LOAD)
    assert "temperature is 0" in page.get_by_role("alert").inner_text()
    page.get_by_label("Temperature").fill("1")
    page.get_by_role("button", name="Answer", exact=True).click()
    page.locator(".cells").nth(1).wait_for(timeout=FIRST_LOAD)


def test_loading_can_be_cancelled_by_a_key(served: Served, visit: Visit) -> None:
    page = visit(served, "/try?run=tiny&which=step-000002")
    served.visitor().post("/api/models/unload")
    page.get_by_role("button", name="Answer", exact=True).click()
    page.get_by_text("Loading the model").wait_for()
    page.keyboard.press("Escape")
    page.locator(".waiting").wait_for(state="hidden")
    assert page.get_by_role("alert").count() == 0
    assert page.get_by_role("button", name="Answer", exact=True).is_enabled()


def test_empty_folders_say_what_to_do_next(visit: Visit, tmp_path: Path) -> None:
    with serving(tmp_path, store=tmp_path / "feedback.db") as running:
        page = visit(running, "/rewards")
        page.get_by_role("heading", name="No reward model is here yet").wait_for()
        assert f"examples/comparisons.jsonl --output {tmp_path}/my-reward" in page.inner_text("code")
        page.goto(f"{running.address}/try")
        page.get_by_role("heading", name="There is no run to try yet").wait_for()
        assert "ppolm demo" in page.inner_text("code")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_people_who_see_or_hear_differently_can_use_the_pages(served: Served, visit: Visit, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visit(served, "/try?run=tiny", color_scheme=scheme)
    page.get_by_role("button", name="Answer", exact=True).click()
    page.locator(".cells").nth(1).wait_for(timeout=FIRST_LOAD)
    found = {"/try": axe.run(page).response["violations"]}
    page.goto(f"{served.address}/rewards")
    page.get_by_role("link", name="judge", exact=True).wait_for()
    found["/rewards"] = axe.run(page).response["violations"]
    page.get_by_role("link", name="judge", exact=True).click()
    page.get_by_role("heading", name="Calibration").wait_for()
    found["report"] = axe.run(page).response["violations"]
    page.get_by_role("button", name="Score a text").click()
    found["score"] = axe.run(page).response["violations"]
    seen = {where: [(one["id"], one["nodes"][0]["html"][:200]) for one in all_] for where, all_ in found.items()}
    assert seen == {where: [] for where in found}
