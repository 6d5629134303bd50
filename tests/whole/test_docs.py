"""Everything the docs name exists, everything that exists is named, and the pictures match the source."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from matplotlib import image, pyplot

from scripts import architecture_picture, pipeline_picture
from scripts.import_graph import FACE
from tests.conftest import ROOT

DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
PLACES = (ROOT, ROOT / "src", ROOT / "src" / "ppolm", DOCS, ROOT / "tests")
"""Where to look for files that are named without a link."""
ELSEWHERE = re.compile(r"runs/|path/|/|.*[<$]|my_|.*theirs|your_")
"""Names of users' files, or of files that a run writes."""


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def headings(page: Path) -> set[str]:
    """Headings as link anchors."""
    found = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)]+)\)", text_of(page))
    missing = []
    for link in links:
        name, _, heading = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (heading and heading not in headings(target)):
            missing.append(link)
    assert not missing, f"{page.name} links to what is not there: {', '.join(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_source_file_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|md|txt))`", text_of(page)))
    missing = [
        name
        for name in sorted(named)
        if not ELSEWHERE.match(name) and not any((place / name).exists() for place in PLACES)
    ]
    assert not missing, f"{page.name} names files that are not there: {', '.join(missing)}"


def test_the_index_of_pages_has_a_line_on_every_page() -> None:
    listed = re.findall(r"^\| \[([\w-]+\.md)\]", text_of(DOCS / "README.md"), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in DOCS.glob("*.md") if page.name != "README.md")


def test_the_readme_fits_on_three_screens() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) <= 140


def test_the_readme_shows_the_numbers_of_seed_0_as_the_page_on_the_demo_has_them() -> None:
    row = next(line for line in text_of(DOCS / "demo.md").splitlines() if line.startswith("| 0 |"))
    after, gain = row.split("|")[3].strip(), row.split("|")[4].strip()
    printed = next(line for line in text_of(ROOT / "README.md").splitlines() if line.startswith("gold  "))
    assert after in printed
    assert gain in printed


def test_the_architecture_page_has_a_line_on_every_room() -> None:
    cells = re.findall(r"^\| (`[^|]+`) \|", text_of(DOCS / "architecture.md"), re.MULTILINE)
    listed = {name.rstrip("/").removesuffix(".py") for cell in cells for name in re.findall("`([^`]+)`", cell)}
    rooms = {room.replace(".", "/") for room in architecture_picture.graph()}
    assert listed == rooms, "add or remove the room in the tables of docs/architecture.md"


def test_at_least_fifteen_questions_are_answered_with_a_file() -> None:
    table = text_of(DOCS / "architecture.md").split("## Where is ...?")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| question")]
    assert len(rows) >= 15
    assert all("../src/ppolm/" in row for row in rows)


def test_functions_that_the_architecture_page_names_are_in_the_files_it_names() -> None:
    named = re.findall(r"`([\w.]+)` (?:in|of) \[[\w/.]+\]\(\.\./([\w/.]+\.py)\)", text_of(DOCS / "architecture.md"))
    assert len(named) > 15
    wrong = [pair for pair in named if not re.search(rf"\b{pair[0].split('.')[-1]}\b", text_of(ROOT / pair[1]))]
    assert not wrong


def test_the_picture_of_the_rooms_shows_the_imports_of_now() -> None:
    drawn = json.loads(_description(DOCS / "architecture.png"))
    assert drawn == architecture_picture.graph(), "draw it again: python -m scripts.architecture_picture"


def test_the_pipeline_as_text_is_that_of_the_picture() -> None:
    assert text_of(DOCS / "pipeline.txt") == pipeline_picture.as_text(), "run python -m scripts.pipeline_picture"
    assert max(map(len, pipeline_picture.as_text().splitlines())) <= 80


@pytest.mark.pictures
def test_no_text_of_a_picture_leaves_its_box_and_no_texts_overlap() -> None:
    for figure, texts in (pipeline_picture.draw(), architecture_picture.draw(architecture_picture.graph())):
        figure.draw_without_rendering()
        drawn = [(text, text.get_window_extent(), box.get_window_extent()) for text, box in texts]
        outside = [
            text.get_text()
            for text, words, box in drawn
            if words.x0 < box.x0 or words.x1 > box.x1 or words.y0 < box.y0 or words.y1 > box.y1
        ]
        assert not outside, f"does not fit its box: {outside}"
        clash = [
            (one[0].get_text(), other[0].get_text())
            for number, one in enumerate(drawn)
            for other in drawn[number + 1 :]
            if one[1].overlaps(other[1])
        ]
        assert not clash
        pyplot.close(figure)


def test_a_room_that_stands_on_no_floor_is_an_error() -> None:
    with pytest.raises(ValueError, match="attic stand on no floor: add them to FLOORS"):
        architecture_picture.floors({"attic": [], "cli": [], FACE: []})


def test_pictures_are_as_wide_as_a_page() -> None:
    for name in ("pipeline.png", "architecture.png"):
        assert 1200 <= image.imread(DOCS / name).shape[1] <= 1500


def _description(path: Path) -> str:
    """The description stored in the PNG's iTXt or tEXt chunk."""
    from PIL import Image

    return str(Image.open(path).info["Description"])
