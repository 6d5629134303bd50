"""Short versions of the attacks on training runs; `python -m attack.kills` and the others are the long ones."""

from __future__ import annotations

import random
import signal
import sys
from pathlib import Path

import pytest

from attack import damages, disk_full, kills, two_writers
from attack.__main__ import main
from attack.child import DONE, start
from attack.trainings import trainings
from ppolm.storage.atomic import write_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies a process that has torch loaded")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attack")


@pytest.mark.parametrize(("name", "way"), [("train", "kill -9"), ("sft", "SIGTERM"), ("reward", "kill -9")])
def test_a_training_that_is_killed_or_stopped_is_finished_bit_for_bit(name: str, way: str, place: Path) -> None:
    figures = kills.attack(trainings(place)[name], way, count=1, seed=0, place=place)
    assert not figures.problems
    assert (figures.stopped, figures.bit_equal, figures.lost_steps) == (1, 1, 0)
    assert figures.later_steps <= 1


def test_a_training_that_is_stopped_after_a_step_has_saved_it(place: Path) -> None:
    training, folder = trainings(place)["train"], place / "stopped"
    child = start(training.begin(folder), folder)
    while child.count(DONE) < 2:
        assert child.wait(0.01) is None, child.said
    child.send(signal.SIGINT)
    assert child.wait(kills.PATIENCE) == 130
    assert training.saved_step(folder) == child.count(DONE)
    assert child.said.endswith(f"Resume with: ppolm train --resume {folder}\n")


@pytest.mark.parametrize("kind", ["start", "resume"])
def test_of_two_trainings_in_one_folder_exactly_one_goes_ahead(kind: str, place: Path) -> None:
    figures = two_writers.attack(trainings(place)["sft"], kind, count=1, seed=0, place=place)
    assert not figures.problems
    assert (figures.at_once + figures.in_turn, figures.together, figures.whole) == (1, 0, 1)


@pytest.mark.parametrize("name", ["train", "reward"])
def test_a_full_disk_is_one_sentence_and_the_training_resumes(name: str, place: Path) -> None:
    figures = disk_full.attack(trainings(place)[name], count=1, seed=0, place=place)
    assert not figures.problems
    assert (figures.one_sentence, figures.bit_equal) == (1, 1)


def test_every_damage_of_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "policy").mkdir()
        for name in ("state.json", "weights", "policy/weights"):
            (folder / name).write_bytes(random.Random(name).randbytes(2_000))

    write_folder(tmp_path / "checkpoint", fill)
    noticed, missed = damages.run(tmp_path / "checkpoint", 700, 0, tmp_path)
    assert not missed
    assert noticed.total() == 700


def test_the_one_command_hands_its_flags_to_the_attacks_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["damages", "--count", "20", "--seed", "3"]) == 0
    assert "| all of 20 | 20 |" in capsys.readouterr().out
    assert main(["nothing"]) == 2
    assert "There are: bad-inputs, kills" in capsys.readouterr().err
