"""The test suite itself: everything its settings name exists, and expensive fixtures are made once."""

from __future__ import annotations

import re
import sys

import pytest

from scripts import other_machines
from scripts.import_graph import ROOMS
from scripts.seed_device_mistakes import MISTAKES, Mistake
from tests.conftest import ROOT, SLOW, TOGETHER, shared_with


def test_what_is_named_as_slow_or_as_belonging_together_exists() -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    tests = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}
    known = tests | {file.stem for file in files}
    assert {name.partition("[")[0] for name in SLOW} <= known
    assert {file.relative_to(ROOT).as_posix() for file in files} >= TOGETHER


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.what)
def test_a_mistake_can_still_be_seeded_where_it_was(mistake: Mistake) -> None:
    """`python -m scripts.seed_device_mistakes` checks that each is caught, in half a minute each."""
    assert (ROOT / "src" / "ppolm" / mistake.file).read_text().count(mistake.old) == 1


def test_quick_tests_reach_every_room() -> None:
    rooms = {folder.parent.name for folder in (ROOT / "src" / "ppolm").glob("*/__init__.py")}
    reached = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        text = file.read_text()
        quick = [name for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE) if name not in SLOW]
        if quick and file.stem not in SLOW:
            reached |= set(re.findall(r"^from ppolm\.(\w+)", text, re.MULTILINE))
    assert len(rooms) > 10
    assert rooms <= reached


def test_one_worker_gets_all_tests_of_a_file_that_belong_together_and_single_ones_of_the_others() -> None:
    together = min(TOGETHER)
    assert shared_with(f"{together}::test_one[a-b]") == shared_with(f"{together}::test_two")
    alone = "tests/training/test_losses.py"
    assert shared_with(f"{alone}::test_one") != shared_with(f"{alone}::test_two")


def test_the_suite_is_run_as_on_other_machines_and_says_what_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = "import os, sys; print('FAILED one'); print('capability', os.environ['ATEN_CPU_CAPABILITY'], sys.argv[1:])"
    monkeypatch.setattr(other_machines, "TESTS", [sys.executable, "-c", f"{script}; sys.exit(1)"])
    monkeypatch.setattr(sys, "argv", ["other_machines", "default", "avx2", "--", "-x"])
    with pytest.raises(SystemExit) as end:
        other_machines.main()
    assert end.value.code == 2, "one for each setting that failed"
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        *("FAILED one", "default       capability default ['-x']"),
        *("FAILED one", "avx2          capability avx2 ['-x']"),
    ]
    monkeypatch.setattr(sys, "argv", ["other_machines", "windows"])
    with pytest.raises(SystemExit, match="Unknown setting 'windows'"):
        other_machines.main()


def test_folders_of_tests_are_rooms_and_no_file_is_too_long_to_read() -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    folders = {file.parent.relative_to(ROOT / "tests").as_posix() for file in files}
    assert folders <= {*ROOMS, "whole"}, "a folder has the name of the room whose promises it protects"
    assert [file.name for file in files if len(file.read_text(encoding="utf-8").splitlines()) > 400] == []


def test_no_test_file_needs_another_one() -> None:
    """Shared code belongs in a helper, so that each test file can be read, moved and run alone."""
    needing = {
        file.name: found
        for file in (ROOT / "tests").rglob("*.py")
        if (found := re.findall(r"^\s*from (tests\.[\w.]*test_\w+) import", file.read_text(), re.MULTILINE))
    }
    assert needing == {}
