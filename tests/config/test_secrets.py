"""Keys and passwords are given by variable name, never stored or printed; HTTP calls end in time, without redirects."""

from __future__ import annotations

import base64
import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ppolm import http_call
from ppolm.config import PPOConfig
from ppolm.config.secrets import expand, hide
from ppolm.errors import ConfigError, FeedbackError, RewardError
from ppolm.feedback.connection import store_url
from ppolm.ppo_trainer import PPOTrainer
from ppolm.rewards import http_reward
from ppolm.rewards.http_reward import HTTPReward
from ppolm.rewards.protocol import RewardCallError
from tests.conftest import PROMPTS, ROOT

SECRET = "hunter2-Gx7/+ä"


@pytest.mark.parametrize(
    "settings",
    [
        {"reward": f"https://user:{SECRET}@host/score"},
        {"reward": f"https://{SECRET}@host/score"},
        {"reward": f"https://host/score?api_key={SECRET}"},
        {"reward": f"https://host/score?x=1&access_token={SECRET}"},
        {"reward": f"https://host/score?X-Amz-Signature={SECRET}"},
        {"reward": f"https://host/score?sig={SECRET}&model=a"},
        {"reward": "https://host/score?k=sk0123456789abcdefghij0123"},
        {"reward": f"https://[host/score?key={SECRET}"},
        {"judge": f"https://host/score?key={SECRET}"},
        {"reward": "human", "feedback_store": f"postgresql://me:{SECRET}@host/db"},
    ],
    ids=range(10),
)
def test_a_secret_in_an_address_is_refused_without_repeating_it(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"\$MY_|cannot be read") as error:
        PPOConfig(**settings)
    assert SECRET not in str(error.value)
    assert "0123456789" not in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"reward": "https://user:$MY_PASSWORD@host/score?api_key=${MY_KEY}"},
        {"reward": "https://host/score?model=v2&design=blue&monkey=1"},
        {"reward": "http://localhost:8000/score"},
        {"reward": "human", "feedback_store": "postgresql://me:$PGPASS@host/db"},
        {"reward": "human", "feedback_store": "postgresql://me@host/db"},
        {"reward": "human", "feedback_store": "sqlite:///me@home/feedback.db"},
    ],
    ids=range(6),
)
def test_names_of_variables_and_plain_parameters_are_taken(settings: dict[str, Any]) -> None:
    PPOConfig(**settings)


def test_variables_are_expanded_and_hidden_again() -> None:
    url = "https://host/score?a=$A&b=${B_1}"
    values = {"A": "x/y z", "B_1": "secret"}
    assert expand(url, values) == "https://host/score?a=x%2Fy%20z&b=secret"
    assert hide("no secret at ?a=x%2Fy%20z or x/y z", url, values) == "no ${B_1} at ?a=$A or $A"
    with pytest.raises(ConfigError, match=r"the environment variable A, which is not set"):
        expand(url, {})


def test_a_variable_that_is_not_set_is_said_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(RewardError, match="NOT_SET, which is not set"):
        HTTPReward("http://host/?key=$NOT_SET", 1.0, 0)
    with pytest.raises(FeedbackError, match="NOT_SET, which is not set"):
        store_url("postgresql://me:$NOT_SET@host/db")
    monkeypatch.setenv("NOT_SET", SECRET)
    assert store_url("postgresql://me:$NOT_SET@host/db").password == SECRET


class Server:
    """An HTTP server whose reaction to each request is set by the test."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.act: Any = None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.seen.append((self.path, dict(self.headers), body))
                outer.act(self, body)

            def do_GET(self) -> None:
                outer.seen.append((self.path, dict(self.headers), None))

            def log_message(self, format: str, *args: Any) -> None:
                """Keep the test output clean."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(http_reward, "BACK_OFF", 0.001)
    served = Server()
    yield served
    served.server.shutdown()
    served.server.server_close()


def good(handler: Any, body: Any) -> None:
    answer = json.dumps({"rewards": [float(len(text)) for text in body["responses"]]}).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(answer)))
    handler.end_headers()
    handler.wfile.write(answer)


def test_no_file_and_no_message_of_a_run_holds_the_secret(
    server: Server, make_config: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, caplog: Any
) -> None:
    monkeypatch.setenv("MY_KEY", SECRET)
    monkeypatch.setenv("MY_PASSWORD", "swordfish-7")
    server.act = good
    url = f"http://me:$MY_PASSWORD@{server.host}/score?api_key=$MY_KEY"
    config = make_config(
        reward=(url,),
        judge=url.replace("score", "judge"),
        eval_every=1,
        eval_fraction=0.4,
        max_steps=1,
        log_to=("tensorboard",),
    )
    PPOTrainer(config).train(PROMPTS)
    assert {path for path, _, _ in server.seen} == {
        f"/{what}?api_key=hunter2-Gx7%2F%2B%C3%A4" for what in ("score", "judge")
    }
    login = base64.b64encode(b"me:swordfish-7").decode()
    assert all(headers["Authorization"] == f"Basic {login}" for _, headers, _ in server.seen)
    files = [path for path in Path(config.output_dir).rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        assert not any(one in path.read_bytes() for one in (b"hunter2", b"swordfish", login.encode())), path
    assert "$MY_KEY" in (Path(config.output_dir) / "run" / "config.yaml").read_text()
    shown = "".join(capsys.readouterr()) + caplog.text
    assert not any(one in shown for one in ("hunter2", "swordfish"))


def test_an_endpoint_that_echoes_its_address_gives_no_secret_away(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", SECRET)

    def echo(handler: Any, _: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(f"{handler.headers['Authorization']} {handler.path}".encode())

    server.act = echo
    with pytest.raises(RewardCallError, match=r"did not answer with JSON.*Basic \(hidden\) .*\$MY_KEY") as error:
        HTTPReward(f"http://u:$MY_KEY@{server.host}/?key=$MY_KEY", 5.0, 0)(PROMPTS, PROMPTS)
    assert "hunter2" not in str(error.value)


def test_an_authorization_header_comes_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PPOLM_REWARD_AUTHORIZATION", "Bearer abc")
    server.act = good
    HTTPReward(f"http://{server.host}/", 5.0, 0)(PROMPTS, PROMPTS)
    assert server.seen[0][1]["Authorization"] == "Bearer abc"
    monkeypatch.setenv("PPOLM_REWARD_AUTHORIZATION", "Bearer abc\r\nHost: other")
    with pytest.raises(RewardError, match="holds a character that no header can have") as error:
        HTTPReward(f"http://{server.host}/", 5.0, 0)
    assert "abc" not in str(error.value)


@pytest.mark.parametrize("where", ["headers", "body", "chunks"])
def test_an_answer_that_drips_ends_at_reward_timeout(server: Server, where: str) -> None:
    """Each byte resets a socket's time-out, so only a deadline for the whole call ends it."""
    ended = threading.Event()

    def drip(handler: Any, _: Any) -> None:
        chunked = b"Transfer-Encoding: chunked\r\n\r\n" if where == "chunks" else b""
        start = {"headers": b"", "body": b"\r\n", "chunks": chunked}[where]
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + start)
            while True:
                handler.wfile.write(b"1\r\n1\r\n" if where == "chunks" else b"1")
                time.sleep(0.02)
        except OSError:
            ended.set()

    server.act = drip
    with pytest.raises(RewardCallError, match=r"could not be reached \(timed out\), attempt 1 of 1"):
        HTTPReward(f"http://{server.host}/", 0.3, 0)(PROMPTS, PROMPTS)
    assert ended.wait(60), "the connection is closed, so that nobody reads on in the background"


def test_an_endless_answer_is_not_read_to_its_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_call, "LARGEST_BODY", 2**20)
    sent = [0]

    def pour(handler: Any, _: Any) -> None:
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n[")
            while True:
                handler.wfile.write(b"1," * 4096)
                sent[0] += 8192
        except OSError:
            pass

    server.act = pour
    with pytest.raises(RewardCallError, match="answered with more than 1 MiB"):
        HTTPReward(f"http://{server.host}/", 60.0, 2)(PROMPTS, PROMPTS)
    assert len(server.seen) == 1, "it would be as large again"
    assert sent[0] < 100 * 2**20


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused_and_not_followed(server: Server, status: int) -> None:
    def elsewhere(handler: Any, _: Any) -> None:
        handler.send_response(status)
        handler.send_header("Location", f"http://{server.host}/elsewhere")
        handler.end_headers()

    server.act = elsewhere
    with pytest.raises(RewardCallError, match=f"answered {status} .*a redirect.*attempt 1 of 3"):
        HTTPReward(f"http://{server.host}/", 5.0, 2)(PROMPTS, PROMPTS)
    assert [path for path, _, _ in server.seen] == ["/"]


@pytest.mark.parametrize("answer", [b"[" * 200_000, b"\xff\xfe", b'{"rewards": ' + b"9" * 5000 + b"}", b"{" * 9000])
def test_answers_that_are_no_json_are_an_error(server: Server, answer: bytes) -> None:
    def say(handler: Any, _: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(answer)

    server.act = say
    with pytest.raises(RewardCallError, match="did not answer with JSON"):
        HTTPReward(f"http://{server.host}/", 5.0, 2)(PROMPTS, PROMPTS)


def test_the_page_on_rewards_tells_how_keys_are_given() -> None:
    assert "$MY_KEY" in (ROOT / "docs" / "rewards.md").read_text()
