"""The wheel is whole: in another environment, in another folder, `ppolm train --model-name embedded` works."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_model_its_reward_model_and_the_demo(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in (
        "model/model.safetensors",
        "model/tokenizer.json",
        "reward/head.safetensors",
        "README.md",
        "demo.yaml",
    ):
        assert f"ppolm/embedded/{name}" in names
    assert wheel.stat().st_size < 10 * 2**20


def test_training_the_embedded_model_works_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
    zipfile.ZipFile(wheel).extractall(site)
    # The dependencies of this environment, but not its own ppolm: .pth files of a listed folder are not followed.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    program = f"""
import ppolm, torch
assert ppolm.__file__.startswith({str(site)!r}), ppolm.__file__
torch.set_num_threads(1)
from ppolm.cli.main import main
main()
"""
    run = ["train", "--model-name", "embedded", "--max-steps", "1", "--run-name", "run"]
    small = ["--batch-size", "4", "--minibatch-size", "4", "--max-eval-prompts", "4"]
    (tmp_path / "elsewhere").mkdir()
    answer = subprocess.run(
        [str(python), "-c", program, *run, *small],
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "Best policy:" in answer.stdout
    rows = [json.loads(line) for line in (tmp_path / "elsewhere/runs/run/metrics.jsonl").read_text().splitlines()]
    assert {"judge", "avg_reward"} <= rows[0].keys()
