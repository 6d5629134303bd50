"""A folder has one writer: a second one is told who holds it, and a killed one leaves no claim behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig, SFTConfig
from ppolm.errors import ConfigError, RunFolderError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ranks import Ranks
from ppolm.runs.run_start import claim_run
from ppolm.storage.atomic import verify_folder, write_folder
from ppolm.storage.claim import LOCK, Claim, claim_numbered, refuse_claimed
from ppolm.storage.output_folder import SETTINGS, OutputFolder
from tests.conftest import PROMPTS, spread

MakeConfig = Callable[..., PPOConfig]


def test_a_second_claim_says_who_holds_the_folder_and_the_end_of_the_first_frees_it(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    with Claim(folder, "Wait."):
        for refused in (Claim, refuse_claimed):
            with pytest.raises(RunFolderError, match=rf"one is being written to by process {os.getpid()} on .* Wait\."):
                refused(folder, "Wait.")
        (folder / "result").touch()
    refuse_claimed(folder, "Wait.")
    assert [path.name for path in folder.iterdir()] == ["result"]


def test_a_claim_for_nothing_leaves_no_folder(tmp_path: Path) -> None:
    Claim(tmp_path / "runs" / "one", "").release()
    assert not list(tmp_path.iterdir())


def test_a_killed_owner_leaves_no_claim_even_if_its_own_children_live_on(tmp_path: Path) -> None:
    program = f"""
import os, signal, time
from pathlib import Path
from ppolm.storage.claim import Claim
claim = Claim(Path({str(tmp_path / "run")!r}), "Wait.")
if os.fork() == 0:  # the copy says when it runs: before that it cannot have let go of anything
    print("held", flush=True)
    os.close(1)
time.sleep(60)
"""
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"held\n"
    with pytest.raises(RunFolderError, match=f"process {owner.pid}"):
        Claim(tmp_path / "run", "Wait.")
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    try:
        with Claim(tmp_path / "run", "Wait."):
            assert (tmp_path / "run" / LOCK).exists()
    finally:
        os.killpg(owner.pid, signal.SIGKILL)  # the child that is still alive
        owner.stdout.close()


def test_runs_without_a_name_that_start_in_the_same_second_get_folders_of_their_own(tmp_path: Path) -> None:
    claims = [claim_numbered(tmp_path / "model-20260101-120000", "") for _ in range(3)]
    assert [claim.folder.name[21:] for claim in claims] == ["", "-2", "-3"]
    for claim in claims:
        claim.release()


@pytest.mark.parametrize("moment", ["stat", "unlink", "close"])
def test_a_signal_while_a_claim_is_given_up_leaves_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before or after the call that it comes in: what is done is not done again, and what is not done is."""
    for after in (False, True):
        folder = tmp_path / f"{moment}-{after}"
        claim, real, heard = Claim(folder, "wait"), getattr(os, moment), list[int]()

        def signalled(*given: Any, real: Any = real, after: bool = after, heard: list[int] = heard, **more: Any) -> Any:
            found = real(*given, **more) if after or heard else None
            if not heard:
                heard.append(1)
                raise KeyboardInterrupt
            return found

        with monkeypatch.context() as patched:
            patched.setattr(os, moment, signalled)
            with pytest.raises(KeyboardInterrupt):
                claim.release()
        assert heard
        assert not folder.exists()
        Claim(folder, "wait").release()


def test_the_lock_of_a_program_that_was_killed_does_not_damage_its_result(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "weights").write_text("1")

    write_folder(tmp_path / "result", fill)
    (tmp_path / "result" / LOCK).write_text("killed")
    verify_folder(tmp_path / "result")


def test_a_folder_that_was_removed_or_replaced_is_no_longer_ours(tmp_path: Path) -> None:
    claim = Claim(tmp_path / "run", "")
    claim.check()
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(RunFolderError, match="was removed, moved or replaced"):
        claim.check()
    with Claim(tmp_path / "run", ""):
        claim.release()  # must not release another owner's claim
        assert (tmp_path / "run" / LOCK).exists()


@pytest.mark.parametrize("resume", [False, True])
def test_training_in_a_folder_that_is_in_use_is_refused_from_python_and_from_the_command(
    make_config: MakeConfig, capsys: Any, resume: bool
) -> None:
    config = make_config(max_steps=1, eval_every=0)
    run = Path(config.output_dir) / "run"
    if resume:
        PPOTrainer(config, reward=spread).train(PROMPTS)
    before = sorted(path.name for path in run.rglob("*"))
    with Claim(run, ""):
        with pytest.raises(RunFolderError, match="is being written to by process"):
            PPOTrainer(config, reward=spread).train(PROMPTS, resume=run if resume else None)
        place = ["--resume", str(run)] if resume else ["--output-dir", str(run.parent), "--run-name", "run"]
        assert ppolm(["train", "--prompts", "none.txt", *place]) == 1
        assert "is being written to by process" in capsys.readouterr().err
    assert sorted(path.name for path in run.rglob("*")) == before


def test_a_run_that_has_saved_nothing_may_be_started_again_and_the_messages_agree(
    make_config: MakeConfig, tmp_path: Path, capsys: Any
) -> None:
    config = make_config(max_steps=1, eval_every=0)
    run = Path(config.output_dir) / "run"
    run.mkdir(parents=True)
    config.to_yaml(run / "config.yaml")
    for name in ("capabilities.json", LOCK, ".config.yaml.123-0123abcd.tmp"):
        (run / name).touch()
    (run / "checkpoints" / ".step-000000.123-0123abcd.tmp").mkdir(parents=True)
    assert ppolm(["train", "--prompts", "none.txt", "--resume", str(run)]) == 1
    assert f"Start it again: ppolm train --config {run}/config.yaml" in capsys.readouterr().err
    PPOTrainer(config, reward=spread).train(PROMPTS)
    assert not [path.name for path in run.rglob(".*")], "what the killed one left is gone"
    with pytest.raises(RunFolderError, match="already holds a run"):
        PPOTrainer(config, reward=spread).train(PROMPTS)
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "notes" / "mine.txt").touch()
    with pytest.raises(RunFolderError, match="is not a run folder"):
        PPOTrainer(make_config(run_name="notes"), reward=spread).train(PROMPTS)


def test_an_output_folder_that_has_saved_nothing_may_be_started_again(tmp_path: Path) -> None:
    config = SFTConfig(output=str(tmp_path / "out"))
    with OutputFolder(config, tmp_path / "out", None) as folder:
        folder.begin(config)
        with pytest.raises(RunFolderError, match="is being written to"), OutputFolder(config, folder.path, None):
            pass
    (tmp_path / "out" / f".{SETTINGS[SFTConfig]}.9-0123abcd.tmp").touch()  # as left by a kill
    with OutputFolder(config, tmp_path / "out", None) as folder:
        assert {path.name for path in folder.path.iterdir()} == {SETTINGS[SFTConfig], LOCK}
        folder.begin(config)
        (folder.path / "checkpoint").mkdir()
        with pytest.raises(RunFolderError, match="is being written to"), OutputFolder(config, folder.path, None):
            pass  # not the advice to resume it
    with pytest.raises(ConfigError, match="or resume it: --resume"), OutputFolder(config, tmp_path / "out", None):
        pass


def test_a_resume_does_not_make_a_folder_out_of_a_typing_error(make_config: MakeConfig, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is not a run folder"):
        claim_run(make_config(), tmp_path / "typo", Ranks())
    assert not (tmp_path / "typo").exists()


def test_the_lock_says_who_and_since_when(tmp_path: Path) -> None:
    with Claim(tmp_path / "run", ""):
        owner = json.loads((tmp_path / "run" / LOCK).read_text())
    assert owner.keys() == {"pid", "host", "since"}
