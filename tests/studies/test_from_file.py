"""Studies from files: pairs and answers in the forms that data files have, and answers known to be right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.errors import DataError
from ppolm.feedback.desk import Desk
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.study import Study, all_studies
from ppolm.studies.from_file import from_file, gold_from_file

CHAT = [{"role": "user", "content": "Hi"}]


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_pairs_and_single_answers_with_who_gave_them(tmp_path: Path) -> None:
    file = write(
        tmp_path / "pairs.jsonl",
        {"prompt": "a?", "first": "x", "second": "y", "first_policy": "old", "second_policy": "new"},
        {"messages": CHAT, "chosen": "x", "rejected": "y"},
    )
    one, two = from_file(file, "preference")
    assert (one.content, one.responses, [source.policy for source in one.sources]) == ("a?", ("x", "y"), ["old", "new"])
    assert (two.content, two.responses, two.gold) == (CHAT, ("x", "y"), None)
    answers = write(
        tmp_path / "answers.jsonl",
        {"prompt": "a?", "completion": "x", "policy": "old"},
        {"prompt": "a?", "completion": "y", "score": 3},
        {"prompt": "a?", "completion": "bad", "label": False},
    )
    found = from_file(answers, "score")
    assert [item.responses[0] for item in found] == ["x", "y", "bad"]
    assert found[0].sources[0].policy == "old"
    with pytest.raises(DataError, match="has no column 'chosen'"):
        from_file(answers, "preference")
    with pytest.raises(DataError, match="'completion'"):
        from_file(write(tmp_path / "prompts.jsonl", {"prompt": "a?"}), "thumb")


def test_answers_that_are_known_to_be_right(tmp_path: Path) -> None:
    file = write(
        tmp_path / "gold.jsonl",
        {"prompt": "a?", "chosen": "x", "rejected": "y"},
        {"prompt": "b?", "chosen": "x", "rejected": "y", "tie": True},
    )
    assert [item.gold for item in gold_from_file(file, "preference")] == ["first", "tie"]
    thumbs = write(tmp_path / "thumbs.jsonl", {"prompt": "a?", "completion": "x", "label": False})
    assert [item.gold for item in gold_from_file(thumbs, "thumb")] == ["down"]
    scores = write(tmp_path / "scores.jsonl", {"prompt": "a?", "completion": "x", "score": 5})
    assert [item.gold for item in gold_from_file(scores, "score")] == ["5.0"]
    with pytest.raises(DataError, match="holds no preference, which this study asks for"):
        gold_from_file(scores, "preference")


def test_a_study_of_a_file_with_gold_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"{i}?", "first": "x", "second": "y"} for i in range(9)]
    write(tmp_path / "pairs.jsonl", *rows, {"prompt": "gold?", "first": "good", "second": "bad"})
    write(tmp_path / "gold.jsonl", {"prompt": "gold?", "chosen": "good", "rejected": "bad"})
    flags = ["--file", "pairs.jsonl", "--gold", "gold.jsonl", "--axes", "kind", "true", "--repeats", "0"]
    assert ppolm(["feedback", "study", "s", *flags]) == 0
    assert "10 pairs" in capsys.readouterr().out
    (study,) = all_studies(FeedbackStore("feedback.db"))
    assert study == Study("s", axes=("kind", "true"), repeats=0, time=study.time)
    desk = Desk(FeedbackStore("feedback.db"), "ann", "s")
    gold = []
    while tasks := desk.next():
        record = desk.commit(tasks[0].id, "first")
        gold += [record.judgement.prompt.content] if record.details.gold else []
    assert gold == ["gold?"], "the pair that is in both files is one gold question"
    assert ppolm(["feedback", "stats", "--json"]) == 0
    (ann,) = json.loads(capsys.readouterr().out)["people"]
    assert ann["golds"] == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "Say what is to be judged, in one way"),
        (["--file", "f", "--policy", "r"], "Say what is to be judged, in one way"),
        (["--file", "f", "--samples", "2"], "--samples has no effect with --file FILE"),
        (["--file", "f", "--prompts", "p"], "--prompts has no effect"),
        (["--file", "f", "--step", "2"], "--step has no effect"),
        (["--file", "f", "--ask", "thumb", "--axes", "kind"], "--axes has no effect"),
        (["--step-of", "r"], "--step-of needs --step"),
        (["--policy", "r", "--samples", "1"], "expected at least 2 for comparisons"),
        (["--file", "f", "--count", "0"], "count is 0"),
        (["--file", "f", "--repeats", "0.9"], "share of repeats is 0.9"),
        (["--file", "f", "--scale", "7", "1"], "expected a lower and a higher number"),
        (["--file", "f", "--judgements-per-item", "0"], "it wants 0 judgements per item"),
    ],
)
def test_flags_that_cannot_work_are_refused_before_anything_is_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ppolm(["feedback", "study", "s", *flags]) == 1
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
