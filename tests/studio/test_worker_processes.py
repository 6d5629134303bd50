"""Processes that fail, hang, flood or are left alone: the server says so in a sentence and goes on."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from ppolm.errors import ModelProcessError
from ppolm.studio.model_workers import ModelsBusyError, ModelWorkers
from ppolm.studio.worker_process import Patience
from tests.studio.worker_cases import run, scripted


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until_gone(pid: int) -> None:
    """Wait until a process has ended."""
    while is_running(pid):
        await asyncio.sleep(0.02)


def test_one_process_answers_one_request_after_the_other() -> None:
    async def work() -> None:
        workers = ModelWorkers()
        answers = await asyncio.gather(*(workers.ask(scripted(), {"text": f"{i}\ud800\n"}) for i in range(6)))
        assert len({answer["pid"] for answer in answers}) == 1
        assert [answer["echo"]["text"] for answer in answers] == [f"{i}\ud800\n" for i in range(6)]
        await workers.close()
        await until_gone(answers[0]["pid"])

    run(work())


def test_another_model_takes_the_place_of_the_first_and_waits_for_its_work() -> None:
    async def work() -> None:
        workers = ModelWorkers()
        first = asyncio.create_task(workers.ask(scripted("one"), {"do": "sleep", "seconds": 0.3}))
        await asyncio.sleep(0)
        second, third = await asyncio.gather(workers.ask(scripted("two"), {}), workers.ask(scripted("one"), {}))
        assert first.done(), "the work of the first was not cut off"
        assert len({(await first)["pid"], second["pid"], third["pid"]}) == 3
        assert [str(model["folder"]) for model in workers.loaded()] == ["one"]
        await until_gone(second["pid"])
        await workers.close()

    run(work())


def test_two_models_may_be_loaded_where_that_is_allowed_and_the_longest_unused_goes() -> None:
    async def work() -> None:
        workers = ModelWorkers(most=2)
        pids: dict[str, list[int]] = {}
        for name in ("one", "two", "one", "three", "one"):
            pids.setdefault(name, []).append((await workers.ask(scripted(name), {}))["pid"])
        assert len(set(pids["one"])) == 1
        assert sorted(str(model["folder"]) for model in workers.loaded()) == ["one", "three"]
        await workers.close()

    run(work())


def test_a_process_that_dies_is_reported_with_its_last_words_and_started_anew() -> None:
    async def work() -> None:
        workers = ModelWorkers()
        with pytest.raises(ModelProcessError, match=r"ended by itself with code 3\..* no room \\x1b\[31mleft$"):
            await workers.ask(scripted(), {"do": "die"})
        pid = (await workers.ask(scripted(), {}))["pid"]
        os.kill(pid, 9)
        with pytest.raises(ModelProcessError, match=r"was killed \(SIGKILL\), as happens when memory runs out"):
            await workers.ask(scripted(), {})
        assert (await workers.ask(scripted(), {}))["pid"] != pid
        await workers.close()

    run(work())


def test_a_model_that_cannot_be_loaded_says_why_each_time() -> None:
    async def work() -> None:
        workers = ModelWorkers()
        for _ in range(2):
            with pytest.raises(ModelProcessError, match=r"^The files are damaged\.$"):
                await workers.ask(scripted(start="fail"), {})
        assert workers.loaded() == []
        await workers.close()

    run(work())


def test_what_takes_too_long_is_ended() -> None:
    async def work() -> None:
        workers = ModelWorkers(patience=Patience(load=0.5, job=0.3))
        with pytest.raises(ModelProcessError, match=r"was not loaded after 0\.5 seconds"):
            await workers.ask(scripted(start="hang"), {})
        slow = ModelWorkers(patience=Patience(job=0.3))
        pid = (await slow.ask(scripted(), {}))["pid"]
        with pytest.raises(ModelProcessError, match=r"had not answered after 0\.3 seconds"):
            await slow.ask(scripted(), {"do": "sleep", "seconds": 60})
        assert not is_running(pid)
        assert (await slow.ask(scripted(), {}))["pid"] != pid
        await asyncio.gather(workers.close(), slow.close())

    run(work())


@pytest.mark.parametrize("way", ["flood", "babble"])
def test_a_process_that_breaks_the_protocol_is_ended(way: str) -> None:
    async def work() -> None:
        workers = ModelWorkers()
        with pytest.raises(ModelProcessError, match="said something that cannot be read"):
            await workers.ask(scripted(), {"do": way})
        assert (await workers.ask(scripted(), {}))["echo"] == {}
        await workers.close()

    run(work())


def test_more_than_can_wait_is_refused_at_once() -> None:
    async def work() -> None:
        workers = ModelWorkers(waiting=3)
        asked = [workers.ask(scripted(), {"do": "sleep", "seconds": 0.1}) for _ in range(5)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(answer, dict) for answer in answers] == [True, True, True, False, False]
        assert isinstance(answers[-1], ModelsBusyError)
        assert (await workers.ask(scripted(), {}))["echo"] == {}, "refusals are not counted"
        await workers.close()

    run(work())


def test_a_request_that_is_too_large_is_refused_before_anything_is_started() -> None:
    async def work() -> None:
        workers = ModelWorkers()
        with pytest.raises(ModelProcessError, match=r"at most 4,194,304 are allowed.* Shorten"):
            await workers.ask(scripted(), {"prompt": "x" * 5_000_000})
        with pytest.raises(ModelProcessError, match="cannot be written as JSON"):
            await workers.ask(scripted(), {"temperature": float("nan")})
        assert all(model["pid"] is None for model in workers.loaded())
        await workers.close()

    run(work())


def test_a_cancelled_request_ends_its_process_if_that_does_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppolm.studio.model_workers.GRACE", 0.2)

    async def work() -> None:
        workers = ModelWorkers()
        pid = (await workers.ask(scripted(), {}))["pid"]
        deaf = asyncio.create_task(workers.ask(scripted(), {"do": "sleep", "seconds": 60}))
        await asyncio.sleep(0.1)
        deaf.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deaf
        assert (await workers.ask(scripted(), {}))["pid"] != pid, "the next request had to wait no minute"
        assert not is_running(pid)
        await workers.close()

    run(work())


def test_loading_that_nobody_waits_for_any_more_is_ended() -> None:
    async def work() -> None:
        workers = ModelWorkers()
        loading = asyncio.create_task(workers.ask(scripted(start="hang"), {}))
        while not any(model["pid"] for model in workers.loaded()):
            await asyncio.sleep(0.02)
        (pid,) = [model["pid"] for model in workers.loaded()]
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        await until_gone(pid)
        assert (await workers.ask(scripted("two"), {}))["echo"] == {}
        await workers.close()

    run(work())


def test_a_model_that_nobody_uses_is_unloaded_and_one_in_use_is_not() -> None:
    async def work() -> None:
        workers = ModelWorkers(patience=Patience(idle=0.3))
        pid = (await workers.ask(scripted(), {}))["pid"]
        assert (await workers.ask(scripted(), {"do": "sleep", "seconds": 0.6}))["pid"] == pid
        assert workers.loaded()[0]["working"] is False
        began = time.monotonic()
        await until_gone(pid)
        assert time.monotonic() - began > 0.2
        assert workers.loaded() == []
        pid = (await workers.ask(scripted(), {}))["pid"]
        assert await workers.unload() == 1
        await until_gone(pid)
        await workers.close()

    run(work())


def test_the_end_of_the_server_ends_requests_with_a_sentence() -> None:
    async def work() -> None:
        workers = ModelWorkers()
        pid = (await workers.ask(scripted(), {}))["pid"]
        asked = [asyncio.create_task(workers.ask(scripted(name), {"do": "sleep", "seconds": 60})) for name in "ab"]
        await asyncio.sleep(0.5)
        await workers.close()
        for task in asked:
            with pytest.raises(ModelProcessError, match="The studio is closing"):
                await task
        assert not is_running(pid)

    run(work())
