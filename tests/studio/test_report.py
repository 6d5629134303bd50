"""The report of runs: one file that holds everything, and says what the folders say."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from ppolm.cli.main import run as ppolm
from ppolm.embedded import example_run_path
from ppolm.runs.report_text import content_text, setting_text, visible
from ppolm.studio.report_charts import MOST_POINTS, Series, chart_data
from ppolm.studio.report_page import report_html
from ppolm.studio.report_run import read_run
from tests.made_runs import HOSTILE, evaluation_row, make_run, training_row
from tests.studio.hostile_run import hostile_run


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, texts, and scripts apart."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.texts: list[str] = []
        self.within = ""
        self.feed(page)
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.within = tag
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.within == "script":
            self.scripts.append((self.elements[-1][1], data))
        elif self.within != "style":
            self.texts.append(data)

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self.within = ""


def page_of(*runs: Path) -> Page:
    return Page(report_html([read_run(run.name, run) for run in runs]))


def charts_of(page: Page) -> list[dict[str, Any]]:
    (data,) = (text for attributes, text in page.scripts if attributes.get("type") == "application/json")
    return json.loads(data)


def test_every_script_is_named_in_a_policy_that_allows_nothing_else() -> None:
    page = page_of(example_run_path())
    (policy,) = (a["content"] or "" for tag, a in page.elements if tag == "meta" and "http-equiv" in a)
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    run = [text for attributes, text in page.scripts if not attributes]
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in run]
    assert len(run) == 2
    assert rules["script-src"].split() == hashes
    assert rules["style-src"] == "'unsafe-inline'"
    assert set(rules) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}
    assert not [a for _, a in page.elements if {"src", "href"} & set(a)], "nothing is loaded"


def test_it_shows_verdict_figures_settings_samples_and_tokens_of_the_run() -> None:
    run = example_run_path()
    page = page_of(run)
    status = json.loads((run / "status.json").read_text())
    for text in ("Verdict: improved", *status["reasons"], "-0.4592 [-0.785, -0.133]", "learning_rate", "0.0006"):
        assert text in page.text
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    best = json.loads((run / "best" / "best.json").read_text())["step"]
    for step in (0, best):
        first = [row for row in samples if row["kind"] == "eval" and row["step"] == step][:3]
        assert all(" ".join(row["response"].split()) in page.text for row in first)
    titles = [a["title"] or "" for _, a in page.elements if "title" in a]
    table = parquet.read_table(run / "table" / "step-000030.parquet").to_pylist()
    largest = max(table, key=lambda row: row["kl"])
    (title,) = {title for title in titles if f"kl: {largest['kl']:.4g}\n" in title}
    assert f"advantage: {largest['advantage']:.4g}" in title
    assert f"(token {largest['action_id']})" in title
    assert {"step": "Step 1" in page.text, "last": "Step 30" in page.text} == {"step": True, "last": True}


def test_it_names_the_runs_that_a_run_came_from_but_no_paths(tmp_path: Path) -> None:
    run = make_run(tmp_path / "third")
    (run / "start").mkdir()
    ancestors = [
        {"path": "/home/ann/runs/second/checkpoints/step-000020", "step": 20, "digest": "a"},
        {"path": "/home/ann/runs/first", "step": None, "digest": "b"},
    ]
    (run / "start" / "start.json").write_text(json.dumps({"ancestors": ancestors}))
    page = page_of(run)
    assert "from the policy of second (step 20), before that first." in page.text
    assert "/home/ann" not in page.text
    (run / "start" / "start.json").write_text("[]")
    assert "from the policy of" not in page_of(run).text


def test_charts_hold_the_numbers_of_the_metrics() -> None:
    run = example_run_path()
    charts = {chart["title"]: chart for chart in charts_of(page_of(run))}
    assert list(charts) == [
        *("Reward", "KL to the reference", "Losses", "Entropy", "Clip fraction", "Value accuracy"),
        *("Response length", "Seconds per phase"),
    ]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    train, held, judge = charts["Reward"]["lines"]
    assert train["y"] == [row["avg_reward"] for row in rows if row["kind"] == "train"]
    assert held["y"] == [row["avg_reward"] for row in rows if row["kind"] == "eval"]
    assert judge["y"] == [row["judge"] for row in rows if row["kind"] == "eval"]
    assert judge["right"]
    assert charts["Reward"]["marks"] == [{"x": 25, "label": "best", "kind": "good"}]


def test_several_runs_share_their_charts_and_show_first_what_differs(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", settings={"lam": 0.9, "gamma": 1.0})
    two = make_run(tmp_path / "two", steps=5, settings={"lam": 0.95, "gamma": 1.0})
    page = page_of(one, two)
    lines = charts_of(page)[0]["lines"]
    assert {(line["color"], line["name"].partition(":")[0]) for line in lines} == {(0, "one"), (1, "two")}
    differing, everything = page.text.split("Those that differ")[1].split("All settings", 1)
    assert "lam" in differing
    assert "0.95" in differing
    assert "gamma" not in differing
    assert "gamma" in everything
    assert "change of the reward" in page.text


def test_alarms_are_told_with_their_reasons_and_marked_in_the_charts(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", skipped_updates=2)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(evaluation_row(4, status="collapsed", reasons=["entropy died"])) + "\n")
    page = page_of(run)
    assert "step 4: collapsed: entropy died" in page.text
    assert "2 updates were skipped" in page.text
    assert {"x": 4.0, "label": "collapsed", "kind": "bad"} in charts_of(page)[0]["marks"]


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    page = page_of(hostile_run(tmp_path / "bad"), make_run(tmp_path / HOSTILE.replace("/", "").replace("\x00", "")))
    assert {tag for tag, _ in page.elements} & {"img", "a", "iframe", "svg", "object", "embed", "form", "link"} == set()
    handlers = [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert handlers == []
    assert len([1 for attributes, _ in page.scripts if not attributes]) == 2
    seen = page.text + json.dumps(charts_of(page), ensure_ascii=False)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", seen)
    assert page.text.count("␛[31mred⟨U+202E⟩evil") > 20
    assert "xxx [... 99,600 letters left out ...] xxx" in page.text, "of a setting"
    assert max(map(len, page.texts)) < 10_000
    names = [line["name"] for chart in charts_of(page) for line in chart["lines"]]
    assert not any("<" in name for name in names), "Plotly reads tags in names"


DAMAGES = {
    "metrics.jsonl": [
        "",
        '{"kind": "eval", "step": NaN}\n',
        '{"kind": "eval", "step": 1, "avg_reward": "x", "status": []}\n',
    ],
    "status.json": ["", "[]", '{"state": "finished", "started": "2020-01-01", "ended": "never"}'],
    "config.yaml": ["", "- a", "1: 2\nnull: x\na: {b: [c, {d: 1}]}\nwhen: 2020-01-01\n"],
    "samples.jsonl": ["", '{"kind": "eval", "step": 0, "sequence": 0}\n{"kind": "eval", "step": 0, "sequ'],
    "best/best.json": ["", '{"step": "x"}'],
    "table/step-000001.parquet": ["", "PAR1", "no table at all"],
}


@pytest.mark.parametrize(("file", "text"), [(file, text) for file, texts in DAMAGES.items() for text in texts])
def test_a_damaged_run_is_reported_as_far_as_it_goes(tmp_path: Path, file: str, text: str) -> None:
    run = make_run(tmp_path / "run")
    (run / file).parent.mkdir(exist_ok=True)
    (run / file).write_text(text)
    assert "Final figures" in page_of(run).text
    assert "Final figures" in page_of(run, make_run(tmp_path / "other")).text


def test_an_empty_run_says_what_is_not_there_yet(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text("")
    page = page_of(run)
    for text in ("no evaluations on held-out prompts", "no held-out samples", "no token tables"):
        assert text in page.text
    assert charts_of(page) == []


def test_a_long_run_is_drawn_with_fewer_points_from_end_to_end() -> None:
    rows = [training_row(step) for step in range(1, 3 * MOST_POINTS)]
    (line, *_) = chart_data([Series("long", rows, [], None, [])])[0]["lines"]
    assert len(line["x"]) == MOST_POINTS
    assert (line["x"][0], line["x"][-1]) == (1, 3 * MOST_POINTS - 1)


def test_numbers_that_are_missing_are_gaps(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", kl=None, entropy=float("nan"))
    charts = {chart["title"]: chart for chart in charts_of(page_of(run))}
    assert [line["name"] for line in charts["KL to the reference"]["lines"]] == ["kl, held out"]
    assert [line["held"] for line in charts["Entropy"]["lines"]] == [True]


def test_the_command_writes_a_file_and_replaces_only_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "runs" / "my run")
    monkeypatch.chdir(tmp_path)
    assert ppolm(["report", str(run)]) == 0
    assert "Report: report-my-run.html" in capsys.readouterr().out
    assert ppolm(["report", str(run)]) == 0, "a report is replaced by a newer one"
    other = tmp_path / "notes.html"
    other.write_text("<p>mine</p>")
    for words, why in (
        (["runs/my run", "--output", "notes.html"], "is no report of ppolm"),
        (["runs/my run", "--output", "runs"], "is a folder"),
        (["runs"], "is not a run folder. Runs in it: 'runs/my run'"),
        (["nowhere"], "does not exist"),
        ([], "nothing to report on"),
    ):
        assert ppolm(["report", *words]) == 1
        assert why in capsys.readouterr().err
    assert other.read_text() == "<p>mine</p>"
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "notes.html", "report-my-run.html"}


def test_without_the_extra_it_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setattr("ppolm.studio.plotly_file.find_spec", {}.get)
    assert ppolm(["report", str(example_run_path()), "--output", str(tmp_path / "r.html")]) == 1
    assert "pip install 'ppolm[studio]'" in capsys.readouterr().err


def test_texts_are_bounded_and_hidden_characters_seen() -> None:
    assert visible("a\x1b[0m\u200fb\u2028c\ud800", 100) == "a␛[0m⟨U+200F⟩b⟨U+2028⟩c⟨U+D800⟩"
    assert visible("a\nb\tc", 100) == "a\nb\tc"
    assert visible("a\nb", 100, keep="") == "a␊b"
    assert visible("👩\u200d👧 שלום مرحبا é", 100) == "👩\u200d👧 שלום مرحبا é", "languages are left alone"
    assert len(visible("x" * 1_000_000, 100)) < 160
    assert (
        content_text([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])
        == "user: hi\nassistant: ho"
    )
    assert [setting_text(value) for value in (None, True, ["a", 1], [], 0.5)] == ["none", "true", "a, 1", "none", "0.5"]
