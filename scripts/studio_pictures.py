"""Takes the pictures of docs/studio.md: every page of the studio, light and dark, of real runs of the embedded model.

    python -m scripts.studio_pictures            trains two short runs, then takes all pictures
    python -m scripts.studio_pictures tokens     only pictures whose name holds a word

Needs Chromium (Debian's package) and Playwright. Pictures are reduced to 256 colours, which shows no difference.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from PIL import Image

from ppolm.embedded import EXAMPLE_COMPARISONS, EXAMPLE_RUN
from ppolm.embedded.world.gold import gold_reward
from ppolm.feedback.desk import Desk
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Study, create_study
from ppolm.studies.from_file import from_file
from ppolm.studio.example import make_example_store
from tests.studio.serving import BROWSER_FLAGS, CHROMIUM, Served, serving

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "studio"
COMPARISONS = Path(__file__).resolve().parent.parent / "examples" / "comparisons.jsonl"
RUNS = {"gentle": {"kl-coef": 0.2}, "bold": {"kl-coef": 0.02}}
"""Runs that are trained for the comparison, and what differs between them."""
SHARED = {"max-steps": 20, "eval-every": 5, "table-every": 10, "learning-rate": 1e-3, "threads": 2}


@dataclass(frozen=True)
class Picture:
    """One page, and what is done on it before it is taken."""

    name: str
    path: str
    act: Callable[[Any], None] = lambda _: None
    height: int = 900
    phone: bool = False


def wait_for_charts(page: Any) -> None:
    """Let Plotly draw."""
    page.wait_for_selector(".js-plotly-plot")


def wait_for_tokens(page: Any) -> None:
    """Let the text be coloured."""
    page.locator(".cells .token").first.wait_for()


def open_reward_model(page: Any) -> None:
    """The report of the reward model that was trained."""
    page.get_by_role("link", name="my-reward").click()
    page.wait_for_selector(".drawing")


def score(page: Any) -> None:
    """Two answers compared, with what each token is worth."""
    open_reward_model(page)
    page.keyboard.press("s")
    page.locator(".prompt-fields textarea").fill(POST)
    page.get_by_label("compare with a second answer").check()
    page.get_by_label("Answer", exact=True).fill(FIRST_ANSWER)
    page.get_by_label("Second answer", exact=True).fill(SECOND_ANSWER)
    page.get_by_label("Leave out").select_option("token")
    page.get_by_role("button", name="Score", exact=True).click()
    page.locator(".wins").wait_for(timeout=120_000)
    page.locator(".cells .token").nth(1).hover()


def answer(page: Any) -> None:
    """Policy and reference, and the numbers of a token."""
    page.get_by_role("button", name="Answer", exact=True).click()
    page.locator(".cells").nth(1).wait_for(timeout=120_000)
    page.locator(".cells .token").nth(1).click()


def begin_judging(page: Any) -> None:
    """Give a name, and see the first pair."""
    page.locator("main input").first.fill("ann")
    page.keyboard.press("Enter")
    page.locator(".side").nth(1).wait_for()


def let_people_judge(place: str) -> None:
    """A second study, judged by two annotators: the judge of the embedded world with a share of wrong answers."""
    store = FeedbackStore(place)
    study = Study("Best policy against reference", wanted=2, repeats=0.2)
    create_study(store, study, from_file(str(EXAMPLE_COMPARISONS), "preference"))
    for annotator, mistakes, seconds in (("ann", 0.05, 6.0), ("ben", 0.25, 4.0)):
        desk, random = Desk(store, annotator, study=study.name), Random(annotator)
        while tasks := desk.next():
            first, second = gold_reward([str(tasks[0].content)] * 2, list(tasks[0].sides))
            right = "tie" if first == second else "first" if first > second else "second"
            wrong = random.random() < mistakes
            verdict = {"first": "second", "second": "first"}.get(right, right) if wrong else right
            desk.commit(tasks[0].id, verdict, seconds=seconds * random.uniform(0.5, 2))
    store.close()


FIRST_ANSWER = " My uncle keeps borrowing my car. I bought a new lock but nothing changed."
SECOND_ANSWER = " Anyway it is a strange story. I have no idea anymore."
POST = (
    "SUBREDDIT: r/family\nTITLE: Need some honest opinions\nPOST: I grew up in Boston. For three years now my uncle "
    "keeps borrowing my car. So I bought a new lock. After that nothing changed.\nTL;DR:"
)
PICTURES: list[Picture] = [
    Picture("runs", "/", height=420),
    Picture("run", "/run/first-look", wait_for_charts, height=1150),
    Picture("compare", "/compare?run=gentle&run=bold", wait_for_charts, height=1150),
    Picture("tokens", "/run/first-look/tokens?step=30&response=0&second=kl", wait_for_tokens, height=860),
    Picture("explain", "/run/first-look/tokens?step=30&response=0&token=6&explain=1", wait_for_tokens, height=900),
    Picture("what-if", "/run/first-look/tokens?step=30&response=0&whatif=1&lam=0.5", wait_for_tokens, height=900),
    Picture("judge", "/judge", begin_judging, height=700),
    Picture("judge-phone", "/judge", begin_judging, height=844, phone=True),
    Picture("studies", "/studies", height=420),
    Picture("people", "/people", height=700),
    Picture("rewards", "/rewards", open_reward_model, height=1030),
    Picture("score", "/rewards", score),
    Picture("try", "/try?run=first-look&seed=2", answer, height=620),
]


def train(folder: Path) -> None:
    """The runs to compare."""
    for name, own in RUNS.items():
        flags = [word for key, value in {**SHARED, **own}.items() for word in (f"--{key}", str(value))]
        command = [sys.executable, "-m", "ppolm", "train", "--model-name", "embedded", "--run-name", name]
        subprocess.run([*command, "--output-dir", str(folder), *flags], check=True, cwd=folder)


def train_reward_model(folder: Path) -> None:
    """The reward model of the pictures; what it is trained on comes with ppolm."""
    command = [sys.executable, "-m", "ppolm", "reward", "--model-name", "embedded", "--data", str(COMPARISONS)]
    subprocess.run([*command, "--output", str(folder / "my-reward")], check=True, cwd=folder)


def take(browser: Any, served: Served, picture: Picture, dark: bool) -> Path:
    """One picture."""
    size = {"width": 390 if picture.phone else 1280, "height": picture.height}
    context = browser.new_context(viewport=size, color_scheme="dark" if dark else "light")
    page = context.new_page()
    page.goto(served.link)
    page.wait_for_url(lambda address: "/open" not in address)
    page.goto(served.address + picture.path)
    page.wait_for_selector("main:not(:has(.loading))")
    picture.act(page)
    page.wait_for_timeout(1200)
    path = FOLDER / f"{picture.name}-{'dark' if dark else 'light'}.png"
    page.screenshot(path=str(path))
    context.close()
    Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    return path


def main() -> None:
    """All of them, or some."""
    from playwright.sync_api import sync_playwright

    words = sys.argv[1:]
    wanted = [one for one in PICTURES if not words or any(word in one.name for word in words)]
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        runs = Path(folder) / "runs"
        shutil.copytree(EXAMPLE_RUN, runs / EXAMPLE_RUN.name)
        if any(one.name == "compare" for one in wanted):
            train(runs)
        if any(one.path == "/rewards" for one in wanted):
            train_reward_model(runs)
        os.chdir(folder)  # so that no path of this machine is in a picture
        store = make_example_store(Path(folder))
        with serving(runs, store=store) as served:
            browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=BROWSER_FLAGS)
            judged = False
            for picture in wanted:
                if picture.path in ("/studies", "/people") and not judged:
                    let_people_judge(store)
                    judged = True
                for dark in (False, True):
                    print(take(browser, served, picture, dark).name)
            browser.close()


if __name__ == "__main__":
    main()
