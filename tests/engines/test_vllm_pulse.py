"""When a server that owes an answer is given up: after a pause that is long for it, never while it makes progress."""

from __future__ import annotations

import pytest

from ppolm.engines.vllm_pulse import PATIENCE, Pulse, StalledError

SHORTEST, EVERY = 45.0, 2.0


class Server:
    """A count of tokens and a clock, both moved by hand."""

    def __init__(self) -> None:
        self.now, self.looks = 1000.0, 0
        self.tokens: object = 0
        self.pulse = Pulse(self.look, SHORTEST, EVERY, lambda: self.now)

    def look(self) -> object:
        self.looks += 1
        return self.tokens

    def wait(self, seconds: float, moves: bool = False) -> None:
        """Let time pass during a request, with looks in between."""
        for second in range(int(seconds)):
            self.now += 1
            if moves:
                self.tokens = second
            self.pulse.check()

    def answer(self, seconds: float = 0.0) -> None:
        with self.pulse.request():
            self.now += seconds


@pytest.fixture
def server() -> Server:
    made = Server()
    made.answer()
    return made


def test_a_server_without_any_sign_is_given_up_within_a_minute(server: Server) -> None:
    with pytest.raises(StalledError, match="has made no progress for 46 s"), server.pulse.request():
        server.wait(60)
    assert server.pulse.stalled
    server.answer()
    assert not server.pulse.stalled, "it works again"


def test_tokens_that_are_counted_keep_a_long_answer_alive_and_a_halt_after_them_does_not(server: Server) -> None:
    with server.pulse.request():
        server.wait(5000, moves=True)
        with pytest.raises(StalledError):
            server.wait(60)


def test_answers_to_other_requests_are_progress(server: Server) -> None:
    with server.pulse.request():
        for _ in range(20):
            server.wait(40)
            server.answer()


def test_a_server_may_compile_before_its_first_answer_and_that_pause_is_not_typical() -> None:
    server = Server()
    with server.pulse.request():
        server.wait(500)
    assert server.pulse.limit == SHORTEST
    server.pulse.forget()  # it came back, perhaps as another process
    with server.pulse.request():
        server.wait(500)


def test_a_server_that_pauses_and_goes_on_is_given_more_time(server: Server) -> None:
    server.answer(40)
    assert server.pulse.limit == PATIENCE * 40
    with pytest.raises(StalledError), server.pulse.request():
        server.wait(PATIENCE * 40 + 2)


def test_time_in_which_nothing_was_asked_is_no_pause(server: Server) -> None:
    server.now += 10_000
    server.answer()
    assert server.pulse.limit == SHORTEST
    server.now += 10_000
    with server.pulse.request():
        server.wait(30)


def test_a_look_that_finds_nothing_is_no_progress(server: Server) -> None:
    server.tokens = None
    with pytest.raises(StalledError), server.pulse.request():
        server.wait(60)


def test_many_waiting_requests_look_no_more_often_than_one(server: Server) -> None:
    with server.pulse.request(), server.pulse.request():
        for _ in range(10):
            server.wait(1)
            server.pulse.check()
    assert server.looks <= 6


def test_an_error_is_no_progress(server: Server) -> None:
    with server.pulse.request():
        server.wait(40)
        with pytest.raises(ValueError, match="overloaded"), server.pulse.request():
            raise ValueError("overloaded")
        with pytest.raises(StalledError):
            server.wait(10)
