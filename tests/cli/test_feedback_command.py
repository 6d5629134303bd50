"""``ppolm feedback``: what goes in comes out again, in every format, and each command says what it did."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.data.examples import Preference, Rating, Thumb
from ppolm.data.load_rows import load_judgements
from ppolm.data.prompts import Prompt
from ppolm.errors import FeedbackError
from ppolm.feedback import label
from ppolm.feedback.label import Labeller, readable
from ppolm.feedback.record import Queued, Record, Source
from ppolm.feedback.store import FeedbackStore
from ppolm.feedback.write_rows import WRITERS, write_rows

CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": 'Say "héllo",\nplease ☕'}]
ROWS: list[dict[str, Any]] = [
    {"prompt": "What is a cat?", "chosen": "An animal.", "rejected": "A car.", "annotator": "ann", "margin": 0.5},
    {"prompt": "What is a cat?", "chosen": "A car.", "rejected": "An animal.", "annotator": "ben", "confidence": 0.2},
    {"messages": CHAT, "chosen": "héllo", "rejected": "No,\r\nno.", "tie": True},
    {"prompt": "What is a cat?", "completion": "An animal.", "score": 0, "annotator": "ann"},
    {"messages": CHAT, "completion": "héllo", "score": 4.25, "run": "my-run", "step": 3, "sequence": 7},
    {"prompt": "What is a cat?", "completion": "A car.", "label": False, "judged_at": "2026-05-01T12:00:00Z"},
    {"messages": [{"role": "user", "content": "Hi", "name": "ann"}], "completion": "Hello.", "label": True},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with rows to import."""
    monkeypatch.chdir(tmp_path)
    write_jsonl("rows.jsonl", ROWS)
    return tmp_path


def write_jsonl(name: str, rows: list[Any]) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def stored(name: str = "feedback.db") -> list[Record]:
    return FeedbackStore(name, create=False).records()


def feedback(*arguments: str) -> None:
    assert ppolm(["feedback", *arguments]) == 0


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert ppolm(["feedback", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    return error


# ---- import ---------------------------------------------------------------------------------------------------------


def test_import_stores_every_form_with_who_and_where(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feedback("import", "rows.jsonl", "--annotator", "cy")
    assert "feedback.db: 7 new of 7 judgements (3 preferences, 2 scores, 2 thumbs)" in capsys.readouterr().out
    by_kind = {kind: [r for r in stored() if r.kind == kind] for kind in ("preferences", "scores", "thumbs")}
    cat = Prompt("What is a cat?")
    assert {r.judgement.annotator for r in by_kind["preferences"]} == {"ann", "ben", "cy"}
    assert Rating(cat, "An animal.", 0.0, annotator="ann") in [r.judgement for r in by_kind["scores"]]
    assert Source("my-run", 3, 7) in [r.source for r in by_kind["scores"]]
    assert [r.time.isoformat() for r in by_kind["thumbs"] if not r.judgement.label] == [  # type: ignore[union-attr]
        "2026-05-01T12:00:00+00:00"
    ]


def test_import_of_the_same_rows_again_adds_nothing_unless_asked(folder: Path) -> None:
    feedback("import", "rows.jsonl", "rows.jsonl")
    feedback("import", "rows.jsonl")
    assert len(stored()) == 7
    write_jsonl("more.jsonl", [*reversed(ROWS), {**ROWS[0], "annotator": "di"}])
    feedback("import", "more.jsonl")  # another order, one row more
    assert len(stored()) == 8
    feedback("import", "rows.jsonl", "--again")
    assert len(stored()) == 15


def test_equal_rows_of_one_file_are_as_many_judgements(folder: Path) -> None:
    row = {"prompt": "a", "completion": "b", "score": 1}
    write_jsonl("equal.jsonl", [row, row, row])
    feedback("import", "equal.jsonl")
    feedback("import", "equal.jsonl")
    assert len(stored()) == 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a"}, "line 2, holds no judgement"),
        ({"prompt": "a", "completion": "b", "score": "high"}, "line 2, has 'high' as its 'score', expected a number"),
        ({"prompt": "a", "completion": "b", "score": 1, "step": "first"}, "'step', expected a whole number. Rename"),
        ({"prompt": "a", "completion": "b", "score": 1, "judged_at": "noon"}, "'judged_at', expected a time such as"),
        ({"prompt": "a", "completion": "b", "score": 1, "judgement_id": "a b"}, "'judgement_id', expected up to 64"),
    ],
)
def test_bad_row_is_named_and_nothing_is_stored(
    folder: Path, capsys: pytest.CaptureFixture[str], row: dict[str, Any], message: str
) -> None:
    write_jsonl("bad.jsonl", [ROWS[0], row])
    assert message in refused(capsys, "import", "rows.jsonl", "bad.jsonl")
    assert not Path("feedback.db").exists()
    feedback("import", "bad.jsonl", "--skip-bad-rows")
    assert len(stored()) == 1


def test_edited_export_is_refused_with_what_to_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feedback("import", "rows.jsonl")
    feedback("export", "out.jsonl", "--kind", "scores")
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    write_jsonl("edited.jsonl", [{**rows[0], "score": 9.5}])
    assert "says something else there. Remove its judgement_id" in refused(capsys, "import", "edited.jsonl")


# ---- export ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", WRITERS)
def test_export_comes_back_as_the_same_judgements(folder: Path, ending: str) -> None:
    feedback("import", "rows.jsonl")
    feedback("export", f"out{ending}")
    feedback("import", f"out{ending}", "--store", "other.db")
    assert stored("other.db") == stored()
    feedback("import", f"out{ending}")
    assert len(stored()) == 7


@pytest.mark.parametrize("ending", WRITERS)
def test_export_is_what_training_loads(folder: Path, ending: str) -> None:
    feedback("import", "rows.jsonl")
    feedback("export", f"out{ending}")

    def bare(judged: Any) -> Any:
        return type(judged)(**{**vars(judged), "prompt": judged.prompt.content})

    loaded = [bare(judged) for judged in load_judgements(f"out{ending}")]
    assert loaded == [bare(record.judgement) for record in stored()]


def test_export_of_one_kind_by_a_rule(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feedback("import", "rows.jsonl")
    feedback("export", "out.jsonl", "--kind", "preferences", "--rule", "majority")
    assert "out.jsonl: 2 rows from 3 judgements (rule: majority)" in capsys.readouterr().out
    assert all(isinstance(judged, Preference) and judged.tie for judged in load_judgements("out.jsonl"))


def test_export_overwrites_nothing_and_leaves_nothing_half_done(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    feedback("import", "rows.jsonl")
    assert "rows.jsonl already exists" in refused(capsys, "export", "rows.jsonl")
    assert "unknown ending. Expected .jsonl, .jsonl.gz, .csv, .parquet" in refused(capsys, "export", "out.xlsx")
    assert "there is no folder absent" in refused(capsys, "export", "absent/out.csv")

    def break_off(path: Path, rows: Any) -> None:
        path.write_text("half")
        raise OSError("no space left on device")

    monkeypatch.setitem(WRITERS, ".csv", break_off)
    assert "out.csv cannot be written: no space left" in refused(capsys, "export", "out.csv")
    assert sorted(path.name for path in folder.iterdir()) == ["feedback.db", "rows.jsonl"]


def test_file_that_would_not_load_again_is_not_written(folder: Path) -> None:
    with pytest.raises(FeedbackError, match=r"would not load again: .*line 1, holds no judgement"):
        write_rows(folder / "out.jsonl", [{"prompt": "a"}])
    assert not Path("out.jsonl").exists()


@pytest.mark.parametrize("ending", WRITERS)
def test_responses_that_no_file_takes_stay_in_the_store_and_are_counted(
    folder: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    texts = ("", "half \ud800 a character", "fine, with a \0")
    FeedbackStore("feedback.db").add([Record(Rating(Prompt("a"), text, 1.0)) for text in texts])
    if ending == ".csv" and sys.version_info < (3, 11):
        assert "cannot hold these rows" in refused(capsys, "export", f"out{ending}")
        return
    feedback("export", f"out{ending}")
    assert "2 left out, which training could not load. The first: Judgement" in capsys.readouterr().err
    (judged,) = load_judgements(f"out{ending}")
    assert isinstance(judged, Rating)
    assert judged.completion == "fine, with a \0"


def test_empty_store_has_nothing_to_export(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FeedbackStore("feedback.db")
    assert "feedback.db holds no thumbs to export" in refused(capsys, "export", "out.csv", "--kind", "thumbs")


# ---- stats and the command itself -----------------------------------------------------------------------------------


def test_stats_for_people_and_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feedback("import", "rows.jsonl")
    store = FeedbackStore("feedback.db")
    more = [("What is a dog?", "ann", 1.0), ("What is a dog?", "ben", 2.0), ("What is a cow?", "ann", 3.0)]
    store.add([Record(Rating(Prompt(p), "An animal.", s, annotator=a)) for p, a, s in more])
    store.add([Record(Rating(Prompt("What is a cat?"), "An animal.", 0.0, annotator="ben"))])
    store.ask([Queued("waits", "x")])
    capsys.readouterr()
    feedback("stats")
    told = capsys.readouterr().out
    assert "feedback.db: 11 judgements; 1 response waits to be judged" in told
    assert "ann and ben: Cohen's kappa" in told
    assert "agreement on scores: Krippendorff's alpha" in told
    assert "agreement on thumbs: too little overlap to say anything" in told
    feedback("stats", "--json")
    numbers = json.loads(capsys.readouterr().out)
    assert (numbers["queued"], numbers["scores"]["judgements"], numbers["preferences"]["conflicts"]) == (1, 6, 1)
    assert numbers["scores"]["pairs"][0]["kappa"] == pytest.approx(1 - 0.5 / (0.25 + 1 + 0.25))


def test_stats_of_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "There is no feedback store at typo.db" in refused(capsys, "stats", "--store", "typo.db")
    FeedbackStore("feedback.db")
    feedback("stats")
    assert capsys.readouterr().out == "feedback.db: 0 judgements; 0 responses wait to be judged\n"


def test_actions_are_listed_and_typing_errors_answered(capsys: pytest.CaptureFixture[str]) -> None:
    feedback()
    assert all(action in capsys.readouterr().out for action in ("import",))
    assert "Did you mean 'stats'?" in refused(capsys, "stat")
    assert "There is nothing to import" in refused(capsys, "import")


# ---- label ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(folder: Path) -> FeedbackStore:
    store = FeedbackStore("feedback.db")
    store.ask([Queued("One?", text, Source("my-run", sequence=i)) for i, text in enumerate(("a", "b", "c"))])
    return store


def answers(*lines: str) -> Callable[[str], str]:
    """Input that is typed line by line, and then ends."""
    left: Iterator[str] = iter(lines)

    def read(question: str) -> str:
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    return read


def test_scores_are_saved_one_by_one_with_their_source(store: FeedbackStore) -> None:
    said: list[str] = []
    assert Labeller(store, "ann", read=answers("4", "high", "nan", "-2.5"), say=said.append).run() == 2
    first, second = stored()
    assert first.judgement == Rating(Prompt("One?"), "a", 4.0, annotator="ann")
    assert first.source == Source("my-run", None, 0)
    assert second.judgement == Rating(Prompt("One?"), "b", -2.5, annotator="ann")
    assert "'high' is not an answer. A score is a number within ±1e+06." in said
    assert [queued.response for queued in store.waiting()] == ["c"]


def test_skip_undo_and_quit(store: FeedbackStore) -> None:
    labeller = Labeller(store, "ann", "thumb", read=answers("u", "s", "y", "u", "n", "q"), say=lambda _: None)
    assert labeller.run() == 1
    assert [record.judgement for record in stored()] == [Thumb(Prompt("One?"), "b", False, annotator="ann")]
    assert [queued.response for queued in store.waiting()] == ["a", "c"]


def test_comparisons_of_responses_to_one_prompt(store: FeedbackStore) -> None:
    store.ask([Queued("Two?", "alone")])
    shown: list[str] = []
    assert Labeller(store, "ann", "preference", read=answers("1", "2", "t"), say=shown.append).run() == 3
    text = "\n".join(shown)
    pairs = [part.split("RESPONSE 2\n") for part in text.split("RESPONSE 1\n")[1:]]
    first, second = ([side.strip()[0] for side in pair] for pair in pairs[:2])
    judged: list[Any] = [record.judgement for record in stored()]
    assert (judged[0].chosen, judged[0].rejected) == (first[0], first[1])
    assert (judged[1].chosen, judged[1].rejected) == (second[1], second[0])
    assert [one.tie for one in judged] == [False, False, True]
    assert len({record.item for record in stored()}) == 3
    assert [queued.response for queued in store.waiting()] == ["alone"]  # the others were compared
    assert Labeller(store, "ann", "preference", read=answers("1"), say=lambda _: None).run() == 0
    assert Labeller(store, "ben", "preference", read=answers("1"), say=lambda _: None).run() == 1


def test_ctrl_c_keeps_what_was_saved(
    store: FeedbackStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["5"])

    def read(question: str = "") -> str:
        for line in typed:
            return line
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", read)
    feedback("label", "--annotator", "ann")
    assert "1 judgement saved in feedback.db; 2 tasks left." in capsys.readouterr().out
    assert len(stored()) == 1


def test_follow_waits_for_more(store: FeedbackStore, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) > 1:
            raise KeyboardInterrupt  # the annotator leaves
        store.ask([Queued("Later?", "d")])

    monkeypatch.setattr(label.time, "sleep", wait)
    assert Labeller(store, "ann", follow=True, read=answers("1", "2", "3", "4"), say=lambda _: None).run() == 4
    assert stored()[-1].judgement == Rating(Prompt("Later?"), "d", 4.0, annotator="ann")


def test_response_cannot_write_codes_to_the_terminal() -> None:
    assert readable("a\x1b[2Jb\tc\nd") == "a\\x1b[2Jb\tc\nd"
    assert readable(CHAT).startswith("system: Be kind.\nuser: Say")
