"""Another user's run folder runs no code and sends nothing without consent; one's own run needs no consent."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig, SFTConfig
from ppolm.config.yaml_io import read_yaml, write_yaml
from ppolm.errors import ConfigError
from ppolm.storage.code_consent import SEAL_FILE, ask_consent, code_of, seal
from tests.conftest import PROMPTS


@pytest.fixture
def run(tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run of the present user; its reward is a file that leaves a mark when it is imported."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
        "def score(prompts, responses):\n    return [float(len(r)) for r in responses]\n"
    )
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    flags = "--batch-size 2 --minibatch-size 2 --max-new-tokens 4 --lora-r 2 --checkpoint-every 1 --eval-every 0"
    named = ["--model-name", str(model_folder), "--prompts", "prompts.txt", "--reward", "mine.py:score"]
    assert ppolm(["train", *named, *flags.split(), "--max-steps", "1", "--run-name", "run"]) == 0
    (tmp_path / "ran").unlink()
    return tmp_path / "runs/run"


def another_user(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "other-state"))
    (folder / "other-run").mkdir()
    seal(folder / "other-run", PPOConfig(reward=("a.py:f",)))  # this user has started runs before, so has a key


def change(run: Path, **values: Any) -> None:
    write_yaml(run / "config.yaml", read_yaml(run / "config.yaml") | values)


EVAL = ("eval", "runs/run", "--prompts", "prompts.txt", "--samples", "0")
RESUME = ("train", "--resume", "runs/run", "--max-steps", "2")
GENERATE = ("generate", "--run", "runs/run", "--prompt", "hello")


def test_ones_own_run_is_evaluated_and_resumed_without_another_word(run: Path) -> None:
    assert ppolm(list(EVAL)) == 0
    assert ppolm(list(RESUME)) == 0
    shutil.move(run, run.parent / "moved")
    assert ppolm([*EVAL[:1], "runs/moved", *EVAL[2:]]) == 0, "a run may be moved"


@pytest.mark.parametrize("command", [EVAL, RESUME], ids=["eval", "resume"])
def test_a_run_of_somebody_else_does_not_run_its_reward(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, command: tuple[str, ...]
) -> None:
    another_user(monkeypatch, run.parent.parent)
    assert ppolm(list(command)) == 1
    message = capsys.readouterr().err
    assert "was not started here by you" in message
    assert f"the Python code of {Path('mine.py').resolve()}:score" in message
    assert f"runs/run --reward {Path('mine.py').resolve()}:score" in message
    assert not Path("ran").exists()
    assert ppolm([*command, "--reward", "mine.py:score"]) == 0, "what the message says works"
    assert Path("ran").exists()


def test_agreeing_to_a_resume_is_remembered_and_looking_is_free(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    another_user(monkeypatch, run.parent.parent)
    assert ppolm(list(GENERATE)) == 0, "generate runs no reward"
    assert not Path("ran").exists()
    assert ppolm([*RESUME, "--reward", "mine.py:score"]) == 0
    assert ppolm(list(EVAL)) == 0


def test_code_that_was_put_into_ones_own_run_later_is_asked_for(run: Path, capsys: Any) -> None:
    shutil.copy("mine.py", "other.py")
    change(run, reward=["other.py:score"])
    assert ppolm(list(EVAL)) == 1
    assert "other.py:score" in capsys.readouterr().err
    assert not Path("ran").exists()


def test_the_file_that_was_agreed_to_runs_and_not_its_namesake_in_another_folder(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("mine.py").write_text("raise RuntimeError('another file')\n")
    assert ppolm(["eval", "../runs/run", "--prompts", "../prompts.txt"]) == 0


@pytest.mark.parametrize(
    ("change_to", "named"),
    [
        ({"judge": "http://127.0.0.1:9/score", "eval_every": 1}, "sent to http://127.0.0.1:9/score"),
        ({"judge": "os:system", "eval_every": 1}, "--judge os:system"),
        ({"reward": ["human"], "feedback_store": "postgresql://me@127.0.0.1:9/db"}, "stored at postgresql://me@"),
    ],
)
def test_addresses_and_modules_are_named_too(run: Path, capsys: Any, change_to: dict[str, Any], named: str) -> None:
    change(run, **change_to)
    assert ppolm(list(EVAL)) == 1
    assert named in capsys.readouterr().err


@pytest.mark.parametrize("command", [EVAL, GENERATE, RESUME], ids=["eval", "generate", "resume"])
def test_a_model_with_code_of_its_own_is_not_loaded_because_a_folder_says_so(
    run: Path, capsys: Any, command: tuple[str, ...]
) -> None:
    model = Path(read_yaml(run / "config.yaml")["model_name"])
    shutil.copytree(model, "theirs")
    about = json.loads(Path("theirs/config.json").read_text())
    about["auto_map"] = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    Path("theirs/config.json").write_text(json.dumps(about))
    Path("theirs/code.py").write_text("open('ran', 'w').close()")
    change(run, trust_remote_code=True, model_name="theirs", reward=["model"])
    assert ppolm(list(command)) == 1
    message = capsys.readouterr().err
    assert "the Python code of model theirs" in message
    assert "--trust-remote-code" in message
    assert not Path("ran").exists()


@pytest.mark.parametrize("home", ["missing", "a file"])
def test_without_a_home_to_keep_a_key_in_code_is_asked_for_and_the_flag_works(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any, home: str
) -> None:
    if home == "a file":
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "prompts.txt"))
    else:
        monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    assert ppolm(list(EVAL)) == 1
    assert f"--reward {Path('mine.py').resolve()}:score" in capsys.readouterr().err
    assert ppolm([*EVAL, "--reward=mine.py:score"]) == 0
    seal(run, PPOConfig(reward=("mine.py:score",)))  # does nothing and raises nothing


@pytest.mark.parametrize(
    "noted", ["", "[]", "{}", '{"code": 7, "seal": 7}', "[" * 5000, '{"code": ["x"], "seal": "x"}']
)
def test_a_seal_that_is_none_agrees_to_nothing(run: Path, noted: str) -> None:
    (run / SEAL_FILE).write_text(noted)
    with pytest.raises(ConfigError, match="was not started here by you"):
        ask_consent(run, PPOConfig(reward=("mine.py:score",)), [], "eval")


@pytest.mark.parametrize(("answer", "goes_on"), [("y", True), ("", False), ("n", False)])
def test_at_a_terminal_the_user_is_asked_and_no_is_the_default(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, answer: str, goes_on: bool
) -> None:
    another_user(monkeypatch, run.parent.parent)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda: answer)
    if goes_on:
        ask_consent(run, PPOConfig(reward=("mine.py:score",)), [], "eval")
    else:
        with pytest.raises(ConfigError):
            ask_consent(run, PPOConfig(reward=("mine.py:score",)), [], "eval")
    assert "mine.py:score" in capsys.readouterr().err


def test_the_key_is_for_its_user_only_and_made_once(run: Path) -> None:
    path = Path(os.environ["XDG_STATE_HOME"]) / "ppolm" / "seal.key"
    assert path.stat().st_mode & 0o077 == 0
    before = path.read_bytes()
    seal(run, PPOConfig(reward=("x.py:f",)))
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["seal.key"]


def test_what_is_ours_needs_no_consent() -> None:
    assert code_of(PPOConfig(reward=("model", "gold", "human"), judge="gold")) == []
    assert code_of(PPOConfig(reward=("passed_from_python",))) == []
    assert len(code_of(SFTConfig(trust_remote_code=True, model_name="x"))) == 1


def test_an_interrupted_sft_of_somebody_else_is_asked_for_too(tmp_path: Path, capsys: Any, model_folder: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    config = SFTConfig(model_name=str(model_folder), data=("embedded",), output=str(folder), trust_remote_code=True)
    config.to_yaml(folder / "sft-settings.yaml")
    assert ppolm(["sft", "--resume", str(folder)]) == 1
    assert f"ppolm sft --resume {folder} --trust-remote-code" in capsys.readouterr().err
