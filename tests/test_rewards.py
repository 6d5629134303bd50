"""Rewards: wherever scores come from, they are checked, summed, normalised, and never silently wrong."""

from __future__ import annotations

import http.server
import json
import logging
import math
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ppolm.base_setup import TokenizerSetup
from ppolm.base_setup.model_setup import Models
from ppolm.config import PPOConfig
from ppolm.data.prompts import as_prompts
from ppolm.errors import RewardError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ppo_trainer.reward_computer import RewardComputer
from ppolm.reward_kl.reward_normalizer import RewardNormalizer
from ppolm.rewards import http_reward
from ppolm.rewards.build import build_reward, build_rewards, named_rewards, weighted_sum
from ppolm.rewards.function_reward import FunctionReward, load_function
from ppolm.rewards.http_reward import HTTPReward
from ppolm.rewards.protocol import Reward, RewardCallError
from ppolm.rollout.generated_text import GeneratedText
from tests.conftest import bytes_below_128, vowels
from tests.tiny_models import EOS, make_tokenizer

ROWS = [
    {"prompt": "Is water wet?", "answer": "yes", "level": 1},
    {"prompt": "Is fire cold?", "answer": "no", "level": 2},
    {"prompt": "Is it late?", "answer": "maybe", "level": 3},
]
PROMPTS = [str(row["prompt"]) for row in ROWS]
RESPONSES = ["yes", "yes", "no idea"]

Function = Callable[..., Any]


@pytest.fixture(scope="module")
def tokenizer() -> TokenizerSetup:
    return TokenizerSetup(make_tokenizer(), vocab_size=259)


@pytest.fixture(scope="module")
def texts(tokenizer: TokenizerSetup) -> list[GeneratedText]:
    """The responses as a generator gives them; the first and the last closed with EOS."""
    made = []
    for i, (prompt, response) in enumerate(zip(as_prompts(ROWS), RESPONSES, strict=True)):
        ids = tokenizer.encode(response) + ([EOS] if i != 1 else [])
        made.append(GeneratedText(tokenizer, prompt, i, tokenizer.encode(prompt.content), ids, ended=i != 1))
    return made


def wrap(**functions: Function) -> dict[str, Reward]:
    return {name: FunctionReward(function, name, timeout=30.0) for name, function in functions.items()}


def computer(function: Function, timeout: float = 30.0, **options: Any) -> RewardComputer:
    return RewardComputer({"mine": FunctionReward(function, "mine", timeout)}, **options)


def lengths(_prompts: list[str], responses: list[str]) -> list[float]:
    return [float(len(response)) for response in responses]


# ---- functions ------------------------------------------------------------------------------------------------------


def test_function_is_found_by_module_and_name() -> None:
    assert load_function("tests.conftest:vowels") is vowels


def test_function_is_found_in_a_module_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reward_module_here.py").write_text(
        "def score(prompts, responses):\n    return [7.0] * len(responses)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", ".")])
    assert load_function("reward_module_here:score")(["p"], ["r"]) == [7.0]


@pytest.fixture
def reward_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a reward file, in a folder that is not importable otherwise."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(code: str, name: str = "my_reward.py") -> Path:
        (tmp_path / name).write_text(textwrap.dedent(code))
        return tmp_path / name

    return write


def test_function_is_found_in_a_file_that_imports_its_neighbour(reward_file: Callable[..., Path]) -> None:
    reward_file("FACTOR = 3.0\n", "reward_neighbour.py")
    path = reward_file("""
        from reward_neighbour import FACTOR

        def score(prompts, responses):
            return [FACTOR * len(response) for response in responses]
    """)
    assert load_function(f"{path}:score")(["p"], ["four"]) == [12.0]


def test_reward_file_may_define_dataclasses_with_postponed_annotations(reward_file: Callable[..., Path]) -> None:
    path = reward_file("""
        from __future__ import annotations
        from dataclasses import dataclass

        @dataclass
        class Weights:
            length: float = 2.0

        def score(prompts, responses):
            return [Weights().length * len(response) for response in responses]
    """)
    assert load_function(f"{path}:score")(["p"], ["four"]) == [8.0]


def test_missing_reward_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match=r"absent\.py does not exist"):
        load_function(f"{tmp_path}/absent.py:score")


def test_missing_function_is_an_error_that_lists_what_there_is(reward_file: Callable[..., Path]) -> None:
    path = reward_file("def good(prompts, responses): ...\ndef _hidden(): ...\nnumber = 5\n")
    with pytest.raises(RewardError, match=r"has no function 'god'\. It has: good"):
        load_function(f"{path}:god")
    with pytest.raises(RewardError, match="has no function 'number'"):
        load_function(f"{path}:number")


@pytest.mark.parametrize(
    "code", ["def broken(:\n", "import no_such_module_anywhere\n", "raise ValueError('at import')\n"]
)
def test_file_that_cannot_be_imported_is_an_error_with_the_reason(reward_file: Callable[..., Path], code: str) -> None:
    path = reward_file(code)
    with pytest.raises(RewardError, match=r"my_reward\.py cannot be imported: \w+Error"):
        load_function(f"{path}:score")


def test_missing_module_is_an_error_with_the_reason() -> None:
    with pytest.raises(RewardError, match="no_such_module cannot be imported: ModuleNotFoundError"):
        load_function("no_such_module:score")


def test_configured_rewards_are_built_by_name(make_config: Callable[..., PPOConfig]) -> None:
    config = make_config(
        reward=("tests.conftest:vowels", "http://localhost:1/score"), reward_timeout=3, reward_retries=5
    )
    rewards = build_rewards(config, None)
    assert list(rewards) == ["tests.conftest:vowels", "http://localhost:1/score"]
    assert rewards["tests.conftest:vowels"](["p"], ["aloe"]) == [3.0]
    served = rewards["http://localhost:1/score"]
    assert isinstance(served, HTTPReward)
    assert (served.timeout, served.retries) == (3.0, 5)


def test_reward_name_that_means_nothing_is_an_error_with_the_forms_there_are(
    make_config: Callable[..., PPOConfig],
) -> None:
    with pytest.raises(RewardError, match=r"'modl' is not understood. Expected model, module:function"):
        build_reward("modl", make_config(), None)


def test_own_function_takes_the_place_of_the_configured_reward(make_config: Callable[..., PPOConfig]) -> None:
    assert list(build_rewards(make_config(), None, named_rewards(vowels))) == ["vowels"]
    assert list(build_rewards(make_config(), None, named_rewards({"a": vowels, "b": lengths}))) == ["a", "b"]
    with pytest.raises(RewardError, match="reward int is int, expected a function"):
        named_rewards(5)


def test_reward_model_is_a_reward_that_ignores_other_columns(
    models: Models, make_config: Callable[..., PPOConfig]
) -> None:
    assert models.reward is not None
    reward = build_reward("model", make_config(), models.reward)
    scores = RewardComputer({"model": reward}).compute_rewards(ROWS, RESPONSES)
    assert scores == models.reward(PROMPTS, RESPONSES)
    assert len(set(map(str, scores))) == 3


# ---- what a function is given ---------------------------------------------------------------------------------------


def test_function_is_given_prompts_and_responses_alone_if_it_asks_for_nothing_else() -> None:
    seen: list[Any] = []

    def score(prompts: list[str], responses: list[str]) -> list[float]:
        seen.append((list(prompts), list(responses)))
        return [0.0] * len(prompts)

    computer(score).compute_rewards(ROWS, RESPONSES)
    assert seen == [(PROMPTS, RESPONSES)]


def test_function_is_given_the_data_columns_it_names() -> None:
    def exact(_prompts: list[str], responses: list[str], answer: list[str]) -> list[float]:
        return [float(a == b) for a, b in zip(responses, answer, strict=True)]

    assert computer(exact).compute_rewards(ROWS, RESPONSES) == [1.0, 0.0, 0.0]


def test_function_with_double_star_is_given_all_columns() -> None:
    seen: dict[str, Any] = {}

    def score(prompts: list[str], _responses: list[str], **columns: list[Any]) -> list[float]:
        seen.update(columns)
        return [0.0] * len(prompts)

    computer(score).compute_rewards(ROWS, RESPONSES)
    assert seen == {"answer": ["yes", "no", "maybe"], "level": [1, 2, 3]}


def test_column_that_some_rows_lack_is_none_there() -> None:
    def score(_prompts: list[str], _responses: list[str], hint: list[Any]) -> list[float]:
        return [float(value is None) for value in hint]

    rows = [{"prompt": "a"}, {"prompt": "b", "hint": "x"}]
    assert computer(score).compute_rewards(rows, ["1", "2"]) == [1.0, 0.0]


def test_columns_follow_the_response_when_it_is_generated(texts: list[GeneratedText]) -> None:
    def score(_prompts: list[str], _responses: list[str], level: list[int]) -> list[float]:
        return [float(value) for value in level]

    assert computer(score).compute_rewards([texts[2], texts[0]]) == [3.0, 1.0]


def test_chat_messages_reach_the_function_as_messages() -> None:
    chat = [{"role": "user", "content": "Hello?"}]

    def score(prompts: list[Any], _responses: list[str]) -> list[float]:
        assert prompts == [chat]
        return [1.0]

    assert computer(score).compute_rewards([{"messages": chat}], ["Hi"]) == [1.0]


def test_scores_with_and_without_prompts_agree(texts: list[GeneratedText]) -> None:
    def score(prompts: list[str], responses: list[str], answer: list[str]) -> list[float]:
        return [len(p) + 10.0 * len(r) + 100.0 * len(a) for p, r, a in zip(prompts, responses, answer, strict=True)]

    one, two, three = computer(score), computer(score), computer(score)
    assert one.compute_rewards(texts) == two.compute_rewards(ROWS, texts) == three.compute_rewards(ROWS, RESPONSES)
    assert one.components == two.components == three.components


def test_plain_texts_without_prompts_are_scored_too() -> None:
    assert computer(lengths).compute_rewards(RESPONSES) == [3.0, 3.0, 7.0]


def test_number_of_prompts_must_be_that_of_the_responses() -> None:
    with pytest.raises(RewardError, match="2 prompts for 3 responses"):
        computer(lengths).compute_rewards(PROMPTS[:2], RESPONSES)
    with pytest.raises(RewardError, match="no responses"):
        computer(lengths).compute_rewards([], [])


@pytest.mark.parametrize("convert", [list, tuple, np.array, torch.tensor])
def test_scores_of_any_library_become_plain_floats(convert: Callable[[list[float]], Any]) -> None:
    scores = computer(lambda *_: convert([0.5, 1, 2])).compute_rewards(PROMPTS, RESPONSES)
    assert scores == [0.5, 1.0, 2.0]
    assert all(type(score) is float for score in scores)


# ---- scores per token and sums --------------------------------------------------------------------------------------


def test_scores_per_token_have_one_number_for_each_token_eos_included(texts: list[GeneratedText]) -> None:
    scores = computer(bytes_below_128).compute_rewards(texts)
    assert scores == [[1.0] * 4, [1.0] * 3, [1.0] * 8]


def test_weighted_sum_of_numbers() -> None:
    both = RewardComputer(wrap(vowels=vowels, lengths=lengths), weights=[2.0, -0.5])
    assert both.compute_rewards(PROMPTS, ["aloe", "xyz", ""]) == [2 * 3 - 0.5 * 4, -1.5, 0.0]
    assert both.components == {"vowels": 1.0, "lengths": pytest.approx(7 / 3)}


def test_rewards_without_weights_count_equally() -> None:
    assert RewardComputer(wrap(a=lengths, b=lengths)).compute_rewards(["p"], ["four"]) == [8.0]


def test_number_joins_token_scores_on_the_last_token() -> None:
    assert weighted_sum([[1.0, 2.0, 3.0], 10.0], [2.0, 0.5]) == [2.0, 4.0, 11.0]
    assert weighted_sum([10.0, [1.0], [5.0]], [1.0, 1.0, -1.0]) == [6.0]


def test_weighted_sum_keeps_the_total(texts: list[GeneratedText]) -> None:
    both = RewardComputer(wrap(tokens=bytes_below_128, lengths=lengths), weights=[0.25, 2.0])
    scores = both.compute_rewards(texts)
    assert scores[0] == [0.25, 0.25, 0.25, 0.25 + 2 * 3]
    assert [sum(score) for score in scores if isinstance(score, list)] == [7.0, 6.75, 16.0]


# ---- functions that fail --------------------------------------------------------------------------------------------


def fails_on_no_idea(answer: Any) -> Function:
    """A reward that is fine but for one response."""

    def score(_prompts: Sequence[str], responses: Sequence[str]) -> list[Any]:
        return [answer() if response == "no idea" else 1.0 for response in responses]

    return score


def explode() -> float:
    raise ZeroDivisionError("division by zero")


SINGLE_FAULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "raises": (explode, "raised ZeroDivisionError: division by zero"),
    "nan": (lambda: math.nan, "returned nan, expected a finite number"),
    "infinity": (lambda: -math.inf, "returned -inf, expected a finite number"),
    "tensor nan": (lambda: torch.tensor(math.nan), "returned nan, expected a finite number"),
    "text": (lambda: "good", "returned 'good', expected a number"),
    "none": (lambda: None, "returned None, expected a number"),
    "token text": (lambda: [1.0, "x"], "returned 'x', expected a number"),
    "token nan": (lambda: [1.0, math.nan], "returned nan, expected a finite number"),
    "token count": (lambda: [1.0, 2.0], "returned 2 token scores for a response of 8 tokens"),
}


@pytest.mark.parametrize("fault", SINGLE_FAULTS)
def test_bad_score_is_an_error_that_names_its_prompt(texts: list[GeneratedText], fault: str) -> None:
    answer, message = SINGLE_FAULTS[fault]
    with pytest.raises(RewardError, match=f"Reward mine {message}.*'Is it late\\?'.*on_reward_error: default"):
        computer(fails_on_no_idea(answer)).compute_rewards(texts)


@pytest.mark.parametrize("fault", SINGLE_FAULTS)
def test_bad_score_gives_the_default_and_the_others_keep_theirs(
    texts: list[GeneratedText], fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer, message = SINGLE_FAULTS[fault]
    mine = computer(fails_on_no_idea(answer), on_error="default", default_reward=-5.0)
    assert mine.compute_rewards(texts) == [1.0, 1.0, -5.0]
    assert mine.failures == 1
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "1 of 3 scores set to -5" in record.getMessage()
    assert message in record.getMessage()
    assert mine.components == {"mine": pytest.approx(-1.0)}
    mine.compute_rewards(texts)
    assert mine.failures == 2


def test_cause_of_an_error_is_kept(texts: list[GeneratedText]) -> None:
    with pytest.raises(RewardError) as caught:
        computer(fails_on_no_idea(explode)).compute_rewards(texts)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


WHOLE_FAULTS: dict[str, tuple[Any, str]] = {
    "too few": ([1.0, 2.0], "returned 2 scores for 3 responses.*'Is it late\\?'"),
    "too many": ([1.0] * 5, "returned 5 scores for 3 responses.*'Is it late\\?'"),
    "none at all": ([], "returned 0 scores for 3 responses.*'Is water wet\\?'"),
    "a number": (1.0, "returned float, expected a list.*'Is water wet\\?'"),
    "nothing": (None, "returned NoneType, expected a list.*'Is water wet\\?'"),
    "a mapping": ({"rewards": [1.0] * 3}, "returned dict, expected a list.*'Is water wet\\?'"),
}


@pytest.mark.parametrize("fault", WHOLE_FAULTS)
def test_answer_of_a_wrong_form_is_an_error_that_names_a_prompt(fault: str) -> None:
    answer, message = WHOLE_FAULTS[fault]
    with pytest.raises(RewardError, match=message):
        computer(lambda *_: answer).compute_rewards(PROMPTS, RESPONSES)


@pytest.mark.parametrize("fault", WHOLE_FAULTS)
def test_answer_of_a_wrong_form_gives_the_default_to_all(fault: str) -> None:
    answer, _ = WHOLE_FAULTS[fault]
    mine = computer(lambda *_: answer, on_error="default", default_reward=0.5)
    assert mine.compute_rewards(PROMPTS, RESPONSES) == [0.5] * 3
    assert mine.failures == 3


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Lets whatever a test made wait go on once the test is over."""
    event = threading.Event()
    yield event
    event.set()


def test_function_that_takes_too_long_is_an_error_and_is_not_asked_again(release: threading.Event) -> None:
    calls: list[int] = []

    def slow(prompts: list[str], _responses: list[str]) -> list[float]:
        calls.append(len(prompts))
        release.wait(30)
        return [1.0] * len(prompts)

    with pytest.raises(RewardError, match=r"Reward mine took longer than reward_timeout 0\.05 s.*'Is water wet\?'"):
        computer(slow, timeout=0.05).compute_rewards(PROMPTS, RESPONSES)
    mine = computer(slow, timeout=0.05, on_error="default", default_reward=9.0)
    assert mine.compute_rewards(PROMPTS, RESPONSES) == [9.0] * 3
    assert mine.failures == 3
    assert calls == [3, 3]


def test_one_failing_reward_of_two_leaves_the_other_in_the_sum() -> None:
    both = RewardComputer(
        wrap(good=lengths, bad=fails_on_no_idea(explode)),
        weights=[1.0, 10.0],
        on_error="default",
        default_reward=-1.0,
    )
    assert both.compute_rewards(PROMPTS, RESPONSES) == [13.0, 13.0, 7.0 - 10.0]


# ---- HTTP -----------------------------------------------------------------------------------------------------------


class Endpoint:
    """A real server on this machine that gives the prepared answers, one per request, and keeps the requests."""

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
    monkeypatch.setattr(time, "sleep", waits.append)
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
        time.sleep(0.01)  # the client may have given up before the server came to read
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
    endpoint.answers = [(503, b"")] * 3 + [GOOD]
    mine = served_by(endpoint, on_error="default", default_reward=-1.0)
    assert mine.compute_rewards(PROMPTS, RESPONSES) == [-1.0] * 3
    assert mine.failures == 3
    assert "3 of 3 scores set to -1" in caplog.text
    assert mine.compute_rewards(PROMPTS, RESPONSES) == [1.0, 2.5, -3.0]
    assert mine.failures == 3


# ---- normalisation --------------------------------------------------------------------------------------------------

BATCHES = st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6), min_size=1, max_size=6)


def test_no_normalisation_leaves_scores_as_they_are() -> None:
    assert RewardNormalizer("none").normalize([5.0, [1.0, 2.0]]) == [5.0, [1.0, 2.0]]


@given(scores=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=20))
@settings(max_examples=60, deadline=None)
def test_batch_normalisation_has_mean_zero_and_deviation_one(scores: list[float]) -> None:
    normal = np.array(RewardNormalizer("batch").normalize(scores))
    np.testing.assert_allclose(normal * (np.std(scores) + 1e-8), np.array(scores) - np.mean(scores), atol=1e-6)
    assert abs(normal.mean()) < 1e-4
    if np.std(scores) > 1e-3:
        assert normal.std() == pytest.approx(1.0, abs=1e-4)


def test_equal_scores_become_zero() -> None:
    assert RewardNormalizer("batch").normalize([0.1] * 7) == pytest.approx([0.0] * 7, abs=1e-6)


@given(batches=BATCHES)
@settings(max_examples=60, deadline=None)
def test_running_statistics_are_those_of_all_scores_so_far(batches: list[list[float]]) -> None:
    normalizer = RewardNormalizer("running")
    seen: list[float] = []
    for batch in batches:
        normal = normalizer.normalize(batch)
        seen += batch
        if len(seen) == 1:
            assert normal == batch, "one score has no deviation"
        else:
            np.testing.assert_allclose(
                np.array(normal) * (np.std(seen) + 1e-8), np.array(batch) - np.mean(seen), atol=1e-6
            )
    state = normalizer.state_dict()
    assert state["count"] == len(seen)
    assert state["mean"] == pytest.approx(np.mean(seen), abs=1e-6)
    assert state["sum_squares"] / len(seen) == pytest.approx(np.var(seen), rel=1e-6, abs=1e-6)


def test_evaluation_uses_the_running_statistics_without_changing_them() -> None:
    normalizer = RewardNormalizer("running")
    normalizer.normalize([0.0, 2.0])
    before = normalizer.state_dict()
    assert normalizer.normalize([3.0], update=False) == pytest.approx([2.0])
    assert normalizer.state_dict() == before


def test_running_statistics_continue_from_a_checkpoint() -> None:
    first, second = RewardNormalizer("running"), RewardNormalizer("running")
    first.normalize([0.0, 2.0, 7.0])
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.normalize([1.0, 5.0]) == first.normalize([1.0, 5.0])


def test_token_scores_count_with_their_total_and_are_only_divided() -> None:
    # Totals 1 and 3: mean 2, deviation 1. Shifting every token would reward or punish length.
    assert RewardNormalizer("batch").normalize([[0.5, 0.5], 3.0]) == [pytest.approx([0.5, 0.5]), pytest.approx(1.0)]


def test_missing_eos_costs_the_penalty_and_only_where_eos_is_missing() -> None:
    mine = computer(lengths, missing_eos_penalty=2.0)
    scores = mine.normalize_rewards([1.0, 1.0, [0.5, 0.25], [0.5, 0.25]], torch.tensor([True, False, True, False]))
    assert scores == [1.0, -1.0, [0.5, 0.25], [0.5, -1.75]]


def test_missing_eos_penalty_is_not_scaled_by_the_normalisation() -> None:
    mine = computer(lengths, normalize="batch", missing_eos_penalty=2.0)
    scores = mine.normalize_rewards([1000.0, 3000.0], torch.tensor([True, False]))
    assert scores == pytest.approx([-1.0, 1.0 - 2.0])


def test_scores_that_are_reported_are_raw_and_normalising_leaves_them_so() -> None:
    mine = computer(lengths, normalize="batch", missing_eos_penalty=1.0)
    raw = mine.compute_rewards(PROMPTS, RESPONSES)
    mine.normalize_rewards(raw, torch.tensor([False] * 3))
    assert raw == [3.0, 3.0, 7.0]


def test_several_python_functions_are_given_as_a_list_with_weights(make_config: Callable[..., PPOConfig]) -> None:
    config = make_config(reward=("vowels", "lengths"), reward_weights=(1.0, 0.5))
    trainer = PPOTrainer(config, reward=[vowels, lengths])
    texts, _ = trainer.generator.generate(PROMPTS[:2])
    plain = [str(text) for text in texts]
    expected = [v + 0.5 * n for v, n in zip(vowels([], plain), lengths([], plain), strict=True)]
    assert trainer.reward_computer.compute_rewards(texts) == pytest.approx(expected)
    with pytest.raises(RewardError, match="same name"):
        PPOTrainer(config, reward=[vowels, vowels])


def test_a_file_without_a_function_says_how_to_name_one(make_config: Callable[..., PPOConfig]) -> None:
    with pytest.raises(RewardError, match=r"Write mine\.py:function"):
        build_reward("mine.py", make_config(), None)


def test_an_error_in_a_reward_names_the_line_of_the_users_file(tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text("def score(prompts, responses):\n    return [{}['oops']]\n")
    reward = FunctionReward(load_function(f"{tmp_path}/faulty.py:score"), "faulty", 5)
    with pytest.raises(RewardError, match=r"faulty\.py, line 2"):
        RewardComputer({"faulty": reward}).compute_rewards(PROMPTS[:1], RESPONSES[:1])
