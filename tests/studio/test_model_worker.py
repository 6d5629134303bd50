"""A real model in a process of its own: the embedded one, loaded once for all of these tests."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ppolm.embedded import REWARD
from ppolm.errors import ConfigError, ModelError, ModelProcessError, RunFolderError
from ppolm.studio.model_jobs import load_jobs
from ppolm.studio.model_workers import ModelWorkers
from ppolm.studio.worker_process import ModelChoice
from tests.conftest import ROOT
from tests.studio.worker_cases import POSTS, LoopThread, train_tiny_run

T = TypeVar("T")
ANSWER = "My roommate drives after drinking beer. It got worse at 3.50 in the night! Should I move out?"
COLUMNS = ("logprob_policy", "logprob_ref", "kl")


class Server:
    """An event loop with models, as the page's server has it."""

    def __init__(self, folder: Path) -> None:
        self.run = train_tiny_run(folder)
        self.loop = LoopThread()
        self.workers = ModelWorkers(most=2, device="cpu")
        self.last = ModelChoice("policy", self.run, "last")
        self.reward = ModelChoice("reward", REWARD)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine."""
        return self.loop.do(work)

    def ask(self, choice: ModelChoice, **asked: Any) -> dict[str, Any]:
        """A model's answer."""
        return self.do(self.workers.ask(choice, asked))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("runs"))
    yield server
    server.do(server.workers.close())
    server.loop.close()


def test_policy_and_reference_answer_with_the_settings_of_the_run(server: Server) -> None:
    result = server.ask(server.last, prompt=POSTS[0])
    sampling = {"temperature": 0.9, "top_k": 50, "top_p": 0.95, "max_new_tokens": 12, "greedy": False, "seed": 0}
    assert result["sampling"] == sampling
    assert result["prompt_text"] == result["prompt"] == POSTS[0]
    for name in ("policy", "reference"):
        answer = result[name]
        assert len({len(answer[column]) for column in (*COLUMNS, "pieces", "token_ids")}) == 1
        assert 1 <= len(answer["pieces"]) <= 12
        shown = "".join(answer["pieces"])
        assert shown.startswith(answer["text"])
        assert (shown == answer["text"]) is not answer["ended"], "the end is a piece of its own"
        assert answer["special"] == ([len(answer["pieces"]) - 1] if answer["ended"] else [])
        for policy, reference, kl in zip(*(answer[column] for column in COLUMNS), strict=True):
            assert kl == pytest.approx(policy - reference, abs=1e-6)
    assert sum(map(abs, result["policy"]["kl"])) > 0.01, "the policy has moved"
    assert server.ask(server.last, prompt=POSTS[0])["policy"] == result["policy"]


def test_an_answer_can_be_asked_for_otherwise(server: Server) -> None:
    texts = {server.ask(server.last, prompt=POSTS[1], seed=seed)["policy"]["text"] for seed in range(6)}
    assert len(texts) > 1
    likely = [server.ask(server.last, prompt=POSTS[1], greedy=True, seed=seed)["policy"]["text"] for seed in (0, 1)]
    assert likely[0] == likely[1]
    short = server.ask(server.last, prompt=POSTS[1], max_new_tokens=3, temperature=2, top_k=0, top_p=1.0)
    assert len(short["policy"]["pieces"]) <= 3
    assert (short["sampling"]["temperature"], short["sampling"]["top_k"]) == (2, 0)


def test_what_is_loaded_says_what_it_is(server: Server) -> None:
    server.ask(server.last, prompt=POSTS[2])
    about = next(model["about"] for model in server.workers.loaded() if model["which"] == "last")
    sampling = {"temperature": 0.9, "top_k": 50, "top_p": 0.95, "max_new_tokens": 12}
    assert about == {
        "model_name": "embedded",
        "step": 2,
        "chat": False,
        "device": "cpu",
        "context_length": 512,
        "sampling": sampling,
    }


def test_a_chat_is_asked_as_one(server: Server) -> None:
    result = server.ask(server.last, prompt="Hello", chat=True, max_new_tokens=2)
    assert result["prompt"] == [{"role": "user", "content": "Hello"}]
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"}, *result["prompt"]]
    assert server.ask(server.last, prompt=messages, max_new_tokens=2)["prompt"] == messages
    assert server.ask(server.last, prompt="Hello", max_new_tokens=2)["prompt"] == "Hello", "as the run was trained"


def test_a_long_prompt_leaves_less_room_and_a_longer_one_none(server: Server) -> None:
    words = "My roommate drives after drinking beer. "
    assert server.ask(server.last, prompt=words * 71, max_new_tokens=400)["sampling"]["max_new_tokens"] < 20
    with pytest.raises(ModelProcessError, match=r"has \d+ tokens, and the model reads 512 with its answer\. Shorten"):
        server.ask(server.last, prompt=words * 80)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "The prompt is NoneType"),
        ({"prompt": "  "}, "The prompt is empty"),
        ({"prompt": "x" * 300_000}, "300,000 characters, here at most 200,000"),
        ({"prompt": "half \ud800"}, "half a character"),
        ({"prompt": [{"role": "user"}]}, "must be a list of messages"),
        ({"prompt": "x", "max_new_tokens": 10**9}, "at most 2,048"),
        ({"prompt": "x", "max_new_tokens": -1}, "max_new_tokens is -1"),
        ({"prompt": "x", "temperature": 0}, "temperature is 0"),
        ({"prompt": "x", "temperature": "hot"}, "temperature is 'hot'"),
        ({"prompt": "x", "top_p": [1]}, "top_p is"),
        ({"prompt": "x", "seed": -1}, "seed is -1"),
        ({"prompt": "x", "seed": "1"}, "seed is '1'"),
        ({"prompt": "x", "greedy": 2}, "greedy is 2"),
        ({"prompt": "x", "chat": "yes"}, "chat is 'yes'"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_sentence(server: Server, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelProcessError) as error:
        server.ask(server.last, **asked)
    assert said in str(error.value)
    assert "Traceback" not in str(error.value)


def test_answers_are_scored_and_compared(server: Server) -> None:
    one = server.ask(server.reward, prompt=POSTS[0], answers=[ANSWER])
    assert one["first_wins"] is None
    two = server.ask(server.reward, prompt=POSTS[0], answers=[ANSWER, "I like cats."])
    first, second = two["answers"]
    assert first["score"] == pytest.approx(one["answers"][0]["score"], abs=1e-4)
    about = next(model["about"] for model in server.workers.loaded() if model["kind"] == "reward")
    assert first["score"] == pytest.approx((first["raw"] - about["mean"]) / about["std"])
    assert (two["first_wins"] > 0.5) is (first["raw"] > second["raw"])
    swapped = server.ask(server.reward, prompt=POSTS[0], answers=["I like cats.", ANSWER])
    assert swapped["first_wins"] == pytest.approx(1 - two["first_wins"], abs=1e-4)


def test_the_change_without_a_sentence_is_that_of_the_text_without_it(server: Server) -> None:
    (answer,) = server.ask(server.reward, prompt=POSTS[0], answers=[ANSWER], unit="sentence")["answers"]
    assert "".join(answer["pieces"]) == ANSWER
    assert len(answer["pieces"]) == 3, "3.50 ends no sentence"
    assert answer["cut"] is None
    for number, change in enumerate(answer["changes"]):
        rest = "".join(piece for at, piece in enumerate(answer["pieces"]) if at != number).lstrip()
        (without,) = server.ask(server.reward, prompt=POSTS[0], answers=[rest])["answers"]
        assert change == pytest.approx(without["score"] - answer["score"], abs=1e-4)


def test_tokens_are_left_out_one_by_one_and_no_more_than_agreed(server: Server) -> None:
    (answer,) = server.ask(server.reward, prompt=POSTS[0], answers=[ANSWER], unit="token")["answers"]
    assert "".join(answer["pieces"]) == ANSWER
    assert len(answer["changes"]) == len(answer["pieces"]) > 10
    assert None not in answer["changes"]
    long = "beer " * 300
    (answer,) = server.ask(server.reward, prompt="x", answers=[long], unit="token")["answers"]
    assert "".join(answer["pieces"]) == long
    assert [change is None for change in answer["changes"]].count(False) == 256
    assert f"Only the first 256 of {len(answer['pieces'])} tokens" in answer["cut"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"prompt": "x"}, "answers is None"),
        ({"prompt": "x", "answers": []}, "one or two texts"),
        ({"prompt": "x", "answers": ["a", "b", "c"]}, "one or two texts"),
        ({"prompt": "x", "answers": [1]}, "An answer is 1, expected text"),
        ({"prompt": "x", "answers": ["a"], "unit": "page"}, "unit is 'page'"),
        ({"prompt": "x", "answers": ["y" * 60_000]}, "60,000 characters, here at most 50,000"),
        ({"prompt": "x", "answers": ["word " * 9_000]}, "and the reward model reads at most"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_a_sentence(server: Server, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelProcessError) as error:
        server.ask(server.reward, **asked)
    assert said in str(error.value)


def test_an_empty_answer_has_a_score(server: Server) -> None:
    (answer,) = server.ask(server.reward, prompt=POSTS[0], answers=[""], unit="token")["answers"]
    assert answer["pieces"] == []
    assert isinstance(answer["score"], float)


def test_a_cancelled_request_leaves_the_model_loaded(server: Server) -> None:
    server.ask(server.last, prompt="x", max_new_tokens=1)
    pid = next(model["pid"] for model in server.workers.loaded() if model["which"] == "last")

    async def cancel() -> float:
        prompt = "SUBREDDIT: r/advice"
        asked = {"prompt": prompt, "max_new_tokens": 480, "temperature": 50.0, "top_k": 0, "top_p": 1.0}
        task = asyncio.create_task(server.workers.ask(server.last, asked))
        await asyncio.sleep(0.15)
        task.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [model["working"] for model in server.workers.loaded() if model["which"] == "last"] == [True]
        await server.workers.ask(server.last, {"prompt": "x", "max_new_tokens": 1})
        return time.monotonic() - began

    assert server.do(cancel()) < 4
    assert pid == next(model["pid"] for model in server.workers.loaded() if model["which"] == "last")


def test_a_killed_model_is_a_sentence_and_the_next_request_loads_it_again(server: Server) -> None:
    server.ask(server.reward, prompt="x", answers=["y"])
    pid = next(model["pid"] for model in server.workers.loaded() if model["kind"] == "reward")
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ModelProcessError, match=r"was killed \(SIGKILL\).*Ask again"):
        server.ask(server.reward, prompt="x", answers=["y"])
    assert server.ask(server.reward, prompt="x", answers=["y"])["answers"][0]["text"] == "y"


def test_a_folder_that_holds_no_model_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"is not a run folder: it has no config\.yaml"):
        load_jobs("policy", tmp_path, "best", "cpu")
    with pytest.raises(ModelError, match="adapter_config"):
        load_jobs("reward", tmp_path, "best", "cpu")


def test_a_checkpoint_is_found_by_its_name_and_another_is_refused(server: Server) -> None:
    assert load_jobs("policy", server.run, "step-000002", "cpu").about()["step"] == 2
    with pytest.raises(RunFolderError, match="step-000001 does not exist"):
        load_jobs("policy", server.run, "step-000001", "cpu")


def test_the_code_of_somebody_elses_run_or_reward_model_is_not_run(server: Server, tmp_path: Path) -> None:
    settings = (server.run / "config.yaml").read_text().replace("trust_remote_code: false", "trust_remote_code: true")
    (tmp_path / "config.yaml").write_text(settings.replace("model_name: embedded", "model_name: some/model"))
    with pytest.raises(ConfigError, match="was not started here by you, and would use the Python code of model some"):
        load_jobs("policy", tmp_path, "best", "cpu")
    trained = {"config": {"trust_remote_code": True, "model_name": "some/model"}}
    (tmp_path / "training.json").write_text(json.dumps(trained))
    with pytest.raises(ConfigError, match="was not started here by you, and would use the Python code of model some"):
        load_jobs("reward", tmp_path, "best", "cpu")


PARENT = """
import asyncio, sys
from pathlib import Path
from ppolm.studio.model_workers import ModelWorkers
from ppolm.studio.worker_process import ModelChoice

async def main():
    workers = ModelWorkers(device="cpu")
    await workers.ask(ModelChoice("reward", Path(sys.argv[1])), {"prompt": "x", "answers": ["y"]})
    print(workers.loaded()[0]["pid"], "torch" in sys.modules, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_the_server_needs_no_torch_and_a_model_does_not_outlive_a_killed_server() -> None:
    command = [sys.executable, "-c", PARENT, str(REWARD)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        pid, torch = parent.stdout.readline().split()
        assert torch == "False"
        os.kill(int(pid), 0)
        parent.kill()
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < until, "the model's process is still there"
        time.sleep(0.05)
