"""The wheel is complete: installed into another environment, every training works from an empty folder."""

from __future__ import annotations

import email
import json
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from email.message import Message
from pathlib import Path

import pytest

from ppolm.embedded import EXAMPLE
from scripts.index_readme import index_readme
from tests.conftest import ROOT

Run = Callable[..., str]
STEP = ["--max-steps", "1", "--batch-size", "4", "--minibatch-size", "4", "--max-eval-prompts", "4", "--log-to"]
ROWS = ["--batch-size", "64", "--trainable-layers", "1"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_string(archive.read(name).decode())


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with only the wheel installed by pip; dependencies come from the current environment."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, symlinks=True, with_pip=True)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
    # This does not bring in the current environment's ppolm: .pth files are not followed recursively.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    where = subprocess.run([python, "-c", "import ppolm; print(ppolm.__file__)"], capture_output=True, text=True)
    assert where.stdout.startswith(str(site)), where.stderr
    return folder


@pytest.fixture
def ppolm(environment: Path, tmp_path: Path) -> Run:
    """Runs the installed command in an empty folder and returns its output."""

    def run(*words: str, cwd: Path = tmp_path) -> str:
        command = [str(environment / "bin" / "ppolm"), *words]
        answer = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    return run


def test_the_wheel_holds_the_model_its_reward_model_the_demo_and_the_examples(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    model = ("model/model.safetensors", "model/tokenizer.json", "reward/head.safetensors", "README.md", "demo.yaml")
    assert {f"ppolm/embedded/{name}" for name in model} <= names
    example = [file.relative_to(EXAMPLE) for file in EXAMPLE.rglob("*") if file.is_file()]
    assert {f"ppolm/embedded/example/{file.as_posix()}" for file in example} <= names
    folders = [ROOT / name for name in ("configs", "docs", "examples")]
    files = [path.relative_to(ROOT) for folder in folders for path in folder.rglob("*.*") if path.is_file()]
    files = [file for file in files if file.suffix != ".pyc"]
    assert {f"ppolm/shipped/{file}" for file in files} <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert wheel.stat().st_size < 10 * 2**20


def test_dependencies_have_floors_and_no_ceilings(metadata: Message) -> None:
    """Exact versions are for `make setup`; a package that requires them cannot be installed beside others."""
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert len(needed) > 10
    assert [line for line in needed if not re.fullmatch(r"[\w.-]+>=[\d.]+", line)] == []


def test_no_link_on_the_index_page_leads_nowhere(metadata: Message) -> None:
    page = str(metadata.get_payload())
    assert metadata["Description-Content-Type"] == "text/markdown"
    links = re.findall(r"\]\(([^)]*)\)", page)
    assert [link for link in links if not link.startswith("https://")] == []
    assert "`ppolm examples DIR`" in page
    assert "`docs/embedded-world.md`" in page


def test_the_picture_is_on_the_index_page_as_text(metadata: Message) -> None:
    page = str(metadata.get_payload())
    assert "pipeline.png" not in page
    assert "adjust_rewards_with_kl()" in page


def test_links_become_names() -> None:
    text = "# T\n\nA [doc](docs/a.md), [docs/a.md](docs/a.md), [b.py](src/ppolm/b.py), [up](#t), [web](https://x.y).\n"
    page = index_readme(text + "\n![A picture](docs/p.png)\n")
    assert page.endswith(
        "A doc (`docs/a.md`), `docs/a.md`, `ppolm/b.py`, up, [web](https://x.y).\n\n(A picture: `docs/p.png`)\n"
    )


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build"]
    subprocess.run([*build, "-t", "sdist", "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    subprocess.run(["tar", "xf", archive.name], cwd=tmp_path, check=True)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    subprocess.run([*build, "-t", "wheel", "-d", str(tmp_path)], cwd=folder, check=True, capture_output=True)
    (again,) = tmp_path.glob("*.whl")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_the_demo_runs_in_an_empty_folder(ppolm: Run) -> None:
    answer = json.loads(ppolm("demo", "--steps", "1", "--posts", "2", "--json"))
    assert answer["steps"] == 1


def test_every_training_works_in_an_empty_folder(ppolm: Run, tmp_path: Path) -> None:
    embedded = ["--model-name", "embedded", "--data", "embedded:validation"]
    ppolm("sft", *embedded, "--output", "runs/sft", *ROWS)
    ppolm("reward", *embedded, "--output", "runs/reward", *ROWS)
    trained = ["--sft-adapter", "runs/sft", "--reward-model", "runs/reward"]
    assert "Best policy:" in ppolm("train", "--model-name", "embedded", *trained, "--run-name", "run", *STEP)
    rows = [json.loads(line) for line in (tmp_path / "runs/run/metrics.jsonl").read_text().splitlines()]
    assert {"judge", "avg_reward"} <= rows[0].keys()


def test_the_copied_examples_run_as_the_command_says(ppolm: Run, tmp_path: Path) -> None:
    told = ppolm("examples", "x")
    commands = re.findall(r"^  ppolm (.*)$", told, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        words = command.split()
        small = {"train": STEP, "reward": ROWS}.get(words[0], [])
        ppolm(*words, *small, cwd=tmp_path / "x")
    assert "SUBREDDIT" in (tmp_path / "x" / "examples" / "prompts.jsonl").read_text()
