"""``ppolm feedback label``: blind, what a run waits for first, and patient when nothing is there yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from ppolm.cli import feedback_command
from ppolm.cli.main import run as ppolm
from ppolm.data.examples import Preference, Rating
from ppolm.data.load_rows import load_judgements
from ppolm.feedback import label
from ppolm.feedback.label import Labeller
from ppolm.feedback.record import Details, Queued, Record, Source, Wait, now
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Item, Study, create_study
from ppolm.feedback.write_rows import WRITERS

SOURCES = (Source("run-a", 1, 0, "runs/a/best"), Source("run-b", 2, 1, "runs/b/best"))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeedbackStore:
    monkeypatch.chdir(tmp_path)
    return FeedbackStore("feedback.db")


def typing(*lines: str) -> Callable[[str], str]:
    left: Iterator[str] = iter(lines)
    return lambda _: next(left, "q")


def test_the_screen_names_no_run_and_serves_what_a_run_waits_for_first(store: FeedbackStore) -> None:
    store.ask([Queued("old?", "old answer", Source("secret-run", 1, 0))])
    wait = Wait(now() - timedelta(seconds=42), now() + timedelta(seconds=60))
    store.ask([Queued("live?", "live answer", Source("secret-run", 2, 0), wait=wait)])
    create_study(store, Study("s", repeats=0), [Item("pair?", ("x", "y"), SOURCES)])
    said: list[str] = []
    assert Labeller(store, "ann", read=typing("3", "1", "4"), say=said.append).run() == 3
    text = "\n".join(said)
    assert text.index("live answer") < text.index("pair?") < text.index("old answer")
    assert "── 3 to judge, a run has waited 42 s for this ──" in text
    assert not any(word in text for word in ("secret-run", "runs/a", "run-b", "step"))


def test_a_session_can_be_limited_to_a_run(store: FeedbackStore) -> None:
    store.ask([Queued("q?", f"{run} {i}", Source(run, 1, i)) for run in ("one", "two") for i in range(2)])
    assert Labeller(store, "ann", run="two", read=typing("1", "2", "3"), say=lambda _: None).run() == 2
    assert {record.source.run for record in store.records()} == {"two"}


def test_ties_both_bad_skip_and_undo_of_comparisons(store: FeedbackStore) -> None:
    create_study(store, Study("s", repeats=0), [Item(f"{i}?", ("x", "y"), SOURCES) for i in range(5)])
    typed = typing("t", "b", "x", "s", "1", "u", "2", "u", "u", "1", "q")
    assert Labeller(store, "ann", study="s", read=typed, say=lambda _: None).run() == 3
    judged = [(record.judgement, record.details) for record in store.records()]
    assert [(one.tie, details.both_bad) for one, details in judged if isinstance(one, Preference)] == [
        *((True, False), (True, True), (False, False))
    ]


def test_a_study_has_its_scale_axes_and_guidelines(store: FeedbackStore) -> None:
    study = Study("s", "score", "Be fair.", ("kind", "true"), scale=(1, 5))
    create_study(store, study, [Item("a?", ("x",)), Item("b?", ("x",))])
    said: list[str] = []
    typed = typing("6", "5", "9", "4", "", "2", "", "")
    assert Labeller(store, "ann", study="s", read=typed, say=said.append).run() == 2
    assert [record.details.axes for record in store.records()] == [{"kind": 4.0}, None]
    assert said.count("GUIDELINES\nBe fair.\n") == 1
    assert "'6' is not an answer. A score is a number from 1 to 5." in said


def test_follow_waits_for_a_store_that_does_not_exist_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(feedback_command, "STORE_POLL_SECONDS", 0.02)
    monkeypatch.setattr(label, "POLL_SECONDS", 0.02)
    answers: Iterator[str] = iter(["5"])
    monkeypatch.setattr("builtins.input", lambda _: next(answers, "q"))

    def begin_run() -> None:
        store = FeedbackStore("late.db")
        threading.Timer(0.2, store.ask, [[Queued("q?", text) for text in "xy"]]).start()

    assert ppolm(["feedback", "label", "--store", "late.db"]) == 1
    assert "There is no feedback store at late.db" in capsys.readouterr().err
    threading.Timer(0.3, begin_run).start()
    assert ppolm(["feedback", "label", "--store", "late.db", "--follow", "--annotator", "ann"]) == 0
    said = capsys.readouterr().out
    assert "Waiting for it; Ctrl-C ends this." in said
    assert "1 judgement saved in late.db; 1 task left." in said


@pytest.mark.parametrize("ending", WRITERS)
def test_everything_about_a_judgement_survives_export_and_import(store: FeedbackStore, ending: str) -> None:
    create_study(store, Study("s", axes=("kind",)), [Item(f"{i}?", ("x", "y"), SOURCES, "first") for i in range(3)])
    assert Labeller(store, "ann", study="s", read=typing("2", "7", "b", "", "t", ""), say=lambda _: None).run() == 3
    details = Details("s", "i", 2.5, None, False, None, {"kind": 3.5, "tr,ue": -1.0}, 'a "note",\nwith lines')
    rating = Rating(store.records()[0].judgement.prompt, "x", 3.0, annotator="ben")
    store.add([Record(rating, source=Source("r", 1, 2, "p", "training"), details=details)])
    assert ppolm(["feedback", "export", f"out{ending}"]) == 0
    assert ppolm(["feedback", "import", f"out{ending}", "--store", "other.db"]) == 0
    assert FeedbackStore("other.db").records() == store.records()
    ties = [one.tie for one in load_judgements(f"out{ending}") if isinstance(one, Preference)]
    assert ties.count(True) == 2, "both bad is a tie to whoever trains on it"


def test_columns_of_other_files_with_our_names_are_no_errors(store: FeedbackStore) -> None:
    Path("rows.jsonl").write_text(
        '{"prompt": "a?", "completion": "b", "score": 1, "note": 7, "gold": "maybe", "axes": [1], "seconds": "long"}\n'
    )
    assert ppolm(["feedback", "import", "rows.jsonl"]) == 0
    assert [record.details for record in store.records()] == [Details()]
