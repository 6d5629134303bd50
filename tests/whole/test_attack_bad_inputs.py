"""A sample of the bad inputs of ``make attack``: none ends in a traceback, hangs, floods a terminal or harms a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from attack import __main__ as program
from attack import bad_inputs
from attack.samples import Samples, make
from attack.sandbox import Case, Sandbox, judge
from ppolm.cli.main import run as ppolm
from tests.conftest import ROOT, THREADS


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    torch.set_num_threads(THREADS)
    return make(tmp_path_factory.mktemp("good"))


@pytest.fixture
def box(tmp_path: Path) -> Sandbox:
    made = Sandbox(tmp_path / "case")
    made.clear()
    return made


QUICK = {"settings": 40, "flags": 30, "data": 80, "stores": 40, "functions": 30, "answers": 20, "environment": 10}
HEAVY = {"adapters": 6, "models": 6, "runs": 6}


@pytest.mark.parametrize("part", bad_inputs.PARTS)
def test_bad_inputs_are_refused_in_a_sentence(samples: Samples, box: Sandbox, part: str) -> None:
    faults = []
    for number in range((QUICK | HEAVY)[part]):
        box.clear()
        verdict = judge(bad_inputs.case((part, number), 7, samples, box), box)
        if verdict.fault:
            faults.append(f"{part}:{number} {verdict.fault} {verdict.details}")
    assert not faults


@pytest.mark.parametrize(
    ("does", "fault"),
    [
        (lambda _: 1 / 0, "traceback: ZeroDivisionError"),
        (lambda _: print("\x1b[2J"), "control character"),
        (lambda _: 3, "exit status 3"),
        (lambda _: 1, "status 1 without one line"),
        (lambda _: print("error: " + "x" * 3000, file=sys.stderr) or 1, "a message of"),
        (lambda box: (box.given / "x").touch() or 0, "changed "),
        (lambda box: (box.folder / "x").touch() or 0, "changed "),
        (lambda _: ppolm(["nothing"]), None),
        (lambda _: ppolm(["train", "--nothing"]), None),
        (lambda box: (box.out / "x").touch() or 0, None),
    ],
    ids=range(10),
)
def test_the_judge_of_the_attack_sees_what_is_wrong(box: Sandbox, does: Any, fault: str | None) -> None:
    verdict = judge(Case(lambda: does(box), "a case"), box)
    assert (verdict.fault or "").startswith(fault or "")
    assert (verdict.fault is None) == (fault is None)


def test_a_hang_is_ended_and_told(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attack.sandbox.HANG_SECONDS", 0.05)

    def for_ever() -> int:
        while True:
            pass

    assert "hang" in str(judge(Case(for_ever, "a case"), box).fault)


def test_a_case_is_the_same_whenever_it_is_made(samples: Samples, box: Sandbox) -> None:
    for part in ("settings", "flags", "data"):
        made = []
        for _ in range(2):
            box.clear()
            about = bad_inputs.case((part, 3), 0, samples, box).about
            made.append((about, [path.read_bytes() for path in sorted(box.given.iterdir())]))
        assert made[0] == made[1]


def test_parts_are_found_by_name_and_flags_are_handed_on(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(bad_inputs, "main", lambda argv: seen.append(argv))
    assert program.main(["bad-inputs", "--count", "3"]) == 0
    assert seen == [["--count", "3"]]
    assert program.main(["nonsense"]) == 2
    assert "bad-inputs" in capsys.readouterr().err
    assert "attack" in (ROOT / "Makefile").read_text()


def test_the_page_has_a_whole_run_without_a_fault_and_the_command_that_gave_it() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text().partition("python -m attack bad-inputs --count 20000")[2]
    parts = tuple(f"| {part} " for part in bad_inputs.PARTS)
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith(parts)]
    assert [row[0] for row in rows] == list(bad_inputs.PARTS)
    assert sum(int(row[1].replace(",", "")) for row in rows) >= 20_000
    assert {row[-1] for row in rows} == {"0"}
