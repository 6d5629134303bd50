"""The page of tokens in a real browser, over a real run of the embedded model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.config import PPOConfig
from ppolm.embedded import DEMO
from ppolm.ppo_trainer import PPOTrainer
from ppolm.token_attribution import SAPairs
from ppolm.token_attribution.sa_pairs_io import from_parquet
from tests.studio.serving import Served, serving
from tests.studio.stored_tables import make_table, store

PROMPTS = [
    f"SUBREDDIT: r/advice\nTITLE: {title}\nPOST: I need help.\nTL;DR:" for title in ("Rent", "Noise", "Cat", "Car")
]
HOSTILE = [
    *("<script>window.hacked = 1</script>", "<img src=x onerror='window.hacked = 2'>", "\u202eevil\u202c"),
    *("a\x00b\x1b[2J", "x" * 5000, "\n\n", "\t", "", "\ufffd", " ok", "</span>"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two PPO steps on the same prompts, with an evaluation."""
    small = PPOConfig.from_yaml(DEMO).changed(
        output_dir=str(tmp_path_factory.mktemp("runs")),
        run_name="mine",
        max_steps=2,
        table_every=1,
        eval_every=2,
        prompts=None,
        eval_prompts=None,
        batch_size=8,
        minibatch_size=8,
        samples_per_prompt=2,
        max_new_tokens=12,
        log_to=(),
        judge=None,
        device="cpu",
    )
    trainer = PPOTrainer(small)
    return trainer.train(PROMPTS, eval_prompts=PROMPTS[:2]).run_dir


@pytest.fixture(scope="module")
def served(run: Path) -> Iterator[Served]:
    with serving(run.parent) as running:
        yield running


@pytest.fixture
def table(run: Path) -> SAPairs:
    return from_parquet(run / "table" / "step-000002.parquet")


def number(text: str) -> float:
    """A number as the page writes it."""
    return float(text.strip().replace("−", "-").replace("+", ""))


def until(page: Any, expression: str) -> None:
    """Wait until an expression is true in the page. Playwright's own wait evaluates text there, which is forbidden."""
    end = time.monotonic() + 20
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"still not true: {expression}"
        page.wait_for_timeout(30)


def rows_of(page: Any) -> dict[str, float]:
    """The row of the token that the side panel shows."""
    page.wait_for_selector(".detail dt")
    pairs = page.eval_on_selector_all(
        ".detail .row-grid div", "all => all.map(one => [...one.children].map(c => c.innerText))"
    )
    return {name: number(value) for name, value in pairs}


def open_tokens(visit: Callable[..., Any], served: Served, query: str = "", **options: Any) -> Any:
    page = visit(served, f"/run/mine/tokens{query}", **options)
    page.wait_for_selector(".cells .token")
    return page


def test_a_token_shows_the_numbers_of_the_parquet_file_and_its_colour_follows_them(
    visit: Callable[..., Any], served: Served, table: SAPairs
) -> None:
    page = open_tokens(visit, served, "?step=2&response=3")
    start, end = int(table.offsets[3]), int(table.offsets[4])
    cells = page.locator(".cells .token")
    assert cells.count() == end - start
    assert (
        "".join(cells.all_inner_texts()).strip().replace("⏎", "\n")
        == "".join(table.literal["action"][start:end]).strip()
    )
    assert "".join(table.literal["action"][start:end]).split()
    for token in (0, end - start - 1):
        cells.nth(token).hover()
        until(page, f"document.querySelector('.detail').innerText.includes('token {token + 1} of')")
        shown = rows_of(page)
        for name in ("advantage", "kl", "logprob_policy", "logprob_ref", "reward", "value", "td_error", "return"):
            assert shown[name] == pytest.approx(float(table.column(name)[start + token]), rel=6e-3, abs=1e-9), name
    advantages = table.column("advantage")[start:end]
    colors = cells.evaluate_all(
        "all => all.map(one => getComputedStyle(one).backgroundColor.match(/\\d+/g).map(Number))"
    )
    for advantage, (red, _, blue) in zip(advantages.tolist(), colors, strict=True):
        if abs(advantage) > 0.2:
            assert (blue > red) == (advantage > 0), "blue is above zero, orange below"


def test_a_click_explains_the_advantage_and_the_terms_add_up(
    visit: Callable[..., Any], served: Served, table: SAPairs
) -> None:
    page = open_tokens(visit, served, "?step=2&response=1")
    page.locator(".cells .token").nth(1).click()
    page.wait_for_selector(".explained .total")
    stored = float(table.column("advantage")[int(table.offsets[1]) + 1])
    terms = [number(text) for text in page.locator(".contributions td:last-child").all_inner_texts()]
    total = number(page.locator(".terms tr.sum", has_text="before whitening").locator("td").inner_text())
    assert sum(terms) == pytest.approx(total, abs=5e-4 * len(terms))
    assert number(page.locator(".terms .total td").inner_text()) == pytest.approx(stored, abs=1e-3)
    assert "add up" in page.locator(".terms .total").inner_text()
    page.locator(".explained summary").click()
    assert "Token 2 of" in page.locator(".words").inner_text()
    assert "explain=1" in page.url
    assert "token=1" in page.url


def test_what_if_with_the_runs_settings_changes_nothing_and_a_slider_colours_the_change(
    visit: Callable[..., Any], served: Served
) -> None:
    page = open_tokens(visit, served, "?step=2&response=1&token=2")
    page.get_by_role("button", name="What if …").click()
    page.wait_for_selector(".what-if-same")
    assert "change nothing" in page.locator(".what-if").inner_text()
    plain = page.locator(".cells .token").evaluate_all("all => all.map(one => getComputedStyle(one).backgroundColor)")
    assert set(plain) == {"rgb(255, 255, 255)"}, "no change has no colour"
    exact = page.get_by_label("λ of GAE, exactly")
    exact.fill("0.3")
    exact.press("Enter")
    page.wait_for_selector(".what-if-same", state="detached")
    assert "largest change" in page.locator(".what-if").inner_text()
    assert "lam=0.3" in page.url
    assert "change of advantage" in page.locator(".legend").inner_text()
    page.get_by_role("button", name="As the run had it").click()
    page.wait_for_selector(".what-if-same")
    assert "lam" not in page.url


def test_everything_goes_by_keyboard(visit: Callable[..., Any], served: Served, table: SAPairs) -> None:
    page = open_tokens(visit, served, "?step=2&response=0")
    page.locator(".cells").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    until(page, "document.querySelector('.token.chosen')?.dataset.index === '2'")
    assert page.locator(".cells").get_attribute("aria-activedescendant") == page.locator(".token.chosen").get_attribute(
        "id"
    )
    page.keyboard.press("Enter")
    page.wait_for_selector(".explained .total")
    page.keyboard.press("Escape")
    page.wait_for_selector(".explained", state="hidden")
    page.keyboard.press("End")
    until(page, "document.querySelector('.token.chosen') === [...document.querySelectorAll('.token')].at(-1)")
    page.keyboard.press("n")
    until(page, "location.search.includes('response=1')")
    page.keyboard.press("c")
    until(page, "location.search.includes('column=return')")
    page.keyboard.press("[")
    until(page, "location.search.includes('step=1&')")
    page.keyboard.press("]")
    until(
        page,
        "location.search.includes('step=2&') && document.querySelector('.over-steps output').innerText === 'step 2'",
    )
    page.keyboard.press("1")
    row = int(torch.argmax(table.column("kl")))
    sequence = int(torch.searchsorted(table.offsets, row, right=True)) - 1
    token = row - int(table.offsets[sequence])
    until(page, f"document.querySelector('.text-head h2').innerText === 'Response {sequence}'")
    until(page, f"document.querySelector('.detail').innerText.includes('token {token + 1} of')")
    assert f"response={sequence}&token={token}" in page.url
    assert rows_of(page)["kl"] == pytest.approx(float(table.column("kl").max()), rel=1e-3)
    page.keyboard.press("w")
    page.wait_for_selector(".what-if-same")
    page.keyboard.press("s")
    until(page, "document.querySelectorAll('.sample').length === 2")


def test_a_copied_address_opens_the_same_view_and_back_goes_back(visit: Callable[..., Any], served: Served) -> None:
    page = open_tokens(visit, served)
    until(page, "location.search.includes('response=0')")
    page.get_by_label("Colour by").select_option("kl")
    page.get_by_label("Second colouring").select_option("value")
    page.get_by_label("Sort by").select_option("score")
    page.locator(".response-row").nth(2).click()
    until(page, "document.querySelectorAll('.cells').length === 2")
    page.locator(".cells .token").nth(1).click()
    page.wait_for_selector(".explained .total")
    seen, address = page.locator("main").inner_text(), page.url
    other = visit(served, address.removeprefix(served.address))
    other.wait_for_selector(".explained .total")
    other.wait_for_selector(".response-row[aria-current]")
    assert other.locator("main").inner_text() == seen
    assert other.locator(".legend-name").all_inner_texts() == ["kl", "value"]
    page.go_back()
    page.wait_for_selector(".explained", state="hidden")
    page.go_back()
    until(page, "location.search.includes('response=0')")
    until(page, "document.querySelector('.text-head h2').innerText === 'Response 0'")


def test_the_same_prompt_over_the_steps_and_samples_of_it(visit: Callable[..., Any], served: Served) -> None:
    page = open_tokens(visit, served, "?step=2&response=0")
    prompt = page.locator(".prompt").inner_text()
    slider = page.get_by_label("This prompt in other steps")
    slider.focus()
    slider.press("ArrowLeft")
    until(page, "location.search.includes('step=1&')")
    until(page, "document.querySelector('.over-steps output')?.innerText === 'step 1'")
    assert page.locator(".text-view:not(.hidden) .prompt").inner_text() == prompt
    page.get_by_label("Next sample of this prompt").click()
    until(page, "document.querySelector('.text-head').innerText.includes('sample 2 of 2')")
    assert page.locator(".text-view:not(.hidden) .prompt").inner_text() == prompt


def test_held_out_samples_are_shown_with_their_rewards(visit: Callable[..., Any], served: Served) -> None:
    page = open_tokens(visit, served)
    page.get_by_role("button", name="Held-out samples").click()
    page.wait_for_selector(".answer")
    assert "Evaluation after step 2" in page.locator(".held-out").inner_text()
    page.get_by_role("button", name="step 0").click()
    until(page, "document.querySelector('.held-out .over-steps').innerText.includes('after step 0')")
    assert "show=held-out" in page.url


def test_a_long_list_is_walked_through_page_by_page_and_follows_where_one_is_taken(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    score = torch.zeros(240)
    score[150] = 9.0
    actions, owners = [[number % 2, 1] for number in range(120)], [number // 2 for number in range(120)]
    prompts = [[0] * (owner + 1) for owner in range(60)]
    store(make_table(actions, owners, prompts, ["a", "b"], score=score), tmp_path / "mine", 1)
    with serving(tmp_path) as running:
        page = open_tokens(visit, running, "?response=49")
        until(page, "document.querySelectorAll('.response-row').length === 50")
        page.keyboard.press("n")
        until(page, "document.querySelector('.text-head h2').innerText === 'Response 50'")
        assert page.locator(".response-list .pager").inner_text().startswith("51–100 of 120")
        page.keyboard.press("p")
        until(page, "document.querySelector('.text-head h2').innerText === 'Response 49'")
        page.get_by_label("Take me to").select_option("best score")
        until(page, "document.querySelector('.response-row[aria-current]')?.innerText.startsWith('#75')")
        assert "page=1" in page.url
        page.get_by_role("button", name="prompt 37", exact=True).click()
        until(page, "document.querySelectorAll('.response-row').length === 2")
        page.get_by_role("button", name="only prompt 37 ×").click()
        until(page, "document.querySelectorAll('.response-row').length === 50")


def test_hostile_texts_are_shown_as_text_and_execute_nothing(visit: Callable[..., Any], tmp_path: Path) -> None:
    run = tmp_path / "mine"
    store(make_table([list(range(len(HOSTILE)))], [0], [[0, 1, 2, 3]], HOSTILE, [False]), run, 1)
    with serving(tmp_path) as running:
        page = open_tokens(visit, running)
        texts = page.locator(".cells .token").all_inner_texts()
        assert texts[0] == HOSTILE[0]
        assert texts[1] == HOSTILE[1]
        assert texts[2] == "⟨202E⟩evil⟨202C⟩"
        assert texts[3] == "a␀b␛[2J"
        assert len(texts[4]) < 300
        assert texts[5:9] == ["⏎⏎", "⇥", "⟨⟩", "\ufffd"]
        page.locator(".cells .token").first.click()
        page.wait_for_selector(".explained .total")
        page.get_by_role("button", name="Samples", exact=True).click()
        page.wait_for_selector(".sample .token")
        assert page.evaluate("window.hacked") is None


def test_a_damaged_step_says_so_and_the_others_can_still_be_seen(visit: Callable[..., Any], tmp_path: Path) -> None:
    run = tmp_path / "mine"
    store(make_table([[0, 1]], [0], [[0]], ["a", "b"]), run, 1)
    (run / "table" / "step-000002.parquet").write_bytes(b"PAR1 half")
    with serving(tmp_path) as running:
        page = visit(running, "/run/mine/tokens")
        page.wait_for_selector(".message.error")
        assert "step-000002.parquet cannot be read" in page.locator(".message").inner_text()
        page.get_by_label("Step", exact=True).select_option("1")
        page.wait_for_selector(".cells .token")


def test_a_run_without_tables_says_when_they_come(visit: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "mine" / "checkpoints").mkdir(parents=True)
    PPOConfig(model_name="x").to_yaml(tmp_path / "mine" / "config.yaml")
    with serving(tmp_path) as running:
        page = visit(running, "/run/mine/tokens")
        page.wait_for_selector("text=No token tables yet")
        store(make_table([[0, 1]], [0], [[0]], ["a", "b"]), tmp_path / "mine", 1)
        page.wait_for_selector(".cells .token")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "query",
    ["?step=2&response=1&second=value&token=1&explain=1", "?whatif=1&lam=0.3", "?show=samples", "?show=held-out"],
)
def test_the_page_is_accessible_in_both_themes(
    visit: Callable[..., Any], served: Served, scheme: str, query: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = visit(served, f"/run/mine/tokens{query}", color_scheme=scheme)
    page.wait_for_selector(
        ".sample .token" if "samples" in query else ".answer" if "held-out" in query else ".detail p, .detail h3"
    )
    page.wait_for_timeout(500)
    found = axe.Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"]})
    assert [
        (one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found.response["violations"]
    ] == []


def test_a_response_of_4000_tokens_is_drawn_at_once(visit: Callable[..., Any], tmp_path: Path) -> None:
    words = [f" w{number}" for number in range(100)]
    store(make_table([[i % 100 for i in range(4000)]], [0], [[0]], words), tmp_path / "mine", 1)
    with serving(tmp_path) as running:
        page = open_tokens(visit, running)
        assert page.locator(".cells .token").count() == 4000
        page.get_by_label("Colour by").select_option("kl")
        took = page.evaluate("""async () => {
          const start = performance.now();
          const select = document.querySelector('[aria-label="Colour by"]');
          select.value = "value";
          select.dispatchEvent(new Event("change"));
          const legend = () => document.querySelector(".legend-name").innerText;
          while (legend() !== "value") await new Promise(requestAnimationFrame);
          await new Promise(requestAnimationFrame);
          return performance.now() - start;
        }""")
        assert took < 3000
