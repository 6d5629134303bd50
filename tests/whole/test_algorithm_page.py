"""docs/algorithm.md names settings, lines of source and tests: all of them are there, and no stage is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from ppolm.config import PPOConfig
from ppolm.config.setting import settings_of
from scripts.settings_page import shown
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "algorithm.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "ppolm"
DETAILS = {part.splitlines()[0]: part for part in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]}
NAMED = re.compile(r"`([\w.]+)` in \[([\w./]+)\]\(\.\./(src/ppolm|tests)/([\w./]+)\)(?:: `([^`]+)`)?")
DEFAULT = re.compile(r"`(\w+)` \((`[^`]+`|none)\)")
GROUPS = ("KL", "advantage", "value model", "update")
"""Every setting of these groups belongs to the algorithm."""
OF_SUPERVISED_TRAINING = {"preference_loss.py", "rating_loss.py"}
CARRIES_A_NUMBER = {"mean_loss.py"}


@cache
def definitions(path: Path) -> set[str]:
    """Names of all functions and classes of a file; those in a class with its name before them, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return found


def row(detail: str, name: str) -> str:
    """A row of the table below a detail."""
    found = re.findall(rf"^\| {name} \| (.+) \|$", DETAILS[detail], re.MULTILINE)
    assert len(found) == 1, f"{detail} needs one row '{name}'"
    return str(found[0])


@pytest.mark.parametrize("detail", DETAILS)
def test_a_detail_says_why_what_goes_wrong_and_names_setting_code_and_test(detail: str) -> None:
    text = DETAILS[detail]
    assert "**Why.**" in text
    assert "**Without it:**" in text
    assert row(detail, "setting")
    assert NAMED.search(row(detail, "code"))
    assert any(name.startswith("test_") for name, *_ in NAMED.findall(row(detail, "test")))


def test_every_setting_on_the_page_exists_with_the_default_that_is_stated() -> None:
    stated = {(name, value) for detail in DETAILS for name, value in DEFAULT.findall(row(detail, "setting"))}
    known = settings_of(PPOConfig)
    wrong = [pair for pair in stated if pair[0] not in known or shown(getattr(PPOConfig, pair[0])) != pair[1]]
    assert not wrong
    assert len({name for name, _ in stated}) > 50


def test_every_setting_of_the_algorithm_is_on_the_page() -> None:
    stated = {name for detail in DETAILS for name, _ in DEFAULT.findall(row(detail, "setting"))}
    missing = {name for name, one in settings_of(PPOConfig).items() if one.group in GROUPS} - stated
    assert not missing


def test_every_function_line_and_test_that_the_page_names_is_in_the_file_it_names() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > 100
    wrong = []
    for name, words, root, rest, quoted in named:
        path = ROOT / root / rest
        assert words == rest, "a link says where it leads"
        lines = {line.strip() for line in path.read_text(encoding="utf-8").splitlines()}
        if name not in definitions(path) or (quoted and quoted not in lines):
            wrong.append(f"{name} in {rest}: {quoted or 'no such name'}")
    assert not wrong


def test_a_quoted_line_is_in_the_function_it_is_quoted_from() -> None:
    for name, _, _, rest, quoted in NAMED.findall(PAGE):
        text = (SOURCE / rest).read_text(encoding="utf-8") if quoted else ""
        nodes = [node for node in ast.walk(ast.parse(text)) if getattr(node, "name", None) == name.rpartition(".")[2]]
        assert not quoted or any(quoted in (ast.get_source_segment(text, node) or "") for node in nodes), (name, quoted)


def test_no_stage_of_the_data_flow_is_missing() -> None:
    flow = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = flow.split("## The data flow, and where it is")[1].split("\n## ")[0]
    stages = set(re.findall(r"\(\.\./src/ppolm/([\w/]+\.py)\)", table))
    rooms = [SOURCE / room for room in ("reward_kl", "advantage", "experience_buffer", "training")]
    stages |= {str(path.relative_to(SOURCE)) for room in rooms for path in room.glob("[a-z]*.py")}
    left_out = OF_SUPERVISED_TRAINING | CARRIES_A_NUMBER
    missing = {stage for stage in stages if f"(../src/ppolm/{stage})" not in PAGE and Path(stage).name not in left_out}
    assert len(stages) > 20
    assert not missing
