"""A reward served over HTTP: JSON in, JSON out, retries with back-off, and clear errors."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ppolm.errors import RewardError
from ppolm.ppo_trainer.reward_computer import RewardComputer
from ppolm.rewards import http_reward
from ppolm.rewards.http_reward import HTTPReward
from ppolm.rewards.protocol import RewardCallError
from ppolm.rollout.generated_text import GeneratedText
from tests.reward_cases import PROMPTS, RESPONSES

# ---- HTTP -----------------------------------------------------------------------------------------------------------


class Endpoint:
    """A local HTTP server that returns prepared answers, one per request, and records the requests."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.requests: list[Any] = []
        self.release = threading.Event()
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.requests.append((self.path, self.headers["Content-Type"], json.loads(body)))
                status, answer = endpoint.answers.pop(0)
                if answer == HANG:
                    endpoint.release.wait(30)
                    return
                if answer == GARBAGE:
                    self.wfile.write(b"this is not HTTP\r\n\r\n")
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer) + (100 if answer == TRUNCATED else 0)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Keep the test output clean."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/score"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.release.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


HANG, GARBAGE, TRUNCATED = b"hang", b"garbage", b'{"rewards": [1.0'
GOOD = (200, b'{"rewards": [1.0, 2.5, -3]}')


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(http_reward, "BACK_OFF", 0.001)
    served = Endpoint()
    yield served
    served.close()


def served_by(endpoint: Endpoint, timeout: float = 30.0, retries: int = 2, **options: Any) -> RewardComputer:
    return RewardComputer({"served": HTTPReward(endpoint.url, timeout, retries)}, **options)


def test_http_reward_sends_and_reads_json(endpoint: Endpoint, texts: list[GeneratedText]) -> None:
    endpoint.answers = [GOOD]
    assert served_by(endpoint).compute_rewards(texts) == [1.0, 2.5, -3.0]
    [(path, kind, body)] = endpoint.requests
    assert (path, kind) == ("/score", "application/json")
    assert body == {
        "prompts": PROMPTS,
        "responses": RESPONSES,
        "tokens": [text.tokens for text in texts],
        "columns": {"answer": ["yes", "no", "maybe"], "level": [1, 2, 3]},
    }


def test_http_reward_may_answer_with_a_bare_list_or_with_token_scores(
    endpoint: Endpoint, texts: list[GeneratedText]
) -> None:
    endpoint.answers = [(200, b"[1, 2, 3]"), (200, json.dumps({"rewards": [[0.5] * 4, [1] * 3, 2.0]}).encode())]
    assert served_by(endpoint).compute_rewards(texts) == [1.0, 2.0, 3.0]
    assert served_by(endpoint).compute_rewards(texts) == [[0.5] * 4, [1.0] * 3, 2.0]


@pytest.mark.parametrize("passing", [(503, b""), (500, b"oops"), (429, b""), (200, GARBAGE), (200, TRUNCATED)])
def test_passing_fault_of_an_endpoint_is_retried(endpoint: Endpoint, passing: tuple[int, bytes]) -> None:
    endpoint.answers = [passing, passing, GOOD]
    assert served_by(endpoint).compute_rewards(PROMPTS, RESPONSES) == [1.0, 2.5, -3.0]
    assert len(endpoint.requests) == 3
    assert endpoint.requests[0] == endpoint.requests[2]


def test_back_off_doubles_from_one_retry_to_the_next(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(http_reward, "time", SimpleNamespace(sleep=waits.append))  # only here: other threads sleep too
    monkeypatch.setattr(http_reward, "BACK_OFF", 0.5)
    endpoint.answers = [(503, b"")] * 3 + [GOOD]
    HTTPReward(endpoint.url, 30.0, retries=3)(PROMPTS, RESPONSES)
    assert waits == [0.5, 1.0, 2.0]


def test_endpoint_that_stays_down_is_an_error_after_the_last_retry(endpoint: Endpoint) -> None:
    endpoint.answers = [(503, b"")] * 3
    with pytest.raises(RewardError, match=r"answered 503 Service Unavailable, attempt 3 of 3\..*'Is water wet\?'"):
        served_by(endpoint).compute_rewards(PROMPTS, RESPONSES)
    assert len(endpoint.requests) == 3, "a call that failed must not be made again for each response"


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_refusal_of_an_endpoint_is_not_retried(endpoint: Endpoint, status: int) -> None:
    endpoint.answers = [(status, b"no")]
    with pytest.raises(RewardError, match=f"answered {status} .*, attempt 1 of 3"):
        served_by(endpoint).compute_rewards(PROMPTS, RESPONSES)
    assert len(endpoint.requests) == 1


def test_endpoint_that_does_not_answer_in_time_is_retried_and_then_an_error(endpoint: Endpoint) -> None:
    endpoint.answers = [(200, HANG)] * 2
    with pytest.raises(RewardError, match=r"could not be reached \(timed out\), attempt 2 of 2"):
        served_by(endpoint, timeout=0.1, retries=1).compute_rewards(PROMPTS, RESPONSES)
    deadline = time.monotonic() + 30
    while len(endpoint.requests) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)  # the client may have given up before the server read the request
    assert len(endpoint.requests) == 2


def test_endpoint_that_is_not_there_is_an_error_that_names_it(endpoint: Endpoint) -> None:
    url = endpoint.url
    endpoint.close()
    with pytest.raises(RewardCallError, match=f"{url} could not be reached .*attempt 2 of 2"):
        HTTPReward(url, 5.0, retries=1)(PROMPTS, RESPONSES)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"<html>hello</html>", "did not answer with JSON but with b'<html>hello"),
        (b'{"scores": [1, 2, 3]}', 'must answer {"rewards": .*found: scores'),
        (b"{}", 'must answer {"rewards": .*found: nothing'),
        (b"[1, 2]", "returned 2 scores for 3 responses"),
        (b"[1, NaN, 2]", "returned nan, expected a finite number.*'Is fire cold"),
        (b'[1, "2", 3]', "returned '2', expected a number.*'Is fire cold"),
        (b"null", "returned NoneType, expected a list"),
    ],
)
def test_answer_that_makes_no_sense_is_an_error_and_is_not_retried(
    endpoint: Endpoint, answer: bytes, message: str
) -> None:
    endpoint.answers = [(200, answer)]
    with pytest.raises(RewardError, match=message):
        served_by(endpoint).compute_rewards(PROMPTS, RESPONSES)
    assert len(endpoint.requests) == 1


def test_endpoint_that_fails_gives_the_default_to_all(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    endpoint.answers = [GOOD] + [(503, b"")] * 3 + [GOOD]
    mine = served_by(endpoint, on_error="default", default_reward=-1.0)
    assert mine.compute_rewards(PROMPTS, RESPONSES) == [1.0, 2.5, -3.0]
    rewards = mine.compute_rewards(PROMPTS, RESPONSES)
    assert rewards == [-1.0] * 3
    assert rewards.failed == 3
    assert "3 of 3 scores set to -1" in caplog.text
    rewards = mine.compute_rewards(PROMPTS, RESPONSES)
    assert rewards == [1.0, 2.5, -3.0]
    assert rewards.failed == 0


def test_endpoint_that_was_never_there_is_an_error_even_with_a_default(endpoint: Endpoint) -> None:
    endpoint.answers = [(404, b"no")]
    with pytest.raises(RewardError, match=r"served has given no score yet.*answered 404"):
        served_by(endpoint, on_error="default").compute_rewards(PROMPTS, RESPONSES)
