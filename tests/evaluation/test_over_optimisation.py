"""The alarm: over-optimisation is a judge that falls from its best while the reward does not, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.embedded import DEMO
from ppolm.errors import RewardError
from ppolm.evaluation.alarms import Limits
from ppolm.evaluation.verdict import judge, judge_run
from ppolm.ppo_trainer import PPOTrainer
from ppolm.runs.overopt_report import Curve, overopt_table
from ppolm.storage.metrics_log import read_metrics
from tests.conftest import PROMPTS, spread

MakeConfig = Callable[..., PPOConfig]
MANY_PROMPTS = [f"{prompt} {number}" for number in range(5) for prompt in PROMPTS]


def evaluations(*judge_and_reward: tuple[float, float], count: int = 100) -> list[dict[str, float]]:
    return [
        {
            "step": step,
            "judge": judged,
            "judge_std": 0.2,
            "avg_reward": reward,
            "reward_std": 1.0,
            "num_responses": count,
        }
        for step, (judged, reward) in enumerate(judge_and_reward)
    ]


def test_a_clear_fall_of_the_judge_under_a_rising_reward_is_the_alarm() -> None:
    history = evaluations((0.5, 0.0), (0.8, 1.0), (0.6, 1.5))
    performance, verdict = judge(history, Limits())
    assert verdict.status == "over-optimised"
    assert verdict.over_optimised
    assert verdict.should_stop
    assert "fell from 0.8 (step 1) to 0.6 while the reward went from 1 to 1.5" in verdict.reasons[0]
    assert performance.best_step == 1, "what exploits the reward is never the best"
    assert judge_run(history, Limits())[1].over_optimised


def test_the_limit_is_in_standard_errors_of_the_difference() -> None:
    # 0.2 * sqrt(2 / 100) = 0.0283; three of them are 0.0849
    assert not judge(evaluations((0.8, 0.0), (0.72, 1.0)), Limits())[1].over_optimised
    assert judge(evaluations((0.8, 0.0), (0.71, 1.0)), Limits())[1].over_optimised
    assert not judge(evaluations((0.8, 0.0), (0.71, 1.0)), Limits(judge_drop=4.0))[1].over_optimised


def test_a_reward_that_falls_too_is_not_being_exploited() -> None:
    assert not judge(evaluations((0.8, 1.0), (0.6, 0.2)), Limits())[1].over_optimised


def test_no_alarm_without_a_judge_or_with_a_handful_of_responses() -> None:
    without = [{"avg_reward": 0.0, "num_responses": 100}, {"avg_reward": 1.0, "num_responses": 100}]
    assert judge(without, Limits())[1].status == "rising"
    assert not judge(evaluations((0.9, 0.0), (0.1, 1.0), count=7), Limits())[1].over_optimised


ASKED: list[int] = []


def fading(prompts: list[str], responses: list[str]) -> list[float]:
    """A judge whose scores fall with every call."""
    ASKED.append(len(responses))
    return [1.0 - 0.3 * len(ASKED) + 0.01 * (i % 2) for i in range(len(responses))]


def rising(prompts: list[str], responses: list[str]) -> list[float]:
    """A reward that rises with every call of the judge, and still differs between responses."""
    return [len(ASKED) + score for score in spread(prompts, responses)]


@pytest.mark.pictures
@pytest.mark.parametrize("stops", [True, False])
def test_an_over_optimised_run_stops_unless_told_not_to_and_keeps_its_best(
    make_config: MakeConfig, stops: bool
) -> None:
    ASKED.clear()
    config = make_config(judge=f"{__name__}:fading", eval_every=1, eval_fraction=0.5, max_steps=3, stop_on_alarm=stops)
    results = PPOTrainer(config, reward=rising).train(MANY_PROMPTS, 5)
    assert results.verdict == "over-optimised"
    assert (results.steps, results.stopped) == ((1, "over-optimised") if stops else (3, "finished"))
    assert results.performance is not None
    assert results.performance.best_step == 0
    rows = read_metrics(results.run_dir, "eval")
    assert [row["status"] for row in rows][:2] == ["baseline", "over-optimised"]
    assert (results.run_dir / "report" / "judge.png").stat().st_size > 5_000
    assert "over-optimised" in results.summary()


def test_the_judge_leaves_training_as_it_is(make_config: MakeConfig) -> None:
    def last_rewards(**changes: Any) -> list[float]:
        config = make_config(eval_every=1, eval_fraction=0.5, max_steps=2, **changes)
        return [row["avg_reward"] for row in PPOTrainer(config, reward=spread).train(MANY_PROMPTS).metrics]

    assert last_rewards(run_name="one") == last_rewards(run_name="two", judge="tests.conftest:vowels")


def test_a_judge_that_fails_is_an_error_that_names_it(make_config: MakeConfig) -> None:
    config = make_config(judge="gold", eval_every=1, eval_fraction=0.5)
    with pytest.raises(RewardError, match="gold raised DataError: This is not a post of the embedded world"):
        PPOTrainer(config, reward=spread).train(PROMPTS)


def test_the_table_of_a_sweep_names_start_peak_alarm_and_end() -> None:
    rows: list[dict[str, Any]] = [
        row | {"kl": 2.0 * row["step"], "status": status}
        for row, status in zip(
            evaluations((0.5, 0.0), (0.8, 1.0), (0.6, 1.5)), ("baseline", "rising", "over-optimised"), strict=True
        )
    ]
    line = overopt_table([Curve(0.05, rows)]).splitlines()[-1]
    assert line == (
        "| 0.05 | step 0: 0.500 (0.00, 0.0) | step 1: 0.800 (1.00, 2.0) "
        "| step 2: 0.600 (1.50, 4.0), over-optimised | step 2: 0.600 (1.50, 4.0) |"
    )
    assert "| none |" in overopt_table([Curve(0.1, rows[:2])])


def test_overopt_sweeps_draws_and_refuses_what_it_cannot_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], make_config: MakeConfig
) -> None:
    monkeypatch.chdir(tmp_path)
    small = PPOConfig.from_yaml(DEMO)
    config = small.to_dict() | {"batch_size": 4, "minibatch_size": 4, "max_eval_prompts": 8, "log_to": ()}
    PPOConfig.from_dict(config).to_yaml(tmp_path / "small.yaml")
    flags = ["overopt", "--config", "small.yaml", "--kl-coefs", "0", "0.1", "--steps", "2", "--eval-every", "1"]
    assert ppolm([*flags, "--output", "sweep"]) == 0
    assert "| 0.1 |" in capsys.readouterr().out
    for name in ("overopt.png", "overopt.md", "overopt.json", "kl_coef-0/metrics.jsonl", "kl_coef-0.1/metrics.jsonl"):
        assert (tmp_path / "sweep" / name).is_file(), name
    assert ppolm([*flags, "--output", "sweep"]) == 1
    assert "already exists and is not an empty folder" in capsys.readouterr().err
    make_config().to_yaml(tmp_path / "nojudge.yaml")
    assert ppolm(["overopt", "--config", "nojudge.yaml"]) == 1
    assert "needs a judge" in capsys.readouterr().err
