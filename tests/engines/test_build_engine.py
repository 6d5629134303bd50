"""The setting ``engine`` chooses what samples, and nothing is sampled with what is not there or not trusted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from ppolm.base_setup.model_setup import Models
from ppolm.cli.main import main as ppolm
from ppolm.cli.settings import parse_train
from ppolm.config import PPOConfig
from ppolm.engines import build_engine as engines
from ppolm.engines.build_engine import build_engine
from ppolm.errors import ConfigError
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ppo_trainer.default_components import DefaultComponents
from tests.conftest import spread

MakeConfig = Callable[..., PPOConfig]


@pytest.fixture
def without_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which mlx-lm is not installed."""
    find = engines.find_spec
    monkeypatch.setattr(engines, "find_spec", lambda name: None if name.startswith("mlx") else find(name))


def test_the_local_engine_is_the_policy_itself(make_config: MakeConfig, models: Models) -> None:
    assert make_config().engine == "local"
    assert build_engine(make_config(), models.policy) is models.policy


def test_the_flag_is_the_setting() -> None:
    assert parse_train(["--engine", "mlx"]).settings.engine == "mlx"


def test_an_engine_that_does_not_exist_is_refused(make_config: MakeConfig) -> None:
    with pytest.raises(ConfigError, match=r"engine is 'metal', expected .*local.*mlx"):
        make_config(engine="metal")


@pytest.mark.usefixtures("without_mlx")
def test_without_mlx_the_error_says_what_to_install_and_no_model_is_loaded(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(_: Any) -> Any:
        raise AssertionError("loaded a model for nothing")

    monkeypatch.setattr("ppolm.ppo_trainer.ppo_trainer.setup_models", load)
    with pytest.raises(ConfigError, match=r"there is no mlx and no mlx_lm\..*ppolm\[mlx\].*engine: local"):
        PPOTrainer(make_config(engine="mlx"), reward=spread)


def test_mlx_without_a_build_for_this_machine_is_said_too(
    make_config: MakeConfig, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda _: "found")
    monkeypatch.setitem(sys.modules, "ppolm.engines.mlx_engine", None)  # importing it fails
    with pytest.raises(ConfigError, match=r"cannot be imported: import of ppolm.engines.mlx_engine halted.*Install"):
        build_engine(make_config(engine="mlx"), models.policy)


@pytest.mark.usefixtures("without_mlx")
def test_on_the_command_line_it_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        ppolm(["generate", "--model-name", "embedded", "--prompt", "Hello", "--engine", "mlx"])
    assert end.value.code == 1
    error = capsys.readouterr().err
    assert "pip install 'ppolm[mlx]'" in error
    assert "Traceback" not in error


def test_log_probabilities_of_another_library_are_never_used_for_the_update(
    make_config: MakeConfig, models: Models
) -> None:
    trusting = DefaultComponents(make_config(), models).attributor()
    checking = DefaultComponents(make_config(engine="mlx"), models).attributor()
    for attributor in (trusting, checking):
        attributor.observe(0.0)  # the sampler agreed perfectly in the last step
    assert not trusting.recomputes
    assert checking.recomputes
    with pytest.raises(ConfigError, match=r"recompute_logprobs 'never' trusts .* engine 'mlx'"):
        make_config(engine="mlx", recompute_logprobs="never")
