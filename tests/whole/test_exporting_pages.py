"""The pages on exporting and on the chat: their commands run, and their figures are kept."""

from __future__ import annotations

import io
import re
import shlex
import shutil
from pathlib import Path

import pytest

from ppolm.chat.talk import HELP
from ppolm.cli.main import run as ppolm
from ppolm.embedded import EXAMPLE_RUN
from scripts.export_table import FORMS, measure
from tests.conftest import ROOT

ALLOWED = r"^\| (merged|gguf) \| (\w+) \| 32 of 32 \| [\d.e-]+ \| ([\d.e-]+) \| ([\d.e-]+) \|$"


def commands(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [line for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize(("page", "count"), [("exporting.md", 3), ("chat.md", 3)])
def test_every_command_of_the_pages_runs(
    page: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(EXAMPLE_RUN, tmp_path / "runs" / "my-run")
    monkeypatch.chdir(tmp_path)
    assert len(commands(page)) == count
    for command in commands(page):
        given, _, words = command.rpartition(" | ")
        typed = shlex.split(given)[1].replace("\\n", "\n") if given else "/help\n"
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        assert ppolm(shlex.split(words)[1:]) == 0, command
    if page == "chat.md":
        assert "reference > My roommate took credit for my report." in capsys.readouterr().out


def test_exports_are_as_near_to_the_policy_as_the_page_allows(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "exporting.md").read_text(encoding="utf-8")
    rows = {found[:2]: found[2:] for found in re.findall(ALLOWED, page, re.MULTILINE)}
    assert list(rows) == list(FORMS)
    for form, precision, same, _, largest in measure(EXAMPLE_RUN, tmp_path, 4):
        measured, allowed = map(float, rows[form, precision])
        assert same == 4, (form, precision)
        assert largest <= allowed, (form, precision)
        assert measured <= allowed


def test_the_page_on_the_chat_names_every_command() -> None:
    page = (ROOT / "docs" / "chat.md").read_text(encoding="utf-8")
    assert all(f"`{name}" in page for name in re.findall(r"^(/\w+)", HELP, re.MULTILINE))
