"""``ppolm examples`` copies what ships with ppolm, and overwrites nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppolm.cli import examples_command
from ppolm.cli.main import run as ppolm
from tests.conftest import ROOT


def test_examples_configs_and_documents_are_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("mine")
    assert ppolm(["examples", str(tmp_path / "there")]) == 0
    for name in ("configs", "docs", "examples"):
        copied = {path.name for path in (tmp_path / "there" / name).iterdir()}
        assert copied == {path.name for path in (ROOT / name).iterdir() if path.name != "__pycache__"}
    pages = {path.name for path in (tmp_path / "there" / "docs" / "commands").iterdir()}
    assert pages == {path.name for path in (ROOT / "docs" / "commands").iterdir()}
    assert f"cd {tmp_path}/there" in capsys.readouterr().out


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "examples").mkdir()
    assert ppolm(["examples", str(tmp_path)]) == 1
    assert "already holds examples" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"examples"}, "all or nothing"


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert ppolm(["examples", str(tmp_path / "file" / "below")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_a_package_without_examples_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(examples_command, "PACKAGE", tmp_path / "site" / "ppolm")
    assert ppolm(["examples", str(tmp_path / "new")]) == 1
    assert "came without README.md, configs, docs, examples" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
