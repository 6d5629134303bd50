"""Resuming an earlier checkpoint starts a new branch; the old one is kept in abandoned/, even after a crash."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppolm.config import PPOConfig
from ppolm.ppo_trainer import PPOTrainer
from ppolm.runs import abandoned_steps as module
from ppolm.runs.abandoned_steps import set_aside
from ppolm.storage.atomic import verify_folder, write_folder
from ppolm.storage.metrics_log import append_line, read_metrics
from tests.conftest import PROMPTS, spread

MakeConfig = Callable[..., PPOConfig]


def make_run(run: Path, copies: bool = True) -> Path:
    """A run of six steps with checkpoints at 2, 4 and 6, evaluated at each; 2 and 6 were the best so far."""
    for step in (2, 4, 6):
        best = 6 if step == 6 else 2

        def fill_best(folder: Path, best: int = best) -> None:
            (folder / "adapter").write_text(f"best of {best}")
            (folder / "best.json").write_text(json.dumps({"step": best}))

        (run / "checkpoints").mkdir(parents=True, exist_ok=True)
        write_folder(run / "best", fill_best)

        def fill(folder: Path, step: int = step) -> None:
            for part in ("policy", "value"):
                (folder / part).mkdir()
                (folder / part / part).write_text(str(step))
            (folder / "state.json").write_text(
                json.dumps({"step": step, "components": {"kl": {}, "reward_computer": {}}})
            )
            if copies:
                module.keep_best(run, folder)

        write_folder(run / "checkpoints" / f"step-{step:06d}", fill)
    (run / "table").mkdir()
    (run / "report").mkdir()
    for step in range(1, 7):
        append_line(run / "metrics.jsonl", {"kind": "train", "step": step})
        append_line(run / "samples.jsonl", {"kind": "train", "step": step})
        (run / "table" / f"step-{step:06d}.parquet").touch()
        if step % 2 == 0:
            append_line(run / "metrics.jsonl", {"kind": "eval", "step": step})
    return run


def steps(run: Path, kind: str = "train") -> list[int]:
    return [row["step"] for row in read_metrics(run, kind)]


def assert_is_at_four(run: Path) -> None:
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-000002", "step-000004"]
    assert (steps(run), steps(run, "eval")) == ([1, 2, 3, 4], [2, 4])
    assert (run / "best" / "adapter").read_text() == "best of 2"
    verify_folder(run / "best")
    assert len(list((run / "table").iterdir())) == 4


def everything(folder: Path) -> set[str]:
    """The content that must not be lost: all lines of text files, and the names of checkpoints and tables."""
    texts = [
        file.read_text().splitlines() for file in folder.rglob("*") if file.suffix != ".parquet" and file.is_file()
    ]
    names = {path.name for path in folder.rglob("step-*")}
    return names | {line for lines in texts for line in lines}


def test_what_lies_after_the_checkpoint_is_moved_and_best_is_what_it_was(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    before = everything(run)
    aside = set_aside(run, run / "checkpoints" / "step-000004", 4, {2, 4})
    assert aside == run / "abandoned" / "001-after-step-000004"
    assert_is_at_four(run)
    assert (aside / "best" / "adapter").read_text() == "best of 6"
    assert (steps(aside), steps(aside, "eval")) == ([5, 6], [6])
    assert {path.name for path in aside.iterdir()} == {
        *("best", "checkpoints", "metrics.jsonl", "report", "samples.jsonl", "table")
    }
    assert everything(run) >= before
    assert set_aside(run, run / "checkpoints" / "step-000004", 4, {2, 4}) is None, "there is nothing left to move"


def test_a_crash_at_any_moment_of_it_loses_nothing_and_the_next_resume_completes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crashes after 0, 1, 2, ... calls that change the disk."""
    names = ("_move", "write_file", "write_folder", "_new_folder")
    ends: list[int] = []
    for last in range(20):
        run = make_run(tmp_path / f"run-{last}")
        before, calls = everything(run), 0

        def limited(original: Callable[..., Any], last: int = last) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls > last:
                    raise InterruptedError
                return original(*arguments)

            return call

        with monkeypatch.context() as crash:
            for name in names:
                crash.setattr(module, name, limited(getattr(module, name)))
            try:
                set_aside(run, run / "checkpoints" / "step-000004", 4, {2, 4})
                ends.append(last)
            except InterruptedError:
                pass
        assert everything(run) >= before
        newest = max((run / "checkpoints").iterdir())
        verify_folder(newest)  # a plain resume works on whichever branch is newest, and leaves a consistent run
        step = int(newest.name[-6:])
        if step == 6:
            set_aside(run, newest, 6, {2, 4, 6})
            assert (steps(run), steps(run, "eval")) == ([1, 2, 3, 4, 5, 6], [2, 4, 6])
            assert (run / "best" / "adapter").read_text() == "best of 6"
        set_aside(run, run / "checkpoints" / "step-000004", 4, {2, 4})
        assert_is_at_four(run)
        assert everything(run) >= before
    assert ends, "some turn must have come to its end"
    assert ends[0] > 4


def test_a_checkpoint_without_a_copy_of_the_best_policy_has_its_own_as_the_best(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", copies=False)
    set_aside(run, run / "checkpoints" / "step-000004", 4, {2, 4})
    assert (run / "best" / "policy").read_text() == "4"
    assert json.loads((run / "best" / "best.json").read_text())["step"] == 4
    verify_folder(run / "best")


def test_resuming_an_earlier_checkpoint_then_plainly_follows_the_new_branch(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(seed: int, **options: Any) -> Any:
        config = make_config(
            max_steps=4,
            eval_every=1,
            eval_fraction=0.34,
            checkpoint_every=1,
            num_epochs=9,
            keep_checkpoints=9,
            learning_rate=0.02,
            collapse_reward_drop=1e6,
            collapse_kl=1e6,
        )

        def reward(prompts: list[str], responses: list[Any]) -> list[float]:
            return [one + (seed if trainer.step > 1 else 0) for one in spread(prompts, responses)]

        trainer = PPOTrainer(config, reward={"spread": reward})
        return trainer.train(PROMPTS, **options)

    first = train(0)
    run = first.run_dir
    old = {file.name: file.read_bytes() for file in (run / "checkpoints" / "step-000004").glob("*.safetensors")}
    second = train(1, resume=run / "checkpoints" / "step-000001")
    assert f"was moved to {run}/abandoned/001-after-step-000001" in capsys.readouterr().err
    assert second.performance.best_step > 1
    best = json.loads((run / "best" / "best.json").read_text())
    assert (best["step"], best["avg_reward"]) == (second.performance.best_step, second.performance.best_reward)
    write_folder(run / "own", lambda folder: module._own_policy(folder, run / "checkpoints" / "step-000003"))
    own = json.loads((run / "own" / "best.json").read_text())
    assert own["components"].keys() == best["components"].keys()
    aside = run / "abandoned" / "001-after-step-000001"
    kept = {file.name: file.read_bytes() for file in (aside / "checkpoints" / "step-000004").glob("*.safetensors")}
    assert kept == old
    shutil.rmtree(run / "checkpoints" / "step-000004")  # as if it had been killed before the end
    third = train(1, resume=run)
    assert [row["avg_reward"] for row in third.evaluations] == [row["avg_reward"] for row in second.evaluations]
