"""Studies from runs: the same prompts, the run's own settings, and no code of strangers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.errors import ConfigError, DataError, RunFolderError
from ppolm.feedback.desk import Desk
from ppolm.feedback.record import response_id
from ppolm.feedback.store import FeedbackStore
from ppolm.ppo_trainer import PPOTrainer
from ppolm.storage.prompt_record import read_held_out
from ppolm.studies.from_policies import fair_prompts, from_policies, from_policy, some_of
from ppolm.studies.from_step import from_step
from ppolm.studies.policy import find_policies
from tests.conftest import PROMPTS, spread

MakeConfig = Callable[..., PPOConfig]


@pytest.fixture
def run(make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two steps, with tables, in the current folder."""
    monkeypatch.chdir(tmp_path)
    config = make_config(
        samples_per_prompt=2, max_steps=2, table_every=1, eval_every=1, checkpoint_every=1, keep_checkpoints=2
    )
    PPOTrainer(config, reward=spread).train([*PROMPTS, "One more:", "And another:"], eval_prompts=PROMPTS[:3])
    return Path("runs/run")


def test_two_policies_answer_the_prompts_that_the_run_held_out(run: Path) -> None:
    policies = find_policies(["runs/run", "reference"])
    assert [policy.label for policy in policies] == ["runs/run/best", "reference"]
    prompts, unfair = fair_prompts(policies)
    assert ([prompt.content for prompt in prompts], unfair) == ([p.content for p in read_held_out(run)], 0)
    items = from_policies(policies, prompts, "preference", seed=3)
    assert [item.content for item in items] == [prompt.content for prompt in prompts]
    assert items == from_policies(policies, prompts, "preference", seed=3), "by the seed"
    assert items != from_policies(policies, prompts, "preference", seed=4)
    best, reference = items[0].sources
    assert (best.policy, best.run, reference.policy, reference.step) == ("runs/run/best", "run", "reference", 0)
    singles = from_policies(policies, prompts, "thumb", seed=3)
    assert [item.responses[0] for item in singles[:2]] == list(items[0].responses)


def test_checkpoints_and_one_policy_sampled_several_times(run: Path) -> None:
    first, last = find_policies(["runs/run/checkpoints/step-000001", "runs/run/checkpoints/step-000002"])
    assert (first.step, last.step) == (1, 2)
    assert first.adapter != last.adapter
    prompts = some_of(fair_prompts([first])[0], 2, seed=0)
    items = from_policy(last, prompts, 3, "preference")
    assert len(items) == 2 * 3
    assert {source.sequence for item in items for source in item.sources} == {0, 1, 2}
    assert len(from_policy(last, prompts, 3, "score")) == 2 * 3
    (best,) = find_policies(["runs/run/best"])
    assert best.label == "runs/run/best"


def test_names_that_mean_no_two_policies_are_errors(run: Path) -> None:
    with pytest.raises(ConfigError, match="Name a run beside it"):
        find_policies(["reference", "reference"])
    with pytest.raises(ConfigError, match="Both policies are runs/run/best"):
        find_policies(["runs/run", "runs/run/best"])
    with pytest.raises(RunFolderError, match="is not a run folder"):
        find_policies(["runs/absent", "reference"])


def test_a_run_of_somebody_else_runs_no_code_without_consent(run: Path) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("trust_remote_code: false", "trust_remote_code: true"))
    with pytest.raises(ConfigError, match="was not started here by you"):
        find_policies(["runs/run", "reference"])
    with pytest.raises(ConfigError, match="was not started here by you"):
        from_step(run, 1, "score")
    assert find_policies(["runs/run"], ["--trust-remote-code"])[0].config.trust_remote_code


def test_a_logged_step_has_the_texts_that_were_scored(run: Path) -> None:
    singles = from_step(run, 2, "score")
    assert len(singles) == 4
    assert [item.sources[0].sequence for item in singles] == [0, 1, 2, 3]
    assert {(item.sources[0].run, item.sources[0].step) for item in singles} == {("run", 2)}
    logged = _logged(run, 2)
    found = {response_id(item.content, item.responses[0]) for item in singles}
    assert {response_id(row["prompt"], row["response"]) for row in logged} <= found
    pairs = from_step(run, 2, "preference")
    assert len(pairs) == 2, "the two samples of each prompt"
    with pytest.raises(DataError, match=r"has no table of step 9. It has: 1, 2"):
        from_step(run, 9, "score")


def _logged(run: Path, step: int) -> list[dict[str, str]]:
    rows = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    return [row for row in rows if row["kind"] == "train" and row["step"] == step]


def test_the_command_says_what_it_made_and_how_to_judge_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--guidelines", "Be fair.", "--repeats", "0", "--judgements-per-item", "2"]
    assert ppolm(["feedback", "study", "my study", "--policies", "runs/run", "reference", *flags]) == 0
    said = capsys.readouterr().out
    assert "of runs/run/best and reference on 3 prompts; 2 judgements per item." in said
    assert "Judge with: ppolm feedback label --store feedback.db --study 'my study'" in said
    desk = Desk(FeedbackStore("feedback.db"), "ann", "my study")
    while tasks := desk.next():
        assert tasks[0].guidelines == "Be fair."
        desk.commit(tasks[0].id, "first" if "a" in tasks[0].sides[0] else "second")
    assert ppolm(["feedback", "stats"]) == 0
    assert "study my study: runs/run/best is preferred to reference in " in capsys.readouterr().out
    assert ppolm(["feedback", "study", "my study", "--step-of", "runs/run", "--step", "1"]) == 1
    assert "already has a study 'my study'" in capsys.readouterr().err


def test_a_model_that_no_run_has_trained_is_sampled_on_prompts_that_are_given(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts.txt").write_text("\n".join(PROMPTS))
    study = ["feedback", "study", "first", "--model-name", make_config().model_name]
    assert ppolm(study) == 1
    assert "holds out no prompts. Give --prompts" in capsys.readouterr().err
    given = ["--prompts", "prompts.txt", "--max-new-tokens", "3", "--samples", "3"]
    assert ppolm([*study, *given]) == 0
    (task,) = Desk(FeedbackStore("feedback.db"), "ann", "first").next()
    assert len(task.sides) == 2
    assert ppolm(["feedback", "study", "second", "--policies", "a", "b", "--adapter", "x"]) == 1
    assert "--adapter has no effect with --policies A B" in capsys.readouterr().err
    assert ppolm(["feedback", "study", "second", "--policy", "a", "--max-new-tokens", "3"]) == 1
    assert "--max-new-tokens has no effect" in capsys.readouterr().err
