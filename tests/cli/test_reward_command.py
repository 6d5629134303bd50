"""``ppolm reward`` and ``ppolm readiness``, from a file of judgements to a reward model with its report."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.readiness.markdown import CHOSE_WEIGHTS
from ppolm.storage.atomic import verify_folder
from tests.conftest import SHARED_DATA, needs_shared_data

QUICK = shlex.split("--lora-r 4 --lora-dropout 0 --batch-size 8 --learning-rate 1e-2 --num-epochs 2 --device cpu")
KIND = [{"prompt": f"Be kind {i}:", "chosen": f" kind {i}", "rejected": f" rude {i}"} for i in range(60)]


def write(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.mark.pictures
def test_a_reward_model_comes_with_its_report(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, test = write(tmp_path / "train.jsonl", KIND[:40]), write(tmp_path / "test.jsonl", KIND[40:])  # type: ignore[arg-type]
    output = tmp_path / "reward"
    flags = ["--model-name", str(model_folder), "--data", train, "--test-data", test, "--output", str(output)]
    assert ppolm(["reward", *flags, *QUICK]) == 0
    printed = capsys.readouterr().out
    report = json.loads((output / "readiness.json").read_text())
    assert report["rows"]["pairs"] == 20
    assert report["accuracy"]["mean"] == 1.0
    assert f"verdict: {report['verdict']}" in printed
    assert "20 held-out pairs" in printed
    assert report["chose_weights"] is False
    assert CHOSE_WEIGHTS not in printed
    assert str(output / "readiness.md") in printed
    assert (output / "readiness.png").stat().st_size > 10_000
    assert f"**Verdict: {report['verdict']}**" in (output / "readiness.md").read_text(encoding="utf-8")
    verify_folder(output)

    assert ppolm(["readiness", str(output), "--data", test, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["accuracy"] == report["accuracy"]
    assert again["edits"].keys() == report["edits"].keys()
    assert ppolm(["readiness", str(output), "--data", test, "--output", str(tmp_path / "report")]) == 0
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        "readiness.json",
        "readiness.md",
        "readiness.png",
    }
    verify_folder(output)  # measuring again does not change the model's own folder


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["absent", "--data", "DATA"], "Adapter folder absent has no adapter_config.json"),
        (["embedded"], "There is nothing to measure on"),
        (["embedded", "--data", "DATA", "--output", "."], ". already exists and is not an empty folder"),
        (["embedded", "--data", "DATA", "--mistakes", "-1"], "mistakes is -1, expected 0 or more"),
        (["embedded", "--data", "DATA", "--device", "cuda:99"], "device"),
    ],
)
def test_readiness_says_what_is_wrong(
    flags: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    data = write(tmp_path / "rows.jsonl", KIND[:2])  # type: ignore[arg-type]
    assert ppolm(["readiness", *(data if flag == "DATA" else flag for flag in flags)]) == 1
    assert complaint in capsys.readouterr().err


def test_preferences_scores_and_thumbs_of_several_files_train_one_model(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def single(i: int) -> dict[str, object]:
        return {"prompt": f"Rate {i}:", "completion": f" {'kind' if i % 2 else 'rude'} {i}"}

    scores = [single(i) | {"score": 8 * (i % 2)} for i in range(30)]
    thumbs = [single(i) | {"label": bool(i % 2)} for i in range(30, 60)]
    bad: list[dict[str, object]] = [{"prompt": "no judgement"}]
    sources = [
        write(tmp_path / "pairs.jsonl", KIND[:30]),  # type: ignore[arg-type]
        write(tmp_path / "scores.jsonl", scores + bad),
        write(tmp_path / "thumbs.jsonl", thumbs),
    ]
    flags = ["--model-name", str(model_folder), "--data", *sources, "--output", str(tmp_path / "reward"), *QUICK]
    assert ppolm(["reward", *flags]) == 1
    error = capsys.readouterr().err
    assert "scores.jsonl, line 31, holds no judgement" in error
    assert "skip_bad_rows" in error
    assert ppolm(["reward", *flags, "--skip-bad-rows", "--eval-fraction", "0.3"]) == 0  # the folder was left empty
    rows = json.loads((tmp_path / "reward" / "readiness.json").read_text())["rows"]
    assert min(rows["pairs"], rows["scores"], rows["thumbs"]) > 0
    assert CHOSE_WEIGHTS in capsys.readouterr().out
    assert CHOSE_WEIGHTS in (tmp_path / "reward" / "readiness.md").read_text(encoding="utf-8")


@needs_shared_data
def test_real_comparisons_train_a_real_pretrained_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """260K parameters learn little from 48 comparisons; the point is that every step works on real text."""
    place = SHARED_DATA / "tldr"
    for name, count in (("train", 48), ("valid", 24)):
        with gzip.open(place / f"comparisons.{name}.jsonl.gz", "rt") as file:
            (tmp_path / f"{name}.jsonl").write_text("".join(line for line, _ in zip(file, range(count), strict=False)))
    output = tmp_path / "reward"
    flags = ["--model-name", str(SHARED_DATA / "stories260K"), "--output", str(output), "--device", "cpu"]
    data = ["--data", str(tmp_path / "train.jsonl"), "--test-data", str(tmp_path / "valid.jsonl")]
    assert ppolm(["reward", *flags, *data]) == 1
    assert "Set long_rows to cut" in capsys.readouterr().err  # the posts are longer than this model's context
    assert ppolm(["reward", *flags, *data, "--long-rows", "cut", "--batch-size", "16"]) == 0
    printed = capsys.readouterr().out
    assert "verdict: not ready" in printed
    assert "of 5 different prompts" in printed
    assert "length baseline" in (output / "readiness.md").read_text(encoding="utf-8")
    assert "verdict: " in printed
    report = json.loads((output / "readiness.json").read_text())
    assert report["rows"]["pairs"] == 24
