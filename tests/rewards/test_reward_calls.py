"""A user's function runs in a thread where signals and connections work, within its time limit, with its columns."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppolm.errors import RewardError
from ppolm.ppo_trainer.reward_computer import RewardComputer
from ppolm.rewards import time_limit
from ppolm.rewards.function_reward import FunctionReward, load_function
from ppolm.rewards.protocol import RewardCallError
from tests.reward_cases import PROMPTS, RESPONSES, computer

SQLITE = """
import sqlite3

connection = sqlite3.connect(":memory:")
connection.execute("create table known (text)")

def score(prompts, responses):
    connection.executemany("insert into known values (?)", [(text,) for text in responses])
    return [float(connection.execute("select count(*) from known").fetchone()[0])] * len(responses)
"""


def call(function: Callable[..., Any], timeout: float = 30.0, **columns: Any) -> Any:
    return FunctionReward(function, "mine", timeout)(PROMPTS, RESPONSES, **columns)


# ---- where it runs --------------------------------------------------------------------------------------------------


def test_a_connection_that_was_made_at_import_works_in_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "known.py").write_text(SQLITE)
    mine = RewardComputer({"known": FunctionReward(load_function(f"{tmp_path}/known.py:score"), "known", 30)})
    assert mine.compute_rewards(PROMPTS, RESPONSES) == [3.0] * 3
    assert mine.compute_rewards(PROMPTS, RESPONSES) == [6.0] * 3


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarms here")
def test_a_function_may_set_an_alarm_of_its_own() -> None:
    class SlowError(Exception):
        """Raised by the function's own alarm."""

    def alarm(*_: Any) -> None:
        raise SlowError

    def score(prompts: list[str], responses: list[str]) -> list[float]:
        before = signal.signal(signal.SIGALRM, alarm)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            time.sleep(LONG)
        except SlowError:
            return [0.25] * len(responses)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return [1.0] * len(responses)

    assert call(score) == [0.25] * 3


def test_a_function_runs_in_the_thread_that_asks() -> None:
    seen: list[int] = []
    call(lambda *_: seen.append(threading.get_ident()))
    worker = threading.Thread(target=call, args=(lambda *_: seen.append(threading.get_ident()),))
    worker.start()
    worker.join()
    assert seen[0] == threading.get_ident()
    assert seen[1] == worker.ident


# ---- its time -------------------------------------------------------------------------------------------------------


LONG = 120
"""Seconds that a call takes unless it is interrupted: longer than any delay on a busy machine."""


def sleeps(prompts: list[str], responses: list[str]) -> list[float]:
    time.sleep(LONG)
    return [1.0] * len(responses)


def computes(prompts: list[str], responses: list[str]) -> list[float]:
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        pass
    return [1.0] * len(responses)


def waits(prompts: list[str], responses: list[str]) -> list[float]:
    threading.Event().wait(LONG)
    return [1.0] * len(responses)


def catches_exceptions(prompts: list[str], responses: list[str]) -> list[float]:
    try:
        time.sleep(LONG)
    except Exception:
        return [0.0] * len(responses)
    return [1.0] * len(responses)


def answers_late(prompts: list[str], responses: list[str]) -> list[float]:
    with contextlib.suppress(BaseException):
        time.sleep(LONG)
    return [1.0] * len(responses)


def fails_late(prompts: list[str], responses: list[str]) -> list[float]:
    try:
        time.sleep(LONG)
    except BaseException:
        raise ValueError("something went wrong") from None
    return [1.0] * len(responses)


def is_stubborn(prompts: list[str], responses: list[str]) -> list[float]:
    answers_late(prompts, responses)
    time.sleep(LONG)
    return [1.0] * len(responses)


@pytest.mark.parametrize(
    "function", [sleeps, computes, waits, catches_exceptions, answers_late, fails_late, is_stubborn]
)
def test_a_call_that_takes_too_long_ends_in_time_whatever_it_does(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "AGAIN", 0.1)
    start = time.monotonic()
    with pytest.raises(RewardCallError, match=r"Reward mine took longer than reward_timeout 0\.1 s"):
        call(function, timeout=0.1)
    assert time.monotonic() - start < LONG, "it was ended, and did not end by itself"


def test_a_call_in_another_thread_ends_in_time_too() -> None:
    raised: list[BaseException] = []

    def work() -> None:
        try:
            call(computes, timeout=0.1)
        except RewardCallError as error:
            raised.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join(15)
    assert not worker.is_alive()
    assert "took longer" in str(raised[0])


@pytest.mark.parametrize("in_main", [True, False])
def test_an_interruption_never_arrives_after_its_call(in_main: bool) -> None:
    escaped: list[BaseException] = []
    outcomes: list[str] = []

    def work() -> None:
        for number in range(300):
            try:
                call(lambda *_, n=number: time.sleep(0.0002 * (n % 20)), timeout=0.002)
                outcomes.append("in time")
            except RewardCallError:
                outcomes.append("late")
            except BaseException as error:
                escaped.append(error)

    if in_main:
        work()
    else:
        worker = threading.Thread(target=work)
        worker.start()
        worker.join(60)
    time.sleep(0.05)
    assert not escaped
    assert len(outcomes) == 300
    assert len(set(outcomes)) == 2


def test_a_call_that_cannot_be_interrupted_is_named_while_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(time_limit, "AGAIN", 0.05)
    monkeypatch.setattr(time_limit._Limit, "_hear", lambda *_: None)  # like native code that does not return to Python
    with pytest.raises(RewardCallError, match="took longer"):
        call(lambda *_: time.sleep(0.5), timeout=0.05)
    assert "Reward mine has exceeded its limit of 0.05 s" in caplog.text


@pytest.mark.skipif(time_limit.KNOCK is None, reason="no such signal here")
def test_whoever_listened_to_the_signal_before_does_so_again_and_meanwhile() -> None:
    heard: list[int] = []
    knock: Any = time_limit.KNOCK
    before = signal.signal(knock, lambda number, _: heard.append(number))
    try:
        call(lambda *_: signal.raise_signal(knock))
        signal.raise_signal(knock)
        assert heard == [knock] * 2
    finally:
        signal.signal(knock, before)


def test_the_keyboard_interrupts_a_call_and_exit_is_an_error() -> None:
    def interrupted(prompts: list[str], responses: list[str]) -> list[float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        computer(interrupted, on_error="default").compute_rewards(PROMPTS, RESPONSES)
    with pytest.raises(RewardError, match="tried to end the program"):
        computer(lambda *_: sys.exit(0)).compute_rewards(PROMPTS, RESPONSES)


# ---- what it is given -----------------------------------------------------------------------------------------------

TITLES = ["a", "b", "c"]


class Grader:
    """A callable object with its own parameter names."""

    def __call__(self, question: list[Any], reply: list[str], title: list[str]) -> Any:
        return question, reply, title


def plain(question: list[Any], reply: list[str], title: list[str]) -> Any:
    return question, reply, title


def greedy(question: list[Any], reply: list[str], **columns: Any) -> Any:
    return question, reply, columns["title"]


def weighed(weight: float, question: list[Any], reply: list[str], title: list[str]) -> Any:
    assert weight == 2.0
    return question, reply, title


def tuned(question: list[Any], reply: list[str], title: list[str], level: float = 0.0) -> Any:
    assert level == 3.0
    return question, reply, title


def weighed_greedy(weight: float, question: list[Any], reply: list[str], **columns: Any) -> Any:
    assert weight == 2.0
    return question, reply, columns["title"]


@pytest.mark.parametrize(
    "function",
    [
        plain,
        greedy,
        Grader(),
        Grader().__call__,
        lambda question, reply, title: (question, reply, title),
        functools.partial(weighed, 2.0),
        functools.partial(weighed_greedy, 2.0),
        functools.partial(tuned, level=3.0),
    ],
)
def test_a_column_that_is_called_like_a_positional_parameter_is_not_passed(function: Callable[..., Any]) -> None:
    columns: dict[str, Any] = {
        "question": ["x"] * 3,
        "reply": ["y"] * 3,
        "level": [1, 2, 3],
        "title": TITLES,
        "weight": [4, 5, 6],
    }
    assert call(function, **columns) == (PROMPTS, RESPONSES, TITLES)


def test_a_column_reaches_no_parameter_that_takes_no_name() -> None:
    def strict(question: list[Any], reply: list[str], /, *extra: Any, **columns: Any) -> Any:
        return extra, columns

    columns: dict[str, Any] = {"question": TITLES, "extra": TITLES}
    assert call(strict, **columns) == ((), columns), "none of them collides, so all are passed on"

    def narrow(question: list[Any], reply: list[str], hint: Any = None, /, *extra: Any) -> Any:
        return hint, extra

    assert call(narrow, hint=TITLES, extra=TITLES) == (None, ())


def test_an_interruption_while_python_clears_up_is_not_shown_and_comes_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception in a finaliser does not propagate: Python prints its traceback and continues."""
    monkeypatch.setattr(time_limit, "AGAIN", 0.05)
    before = sys.unraisablehook

    class ClearsUpSlowly:
        def __del__(self) -> None:
            time.sleep(30)

    def busy() -> None:
        ClearsUpSlowly()
        while True:
            time.sleep(0.01)

    with pytest.raises(time_limit.TimeOver):
        time_limit.call_within(0.05, busy, "Reward mine")
    assert "Traceback" not in capsys.readouterr().err
    assert sys.unraisablehook is before
