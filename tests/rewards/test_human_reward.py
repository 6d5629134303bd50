"""People as the reward: judged responses get their scores, others are queued, and a run never waits forever."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from ppolm.base_setup.model_setup import setup_models
from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.data.examples import Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.errors import ConfigError, FeedbackError, RewardError
from ppolm.feedback.record import Queued, Record, Source
from ppolm.feedback.store import FeedbackStore
from ppolm.ppo_trainer import PPOTrainer
from ppolm.rewards import human_reward
from ppolm.rewards.human_reward import HumanReward
from ppolm.rewards.occasion import Occasion
from ppolm.rewards.protocol import RewardCallError, scores_or_errors
from ppolm.storage.metrics_log import read_metrics
from tests.conftest import PROMPTS

MakeConfig = Callable[..., PPOConfig]
NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)
CHAT = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeedbackStore:
    monkeypatch.setattr(human_reward, "POLL_SECONDS", 0.02)
    return FeedbackStore(str(tmp_path / "feedback.db"))


@contextmanager
def person(place: str, score: Callable[[Queued], float]) -> Iterator[list[Queued]]:
    """An annotator who scores whatever is queued, as with ``ppolm feedback label --follow``."""
    judged: list[Queued] = []
    gone = threading.Event()

    def work() -> None:
        store = FeedbackStore(place)
        while not gone.wait(0.02):
            for queued in store.waiting():
                store.add([Record(Rating(Prompt(queued.content), queued.response, score(queued), annotator="ann"))])
                judged.append(queued)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield judged
    finally:
        gone.set()
        thread.join()


def rate(text: str, score: float, annotator: str | None = None, hour: int = 0, **more: Any) -> Record:
    return Record(Rating(Prompt("a?"), text, score, annotator=annotator, **more), time=NOON + timedelta(hours=hour))


# ---- what people said -----------------------------------------------------------------------------------------------


def test_score_is_the_mean_of_what_each_annotator_last_said(store: FeedbackStore) -> None:
    store.add([rate("x", 1.0, "ann", 1), rate("x", 5.0, "ann", 2), rate("x", 2.0, "ben", 3), rate("y", 7.0)])
    store.add([Record(Preference(Prompt("a?"), "y", "x"))])
    assert HumanReward(store, 0)(["a?", "a?", "a?"], ["x", "y", "x"]) == [3.5, 7.0, 3.5]


def test_scores_weigh_by_confidence(store: FeedbackStore) -> None:
    store.add([rate("x", 0.0, "ann", confidence=3.0), rate("x", 4.0, "ben", confidence=1.0)])
    assert HumanReward(store, 0)(["a?"], ["x"]) == [1.0]


def test_thumbs_are_one_deviation_from_the_mean_score_and_scores_come_first(store: FeedbackStore) -> None:
    thumbs = [Record(Thumb(Prompt(CHAT), text, text == "up", annotator="ann")) for text in ("up", "down")]
    store.add(thumbs)
    human = HumanReward(store, 0)
    assert human([CHAT, CHAT], ["up", "down"]) == [1.0, -1.0]
    store.add([rate("x", 1.0), rate("y", 5.0)])  # mean 3, deviation 2
    assert human([CHAT, CHAT], ["up", "down"]) == [5.0, 1.0]
    store.add([Record(Thumb(Prompt("a?"), "x", True))])
    assert human(["a?"], ["x"]) == [1.0]


# ---- what they have not said ----------------------------------------------------------------------------------------


def test_step_goes_on_when_the_responses_are_judged(store: FeedbackStore, capsys: pytest.CaptureFixture[str]) -> None:
    store.add([rate("known", 9.0)])
    human = HumanReward(store, timeout=60, occasion=Occasion("my-run", 4))
    with person(store.name, lambda queued: float(len(queued.response))) as judged:
        scores = human(["a?", "a?", CHAT, "a?"], ["known", "four", "three", "four"])
    assert scores == [9.0, 4.0, 5.0, 4.0]
    assert [(queued.response, queued.source) for queued in judged] == [
        ("four", Source("my-run", 4, 1, purpose="training")),
        ("three", Source("my-run", 4, 2, purpose="training")),
    ]
    said = capsys.readouterr().err
    assert said.count(f"2 responses wait in {store.name} to be judged, for 60 s; then the run stops.") == 1
    assert said.count(f"Judge with: ppolm feedback label --store {store.name}") == 1
    assert store.waiting() == []


def test_model_scores_the_rest_on_the_scale_of_the_scores(store: FeedbackStore) -> None:
    store.add([rate("x", 1.0), rate("y", 5.0)])  # mean 3, deviation 2
    asked: list[Any] = []

    def model(prompts: Any, responses: Any, **columns: Any) -> list[float]:
        asked.append((prompts, responses, columns))
        return [1.5] * len(responses)

    human = HumanReward(store, timeout=0.05, model=model)
    assert human(["a?", "a?"], ["x", "new"], title=["one", "two"]) == [1.0, 6.0]
    assert asked == [(["a?"], ["new"], {"title": ["two"]})]
    assert [queued.response for queued in store.waiting()] == ["new"]  # no longer needed, but it may still be judged
    human(["a?"], ["new"])
    assert len(store.waiting()) == 1
    store.add([rate("new", 4.0)])
    assert human(["a?"], ["new"]) == [4.0]


def test_without_a_model_the_time_out_is_an_error_that_says_how_to_go_on(store: FeedbackStore) -> None:
    store.add([rate("x", 1.0)])
    with pytest.raises(RewardCallError) as caught:
        HumanReward(store, timeout=0.05)(["a?", "a?"], ["x", "new"])
    assert "1 of 2 responses were not judged within human_timeout 0.05 s" in str(caught.value)
    assert f"`ppolm feedback label --store {store.name}` and continue with --resume" in str(caught.value)
    assert [queued.response for queued in store.waiting()] == ["new"]


def test_a_fallback_model_that_fails_does_not_multiply_the_waiting_time(store: FeedbackStore) -> None:
    store.add([rate("x", 1.0)])

    def model(prompts: Any, responses: Any, **columns: Any) -> list[float]:
        if "bad" in responses:
            raise ValueError("too long")
        return [0.5] * len(responses)

    human, waits = HumanReward(store, timeout=0.1, model=model), list[int]()
    human.on_wait = waits.append
    scores = scores_or_errors(human, "human", ["a?"] * 4, ["x", "bad", "good", "fine"], {})
    assert waits.count(0) == 1, "people are waited for once, however many responses the model cannot score"
    assert [isinstance(score, RewardError) for score in scores] == [False, True, False, False]
    assert (scores[0], scores[2]) == (1.0, 1.5)
    assert "too long" in str(scores[1])


def test_store_that_fails_is_a_failed_call(store: FeedbackStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(ids: Any) -> Any:
        raise FeedbackError("the server has gone.")

    monkeypatch.setattr(store, "verdicts", fail)
    with pytest.raises(RewardCallError, match=r"Reward human: the server has gone\."):
        HumanReward(store, timeout=0)(["a?"], ["x"])


# ---- settings -------------------------------------------------------------------------------------------------------


def test_settings_reach_the_reward(make_config: MakeConfig, tmp_path: Path) -> None:
    store = FeedbackStore(str(tmp_path / "mine.db"))
    common = {"reward": ("human",), "feedback_store": store.name}
    with pytest.raises(RewardError, match=r"human_timeout 0\.01 s"):
        PPOTrainer(make_config(**common, human_timeout=0.01)).ppo_step(PROMPTS[:2])
    assert len(store.waiting()) == 2
    assert {queued.source.run for queued in store.waiting()} == {"run"}
    reward = setup_models(make_config()).reward
    assert reward is not None
    reward.mean = 100.0
    reward.save(tmp_path / "rm")
    config = make_config(**common, human_timeout=0, human_fallback="model", reward_model=str(tmp_path / "rm"))
    assert all(score < -50 for score in PPOTrainer(config).ppo_step(PROMPTS[:2])["rewards"])
    assert setup_models(make_config(**common)).reward is None


def test_settings_that_cannot_work_are_refused(make_config: MakeConfig) -> None:
    for reward in ({"reward": ("human",)}, {"judge": "human"}):
        with pytest.raises(ConfigError, match="there is no reward model to fall back on"):
            make_config(**reward, human_fallback="model")
    with pytest.raises(ConfigError, match="human_timeout is -1"):
        make_config(human_timeout=-1)
    with pytest.raises(ConfigError, match="feedback_store is empty"):
        make_config(feedback_store="")


# ---- whole runs -----------------------------------------------------------------------------------------------------

TINY = [
    *("--model-name", "embedded", "--reward", "human", "--run-name", "run", "--max-steps", "1", "--log-to"),
    *("--batch-size", "2", "--minibatch-size", "2", "--max-new-tokens", "6"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(human_reward, "POLL_SECONDS", 0.02)
    return tmp_path


def test_training_with_a_person(here: Path) -> None:
    with person("feedback.db", lambda queued: float(len(queued.response))) as judged:
        assert ppolm(["train", *TINY, "--max-eval-prompts", "2", "--eval-every", "1"]) == 0
    samples = [json.loads(line) for line in Path("runs/run/samples.jsonl").read_text().splitlines()]
    assert {sample["kind"] for sample in samples} == {"train", "eval"}
    assert all(sample["reward"] == len(sample["response"]) for sample in samples)
    assert {queued.response for queued in judged} == {sample["response"] for sample in samples}


def test_training_falls_back_on_the_reward_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--human-timeout", "0.1", "--human-fallback", "model", "--eval-every", "0"]
    assert ppolm(["train", *TINY, *flags]) == 0
    assert "then the reward model scores the rest" in capsys.readouterr().err
    (metrics,) = read_metrics(Path("runs/run"))
    assert metrics["reward_std"] > 0
    assert len(FeedbackStore("feedback.db").waiting()) == 2


def test_run_that_nobody_judged_goes_on_after_judging(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--human-timeout", "0.1", "--eval-every", "0"]
    assert ppolm(["train", *TINY, *flags]) == 1
    assert "2 of 2 responses were not judged within human_timeout 0.1 s" in capsys.readouterr().err
    store = FeedbackStore("feedback.db", create=False)
    waiting = store.waiting()
    store.add([Record(Rating(Prompt(queued.content), queued.response, 3.0)) for queued in waiting])
    assert ppolm(["train", "--resume", "runs/run"]) == 0
    (metrics,) = read_metrics(Path("runs/run"))
    assert metrics["avg_reward"] == 3.0
    assert store.waiting() == []
