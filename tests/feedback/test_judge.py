"""``ppolm feedback label --judge``: a function judges in the place of a person, in its own name, by the same desk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.data.examples import Preference, Rating
from ppolm.errors import FeedbackError
from ppolm.feedback.desk import Desk
from ppolm.feedback.judge import judge_all
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Ask, Item, Study, create_study
from tests.feedback.desk_cases import A, B, waiting_for


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeedbackStore:
    monkeypatch.chdir(tmp_path)
    return FeedbackStore("feedback.db")


def length(prompts: Sequence[object], responses: Sequence[str]) -> list[float]:
    assert len(prompts) == len(responses)
    return [float(len(response)) for response in responses]


def study_of(store: FeedbackStore, kind: Ask, texts: Sequence[tuple[str, ...]], repeats: float = 0.0) -> None:
    sources = (A, B)[: len(texts[0])]
    study = Study("s", kind, repeats=repeats, scale=(0, 7))
    create_study(store, study, [Item(f"{i}?", text, sources) for i, text in enumerate(texts)])


def test_the_longer_answer_is_chosen_wherever_it_stands_and_equal_scores_are_a_tie(store: FeedbackStore) -> None:
    study_of(store, "preference", [("long one", "short"), ("a", "the long one"), ("even", "same")] * 40)
    assert judge_all(Desk(store, "length", "s"), length) == 120
    judged = [record.judgement for record in store.records()]
    assert all(isinstance(one, Preference) and one.annotator == "length" for one in judged)
    assert sum(one.tie for one in judged if isinstance(one, Preference)) == 40
    assert all(len(one.chosen) > len(one.rejected) for one in judged if isinstance(one, Preference) and not one.tie)
    assert judge_all(Desk(store, "length", "s"), length) == 0


def test_a_judge_gives_scores_where_a_score_is_asked_for(store: FeedbackStore) -> None:
    study_of(store, "score", [("four",), ("one",)])
    assert judge_all(Desk(store, "length", "s"), length) == 2
    assert sorted(one.judgement.score for one in store.records() if isinstance(one.judgement, Rating)) == [3.0, 4.0]
    store.ask(waiting_for("live", 1, "xyz"))
    assert judge_all(Desk(store, "length"), length) == 3, "what a run waits for, too"


def test_a_score_outside_the_scale_and_a_thumb_are_refused_and_nothing_of_the_batch_is_stored(
    store: FeedbackStore,
) -> None:
    study_of(store, "score", [("four",), ("far too long",)])
    with pytest.raises(FeedbackError, match=r"The score 12\.0 is no answer\. Expected a number from 0 to 7"):
        judge_all(Desk(store, "length", "s"), length)
    assert not store.records()
    create_study(store, Study("t", "thumb"), [Item("q?", ("x",), (A,))])
    with pytest.raises(FeedbackError, match="A judge has no thumbs"):
        judge_all(Desk(store, "length", "t"), length)


def test_an_answer_to_a_task_that_is_not_there_stores_none_of_the_others(store: FeedbackStore) -> None:
    study_of(store, "preference", [("x", "y"), ("z", "w")])
    desk = Desk(store, "ann", "s")
    (task,) = desk.next()
    with pytest.raises(FeedbackError, match="There is no task 'absent' here"):
        desk.commit_all({task.id: "first", "absent": "second"})
    assert not store.records()


def test_the_command_judges_in_the_name_of_the_judge(store: FeedbackStore, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text("def score(prompts, responses):\n    return [float(len(one)) for one in responses]\n")
    study_of(store, "preference", [("long one", "short"), ("a", "the long one")])
    assert ppolm(["feedback", "label", "--study", "s", "--judge", "mine.py:score"]) == 0
    assert "Judging as mine.py:score in feedback.db.\n2 judgements saved in feedback.db; 0 tasks left." in (
        capsys.readouterr().out
    )
    assert {record.judgement.annotator for record in store.records()} == {"mine.py:score"}


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        ("human", "'human' is no judge here"),
        ("model", "'model' is no judge here"),
        ("nonsense", "'nonsense' is not understood"),
        ("mine.py:fails", "raised ValueError: no idea"),
    ],
)
def test_what_is_no_judge_is_an_error_and_stores_nothing(
    store: FeedbackStore, capsys: pytest.CaptureFixture[str], judge: str, said: str
) -> None:
    Path("mine.py").write_text("def fails(prompts, responses):\n    raise ValueError('no idea')\n")
    study_of(store, "preference", [("x", "y")])
    assert ppolm(["feedback", "label", "--study", "s", "--judge", judge]) == 1
    assert said in capsys.readouterr().err
    assert not store.records()
