"""``ppolm runs``: quick, whatever is in the folders, and readable wherever it is printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli import runs_command
from ppolm.cli.main import run as ppolm
from ppolm.cli.text_table import Column, fit, sparkline, table_lines, width_of
from ppolm.embedded import example_run_path
from ppolm.runs import metrics_tail
from ppolm.runs.metrics_tail import parse_row
from ppolm.runs.run_status import RunStatus
from tests.made_runs import HOSTILE, make_run

LOADED = """
import sys
from ppolm.cli.main import run
status = run(sys.argv[1:])
print("loaded:", [name for name in ("torch", "transformers", "sqlalchemy", "pyarrow") if name in sys.modules], status)
"""


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert ppolm(["runs", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_list_shows_state_steps_reward_kl_best_verdict_and_age(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "one", steps=8)
    make_run(tmp_path / "two", steps=3, status=RunStatus("failed", 9, why="out of cheese"))
    head, *rows = printed(capsys, str(tmp_path), "--sort", "name")
    assert head.split() == ["run", "state", "step", "reward", "kl", "best", "verdict", "age"]
    assert rows[0].split() == ["one", "finished", "8/8", "0.8", "▁▂▃▄▅▆▇█", "0.4", "8", "improved", "0", "s"]
    assert "stopped" in rows[1]
    assert "3/9" in rows[1]
    assert "out of cheese" in rows[1]


@pytest.mark.parametrize(
    ("sort", "order"),
    [("name", "abc"), ("reward", "bca"), ("kl", "acb"), ("step", "bca"), ("state", "cab"), ("age", "cba")],
)
def test_runs_can_be_sorted(tmp_path: Path, capsys: pytest.CaptureFixture[str], sort: str, order: str) -> None:
    for age, (name, steps) in enumerate((("a", 2), ("b", 9), ("c", 4))):
        run = make_run(tmp_path / name, steps, status=RunStatus("interrupted", 9) if name == "c" else None)
        os.utime(run / "metrics.jsonl", (time.time() - 100 + age,) * 2)
    assert "".join(row[0] for row in printed(capsys, str(tmp_path), "--sort", sort)[1:]) == order


def test_runs_can_be_filtered_and_an_empty_list_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "runs" / "Alpha")
    make_run(tmp_path / "runs" / "beta", status=RunStatus("collapsed", 3, verdict="collapsed"))
    assert len(printed(capsys, str(tmp_path), "--filter", "ALPH")) == 2
    assert printed(capsys, str(tmp_path), "--filter", "collapsed")[1].startswith("beta")
    assert "None of the 2 runs" in printed(capsys, str(tmp_path), "--filter", "gamma")[0]
    monkeypatch.chdir(tmp_path / "runs" / "beta")
    assert "ppolm demo" in printed(capsys)[0]
    assert ppolm(["runs", "nowhere"]) == 1
    assert "There is no folder 'nowhere'" in capsys.readouterr().err


def test_json_holds_what_the_table_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "one", steps=4, kl=float("nan"))
    (row,) = json.loads("\n".join(printed(capsys, str(tmp_path), "--json")))
    assert (row["name"], row["path"], row["step"], row["kl"]) == ("one", str(tmp_path / "one"), 4, None)
    assert row["sparkline"] == [0.1, 0.2, 0.3, 0.4]


def test_two_runs_are_compared_by_settings_and_figures_with_intervals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = make_run(tmp_path / "one", steps=5), make_run(tmp_path / "two", settings={"learning_rate": 3e-4})
    text = "\n".join(printed(capsys, str(one), str(two)))
    settings, figures = text.split("\n\n")
    assert "learning_rate" in settings
    assert "0.0003" in settings
    assert "model_name" not in settings, "only what differs"
    assert "run_name" not in settings, "it always differs"
    (reward,) = (line for line in figures.splitlines() if line.startswith("reward  "))
    assert reward.split() == ["reward", "0.5", "[0.317,", "0.683]", "0.3", "[0.117,", "0.483]"]
    assert "change of the reward" in figures
    found = json.loads("\n".join(printed(capsys, str(one), str(two), "--json")))
    assert found["settings"] == {"learning_rate": {"one": 1e-4, "two": 3e-4}}
    assert found["gains"]["one"]["reward"]["mean"] == 0.5
    assert found["runs"]["two"]["verdict"] == "improved"


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = make_run(tmp_path / "a" / "run"), make_run(tmp_path / "b" / "run")
    assert {row.split()[0] for row in printed(capsys, str(tmp_path))[1:]} == {str(one), str(two)}
    assert list(json.loads("\n".join(printed(capsys, str(one), str(two), "--json")))["runs"]) == [str(one), str(two)]


DAMAGES: dict[str, Any] = {
    "metrics.jsonl": [
        "",
        "\x00" * 100,
        "[]\n{}\n5\n",
        '{"kind": "train", "step": "x"}\n',
        '{"kind": "eval", "step": 1}',
    ],
    "metrics.jsonl ": [
        '{"kind": "train", "step": NaN}\n',
        '{"kind": "eval", "step": -Infinity}\n',
        f'{{"kind": "train", "step": {10**400}}}\n',
        f'{{"kind": "train", "step": 1, "avg_reward": {10**400}, "seconds/generate": {10**400}}}\n',
    ],
    "status.json": ["", "[]", '{"state": 5}', '{"state": "finished", "total_steps": "many", "reasons": {}}'],
    "config.yaml": ["", "- a\n- b\n", "a: *b\n", "\x00", "a" * 300_000],
    "best/best.json": ["", "5", '{"step": "x"}', '{"step": 1e400}'],
}


@pytest.mark.parametrize(("file", "text"), [(file, text) for file, texts in DAMAGES.items() for text in texts])
def test_damaged_folders_are_listed_and_compared_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, text: str
) -> None:
    bad, good = make_run(tmp_path / "bad"), make_run(tmp_path / "good")
    (bad / file.strip()).write_text(text)
    assert len(printed(capsys, str(tmp_path))) == 3
    assert printed(capsys, str(bad), str(good))
    json.loads("\n".join(printed(capsys, str(bad), str(good), "--json")))


def test_hostile_names_and_texts_cannot_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = HOSTILE.replace("/", "").replace("\x00", "")
    hostile = RunStatus("failed", 3, why=HOSTILE, verdict=HOSTILE)
    bad = make_run(tmp_path / name, settings={"reward": HOSTILE, HOSTILE: 1}, status=hostile)
    good = make_run(tmp_path / "good")
    latin = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    make_run(latin)
    for lines in (printed(capsys, str(tmp_path)), printed(capsys, str(bad), str(good))):
        assert all(line.isprintable() for line in lines)
        assert any("\\x1b[31m" in line for line in lines)
    assert any("caf\\udce9" in line for line in printed(capsys, str(tmp_path)))


def test_nothing_large_is_loaded(tmp_path: Path) -> None:
    one, two = make_run(tmp_path / "one"), make_run(tmp_path / "two")
    for words in ([str(tmp_path)], [str(one), str(two)]):
        command = [sys.executable, "-c", LOADED, "runs", *words]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        assert answer.stdout.splitlines()[-1] == "loaded: [] 0", answer.stderr


def test_a_pipe_that_takes_only_ascii_gets_ascii(tmp_path: Path) -> None:
    make_run(tmp_path / "größe")
    command = [sys.executable, "-m", "ppolm", "runs", str(tmp_path)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    answer = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "gr\\xf6\\xdfe" in answer.stdout.decode("ascii")


def test_a_hundred_runs_of_two_thousand_steps_are_listed_by_a_small_part_of_their_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []

    def counted(line: bytes) -> metrics_tail.Row | None:
        parsed.append(line)
        return parse_row(line)

    monkeypatch.setattr(metrics_tail, "parse_row", counted)
    first = make_run(tmp_path / "run-000", steps=2000, padding="x" * 300)
    for number in range(1, 100):
        run = make_run(tmp_path / f"run-{number:03d}", steps=1)
        (run / "metrics.jsonl").write_bytes((first / "metrics.jsonl").read_bytes())
    assert len(printed(capsys, str(tmp_path))) == 101
    assert 100 < len(parsed) < 100 * 2000 / 5


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100])
def test_no_line_is_wider_than_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    make_run(tmp_path / ("long-name-" * 9))
    make_run(tmp_path / "日本語の名前のとても長い実行フォルダ")
    monkeypatch.setattr(runs_command, "terminal_width", lambda: width)
    lines = printed(capsys, str(tmp_path))
    assert max(map(width_of, lines)) <= width
    assert all(line[:5].strip() for line in lines), "the name stays"


def test_the_example_run_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "improved" in printed(capsys, str(example_run_path()))[1]


def test_cells_are_cut_by_what_a_terminal_shows() -> None:
    assert fit("abc", 5) == "abc  "
    assert fit("abc", 5, right=True) == "  abc"
    assert fit("abcdef", 4) == "abc…"
    assert fit("日本語", 4) == "日… "
    assert width_of("e\u0301") == 1
    wide = [Column("a", ["x" * 30], least=5), Column("b", ["y" * 10], leaves=1)]
    assert table_lines(wide, 20) == ["a         b", "xxxxxxx…  yyyyyyyyyy"]
    assert table_lines(wide, 12) == ["a", "xxxxxxxxxxx…"]


def test_a_sparkline_has_gaps_where_there_is_nothing() -> None:
    assert sparkline([0.0, None, 1.0]) == "▁ █"
    assert sparkline([]) == sparkline([None]) == ""
    assert sparkline([2.0, 2.0]) == "▅▅"
    assert len(sparkline([float(i) for i in range(100)])) == 12
