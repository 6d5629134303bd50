"""A reward function is found by name, gets the arguments it asks for, and is built as configured."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ppolm.base_setup.model_setup import Models
from ppolm.config import PPOConfig
from ppolm.errors import RewardError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ppo_trainer.reward_computer import RewardComputer
from ppolm.rewards.build import build_reward, build_rewards, named_rewards
from ppolm.rewards.function_reward import FunctionReward, load_function
from ppolm.rewards.http_reward import HTTPReward
from ppolm.rollout.generated_text import GeneratedText
from tests.conftest import vowels
from tests.reward_cases import PROMPTS, RESPONSES, ROWS, computer, lengths

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
    """Writes a reward file in a folder that is not on ``sys.path``."""
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
    with pytest.raises(RewardError, match=r"'modl' is not understood. Expected model, human, module:function"):
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

    given: list[tuple[Any, ...]] = [(texts,), (ROWS, texts), (ROWS, RESPONSES)]
    one, two, three = (computer(score).compute_rewards(*arguments) for arguments in given)
    assert one == two == three
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
