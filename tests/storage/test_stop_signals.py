"""Ctrl-C and SIGTERM: finished steps are saved, unfinished ones undone, and the message says how to resume."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.ppo_trainer import PPOTrainer
from ppolm.runs.rollback import Snapshot
from ppolm.storage.metrics_log import read_metrics
from ppolm.storage.stop_signals import AT_ONCE, Insisting, Stopped, Stopping
from ppolm.supervised.supervised_trainer import SupervisedTrainer
from tests.conftest import PROMPTS, spread
from tests.runs.compared_runs import STATEFUL, assert_same_run
from tests.supervised.small_trainings import trainer as supervised

MakeConfig = Callable[..., PPOConfig]
MANY_PROMPTS = [f"{prompt} {number}" for prompt in PROMPTS for number in range(3)]


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    """Restore SIGINT, which is ignored if the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def send(number: int) -> None:
    """Send a signal to this process; it is handled before this returns."""
    os.kill(os.getpid(), number)
    time.sleep(0.001)


def test_signals_interrupt_only_what_may_be_interrupted_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Stopping() as stopping:
        send(signal.SIGINT)
        assert stopping.count == 1, "and nothing was raised"
        with pytest.raises(Stopped), stopping.interruptible(1):
            raise AssertionError("one signal has come already")
        with stopping.interruptible(AT_ONCE):
            pass
        with pytest.raises(Stopped) as stopped, stopping.interruptible(AT_ONCE):
            send(signal.SIGINT)
        assert stopped.value.number == signal.SIGINT
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_signal_that_is_ignored_stays_ignored_and_other_threads_change_nothing() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Stopping() as stopping, stopping.interruptible(1):
            send(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)

    def enter() -> None:
        with Stopping():
            seen.append(signal.getsignal(signal.SIGTERM))

    seen: list[Any] = []
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


class Finalised:
    """An object whose finaliser is running when a signal arrives."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self.number)
        time.sleep(0.01)


def lose_and_wait(number: int) -> None:
    Finalised(number)
    time.sleep(20)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", [Stopping, Insisting])
def test_a_signal_that_is_lost_in_a_finaliser_comes_again_and_is_counted_once(
    kind: type[Stopping], number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    counted = AT_ONCE if number == signal.SIGTERM else 1
    with kind() as stopping, pytest.raises(Stopped), stopping.interruptible(1):
        lose_and_wait(number)
    assert (stopping.number, stopping.count) == (number, counted)
    assert "Traceback" not in capfd.readouterr().err


def test_a_signal_that_came_before_a_training_began_stops_it() -> None:
    with Stopping() as outer:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        assert outer.count == 1
        with Stopping() as inner, pytest.raises(Stopped):
            inner.check(1)
        with Stopping() as inner, pytest.raises(Stopped), inner.interruptible(1):
            pytest.fail("nothing is begun")


def test_an_abandoned_step_is_undone_to_the_last_bit(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(**STATEFUL), reward=spread)
    trainer.ppo_step(PROMPTS[:4])
    before = Snapshot(trainer)
    models = (trainer.models.policy, trainer.models.value)
    kept = [value.clone() for model in models for value in model.parameters().values()]
    one = trainer.ppo_step(PROMPTS[:4])
    before.restore(trainer)
    again = [value for model in models for value in model.parameters().values()]
    assert all(torch.equal(*pair) for pair in zip(kept, again, strict=True))
    other = trainer.ppo_step(PROMPTS[:4])
    numbers = [{k: v for k, v in step["metrics"].items() if not k.startswith("seconds/")} for step in (one, other)]
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize(
    ("signals", "call", "saved"),
    [
        ((signal.SIGINT,), 3, 2),  # in the reward of step 2: the step is finished
        ((signal.SIGINT, signal.SIGINT), 3, 1),  # the step is abandoned
        ((signal.SIGTERM,), 3, 1),
        ((signal.SIGINT,), 4, 2),  # in the evaluation after step 2, which a resume repeats
        ((signal.SIGTERM,), 1, 0),  # in the first evaluation
    ],
)
def test_a_stopped_run_is_saved_reported_and_resumed_to_the_last_bit(
    make_config: MakeConfig, signals: tuple[int, ...], call: int, saved: int
) -> None:
    calls = 0

    def stops(prompts: list[str], responses: list[Any]) -> list[float]:
        nonlocal calls
        calls += 1
        if calls == call:
            for number in signals:
                send(number)
        return spread(prompts, responses)

    settings: dict[str, Any] = STATEFUL | {"checkpoint_every": 5}
    whole = PPOTrainer(make_config(**settings, run_name="whole"), reward=spread).train(MANY_PROMPTS).run_dir
    config = make_config(**settings)
    with pytest.raises(Stopped) as stopped:
        PPOTrainer(config, reward={"spread": stops}).train(MANY_PROMPTS)
    run = Path(config.output_dir) / "run"
    assert (stopped.value.folder, stopped.value.number) == (run, signals[0])
    assert stopped.value.done == f"after step {saved} of 6"
    assert max((run / "checkpoints").iterdir()).name == f"step-{saved:06d}"
    assert len(read_metrics(run)) == saved
    assert "interrupted" in (run / "report" / "summary.md").read_text()
    PPOTrainer(config, reward=spread).train(MANY_PROMPTS, resume=run)
    assert_same_run(whole, run)
    assert not (run / "abandoned").exists(), "nothing lay after the checkpoint"


def test_the_second_signal_ends_a_reward_that_hangs(make_config: MakeConfig) -> None:
    def hangs(prompts: list[str], responses: list[Any]) -> list[float]:
        for number in (signal.SIGINT, signal.SIGINT):
            send(number)
        time.sleep(600)
        return []

    with pytest.raises(Stopped):
        PPOTrainer(make_config(max_steps=1, eval_every=0), reward=hangs).train(PROMPTS)


@pytest.mark.parametrize("kind", ["sft", "reward"])
@pytest.mark.parametrize(("number", "saved"), [(signal.SIGINT, 7), (signal.SIGTERM, 6)])
def test_a_stopped_supervised_training_saves_every_finished_update(
    kind: str, number: int, saved: int, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = (whole := supervised(kind, model_folder)).train()
    training = supervised(kind, model_folder)
    batch = training.batch

    def stops(rows: list[Any]) -> Any:
        if training.step == 6:
            send(number)
        return batch(rows)

    monkeypatch.setattr(training, "batch", stops)
    with pytest.raises(Stopped) as stopped:
        training.train(tmp_path / "checkpoint")
    assert stopped.value.done == f"after update {saved} of {whole.total_steps}"
    resumed = supervised(kind, model_folder)
    assert resumed.train(tmp_path / "checkpoint") == history
    for name, value in whole.model.parameters().items():
        assert torch.equal(value, resumed.model.parameters()[name]), name


def test_a_validation_that_was_stopped_is_made_up_for(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = supervised("sft", model_folder).train()
    training = supervised("sft", model_folder)
    measure = training.measure

    def stops() -> dict[str, float]:
        if training.step == 6:
            send(signal.SIGINT)
        return measure()

    monkeypatch.setattr(training, "measure", stops)
    with pytest.raises(Stopped, match="SIGINT after update 6 of"):
        training.train(tmp_path / "checkpoint")
    assert supervised("sft", model_folder).train(tmp_path / "checkpoint") == history


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_loading_is_one_line_and_leaves_nothing(
    number: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def loading(*_: Any, **__: Any) -> None:
        try:
            send(number)
        except KeyboardInterrupt:
            raise ImportError("this is what some libraries make of it") from None

    monkeypatch.setattr("ppolm.cli.train_command.load_prompts", loading)
    assert ppolm(["train", "--model-name", "embedded", "--output-dir", str(tmp_path / "runs")]) == status
    name = signal.Signals(number).name
    assert capsys.readouterr().err == f"{name}: stopped before anything was saved.\n"
    assert not (tmp_path / "runs").exists()


def test_a_signal_that_a_library_swallows_is_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def loading(*_: Any, **__: Any) -> None:
        with suppress(BaseException):
            send(signal.SIGTERM)
        time.sleep(600)

    monkeypatch.setattr("ppolm.cli.train_command.load_prompts", loading)
    assert ppolm(["train", "--model-name", "embedded", "--output-dir", str(tmp_path / "runs")]) == 143


def test_a_reward_model_that_was_stopped_in_its_report_gets_it_by_a_resume(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.supervised.small_trainings import PREFERENCES, flags

    rows = tmp_path / "rows.jsonl"
    lines = [
        f'{{"prompt": "{row.prompt.content}", "chosen": "{row.chosen}", "rejected": "{row.rejected}"}}'
        for row in PREFERENCES
    ]
    rows.write_text("\n".join(lines))
    output = tmp_path / "out"

    def stops(*_: Any, **__: Any) -> None:
        send(signal.SIGTERM)

    with monkeypatch.context() as stopping:
        stopping.setattr("ppolm.readiness.assess", stops)
        assert ppolm(flags(model_folder, rows, output)) == 143
    assert capsys.readouterr().err.endswith(
        f"what is still to come is its report. Resume with: ppolm reward --resume {output}\n"
    )
    updates: list[int] = []
    update = SupervisedTrainer._update

    def counted(self: Any, rows: Any) -> float:
        updates.append(self.step)
        return update(self, rows)

    monkeypatch.setattr(SupervisedTrainer, "_update", counted)
    assert ppolm(["reward", "--resume", str(output)]) == 0
    assert (output / "readiness.md").is_file()
    assert not updates, "the training itself was over"


def test_a_signal_in_the_very_first_moment_is_a_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    monkeypatch.setattr("ppolm.cli.main.prepare_output", interrupted)
    assert ppolm(["train", "--model-name", "embedded"]) == 130
    assert "Traceback" not in capsys.readouterr().err
