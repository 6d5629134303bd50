"""The suite itself: what its settings name is there, and what takes long to make is made once."""

from __future__ import annotations

import re

from tests.conftest import ROOT, SLOW, TOGETHER, shared_with


def test_what_is_named_as_slow_or_as_belonging_together_exists() -> None:
    files = sorted((ROOT / "tests").glob("test_*.py"))
    tests = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}
    known = tests | {file.stem for file in files}
    assert {name.partition("[")[0] for name in SLOW} <= known
    assert {f"tests/{file.name}" for file in files} >= TOGETHER


def test_one_worker_gets_all_tests_of_a_file_that_belong_together_and_single_ones_of_the_others() -> None:
    together = min(TOGETHER)
    assert shared_with(f"{together}::test_one[a-b]") == shared_with(f"{together}::test_two")
    assert shared_with("tests/test_losses.py::test_one") != shared_with("tests/test_losses.py::test_two")
