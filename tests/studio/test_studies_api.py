"""Studies and people by requests: nothing of them becomes a path or a flag, and a broken store harms no run page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.data.examples import Preference, Rating
from ppolm.data.prompts import Prompt
from ppolm.feedback.record import Record, Source
from ppolm.runs.run_status import RunStatus
from ppolm.storage.claim import Claim
from ppolm.studio.answers import BadRequestError, NotFoundError
from ppolm.studio.reward_gaps import reward_gaps
from ppolm.studio.study_request import study_arguments
from ppolm.studio.visitors import Keys
from ppolm.studio.workspace import Workspace
from tests.run_folders import make_run
from tests.studio.judging import judge_all, live_wait, pair_study
from tests.studio.serving import Served, serving

ANN = "ann-has-a-long-key-of-her-own"
PATHS = ["..", "../mine", "%2e%2e", "mine/../mine", "/etc/passwd", "mine\0", "~", "a" * 3000, "\u202e", "--store=x"]
FORM = {
    "name": "New",
    "way": "policies",
    "ask": "preference",
    "count": 5,
    "wanted": 2,
    "repeats": 0.1,
    "first": {"run": "mine", "policy": "best"},
    "second": {"run": "mine", "policy": "reference"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = make_run(tmp_path / "runs" / "mine")
    for name in ("best", "checkpoints/step-000010", "table"):
        (run / name).mkdir(parents=True, exist_ok=True)
    (run / "table" / "step-000003.parquet").write_bytes(b"not a table")
    return tmp_path


@pytest.fixture
def served(folder: Path) -> Iterator[Served]:
    with serving(folder / "runs", store=folder / "feedback.db", keys=Keys(annotators={ANN: "ann"})) as running:
        yield running


def test_a_form_becomes_the_arguments_of_the_command(folder: Path) -> None:
    workspace, run = Workspace([folder / "runs"]), str(folder / "runs" / "mine")
    assert study_arguments(workspace, {**FORM, "guidelines": "--store=evil\nBe fair."}, "s.db") == [
        *("feedback", "study", "New", "--store=s.db", "--ask=preference", "--policies", run, "reference"),
        *("--count=5", "--judgements-per-item=2", "--guidelines=--store=evil\nBe fair.", "--repeats=0.1"),
    ]
    step = {"name": "S", "way": "step", "ask": "score", "first": {"run": "mine"}, "step": 3, "axes": ["true", "short"]}
    assert study_arguments(workspace, step, "s.db") == [
        *("feedback", "study", "S", "--store=s.db", "--ask=score", f"--step-of={run}", "--step=3"),
        *("--judgements-per-item=1", "--axes", "true", "short"),
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "-x"},
        {"name": "--file=/etc/passwd"},
        {"name": "a\nb"},
        {"name": 5},
        {"way": "file"},
        {"ask": "all"},
        {"first": None},
        {"first": {"run": "mine", "policy": "../../x"}},
        {"first": {"run": "mine", "policy": "step-000011"}},
        {"first": {"run": "mine", "policy": ["best"]}},
        {"count": "5"},
        {"count": 0},
        {"wanted": 5000},
        {"repeats": 0.9},
        {"way": "step", "step": 4},
        {"way": "step", "step": None},
        {"way": "policy", "samples": 1},
        {"ask": "score", "axes": ["--store=x"]},
        {"ask": "score", "axes": "true"},
        {"guidelines": "x" * 20_001},
        {"guidelines": "a\x1bb"},
    ],
)
def test_a_form_that_makes_no_sense_starts_nothing(served: Served, change: dict[str, Any]) -> None:
    client = served.visitor()
    answer = client.post("/api/studies/make", {**FORM, **change})
    assert answer.status == 400, answer.body
    assert client.get("/api/studies").json["jobs"] == []


@pytest.mark.parametrize("name", PATHS)
def test_no_path_of_a_request_reaches_the_file_system(served: Served, name: str) -> None:
    client = served.visitor()
    pair_study(served.studio.store)
    assert client.get("/api/studies/choices", run=name).status == 404
    body = {**FORM, "first": {"run": name, "policy": "best"}}
    assert client.post("/api/studies/make", body).status == 404
    for path in ("/api/studies/conflicts", "/api/studies/export", "/api/people"):
        assert client.get(path, study=name).status == 404, path
    assert client.post("/api/studies/second-look", {"study": name, "wanted": True}).status == 404
    assert client.post("/api/studies/cancel", {"job": name}).status == 404
    with pytest.raises((NotFoundError, BadRequestError)):
        study_arguments(served.studio.workspace, body, "s.db")


def test_annotators_reach_neither_studies_nor_people(served: Served) -> None:
    client = served.visitor(ANN)
    for path in ("/studies", "/people", "/api/studies", "/api/studies/export", "/api/studies/conflicts", "/api/people"):
        assert client.get(path).status == 403, path
    assert client.post("/api/studies/make", FORM).status == 403


def test_a_process_that_fails_says_why(served: Served) -> None:
    client = served.visitor()
    assert client.post("/api/studies/make", FORM).json["state"] == "running"
    assert "Another study is being made" in client.post("/api/studies/make", FORM).json["error"]
    wait_for(lambda: client.get("/api/studies").json["jobs"][0]["state"] == "failed", 60)
    assert client.get("/api/studies").json["jobs"][0]["lines"]


def test_an_export_is_what_the_command_exports(served: Served, folder: Path) -> None:
    study = pair_study(folder / "feedback.db", 6, wanted=2)
    client = served.visitor()
    assert client.get("/api/studies/export").status == 404, "nothing is judged yet"
    judge_all(folder / "feedback.db", "ann")
    judge_all(folder / "feedback.db", "ben", longer="second")
    for rule in ("all", "majority"):
        answer = client.get("/api/studies/export", study=study.id, rule=rule)
        assert 'filename="Pairs.jsonl"' in answer.headers["content-disposition"]
        file = folder / f"{rule}.jsonl"
        assert ppolm(["feedback", "export", str(file), "--store", str(folder / "feedback.db"), "--rule", rule]) == 0
        assert answer.body == file.read_bytes()


def test_a_run_that_waits_says_so_and_a_broken_store_is_no_error(folder: Path) -> None:
    run, place = folder / "runs" / "mine", folder / "feedback.db"
    make_run(folder / "runs" / "live", status=RunStatus("running", 30))
    with Claim(folder / "runs" / "live", "wait"), serving(folder / "runs", store=place) as served:
        client = served.visitor()

        def state() -> Any:
            return {one["id"]: one["state"] for one in client.get("/api/runs").json["runs"]}["live"]

        assert state() == "running"
        live_wait(place, run="live")
        wait_for(lambda: state() == "waiting")
        about = client.get("/api/run/live").json
        assert (about["state"], about["waits"]["left"], about["waits"]["step"]) == ("waiting", 4, 3)
        judge_all(place, "ann")
        wait_for(lambda: state() == "running")
    place.write_bytes(b"this is no database" * 1000)
    with serving(folder / "runs", store=place) as served:
        client = served.visitor()
        assert client.get("/api/runs").status == 200
        assert client.get(f"/api/run/{run.name}").status == 200
        assert client.get("/api/studies").status == 400
        assert client.get("/api/judge/about").status == 400


def wait_for(holds: Callable[[], bool], seconds: float = 10) -> None:
    """Let the server work until something holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_the_reward_is_contradicted_most_where_its_scores_say_the_opposite() -> None:
    scores = {0: 2.0, 1: 0.0, 2: 1.0, 3: -1.0}

    def source(number: int) -> Source:
        return Source("r", 1, number, None, "training")

    def pair(chosen: int, rejected: int) -> Record:
        judged = Preference(Prompt("?"), f"a{chosen}", f"a{rejected}", annotator="x")
        return Record(judged, id=f"{chosen}{rejected}", source=source(chosen), rejected_source=source(rejected))

    gaps = reward_gaps([pair(0, 1), pair(1, 0), pair(3, 0), pair(2, 9)], lambda one: scores.get(one.sequence or 0))
    assert [gap.record.id for gap in gaps] == ["30", "10", "01"]
    assert gaps[0].gap > gaps[1].gap > 0 > gaps[2].gap
    few = [Record(Rating(Prompt("?"), "a", 1.0), source=source(0))]
    assert reward_gaps(few, lambda _: 1.0) == [], "too few scores for a scale"
