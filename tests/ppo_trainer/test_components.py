"""Every component of a trainer can be replaced, and takes part in steps, metrics, checkpoints and a resume."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm import components as parts
from ppolm.advantage import AdvantageComp, GAEAdvantage, ReturnCalculator, TDError
from ppolm.advantage.advantage_comp import Advantages, Returns, TDErrors
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from ppolm.ppo_trainer import PPOTrainer
from ppolm.ppo_trainer.default_components import DefaultComponents
from ppolm.reward_kl import KLDivergence, RewardAdjuster
from ppolm.state import State
from ppolm.storage.state_files import copied, load_states, save_states
from tests.conftest import PROMPTS, spread
from tests.runs.compared_runs import numbers
from tests.table_cases import full_table

MakeConfig = Callable[..., PPOConfig]
OWN: dict[str, Any] = {"spread": spread}


class Counting:
    """Wraps a component: forwards everything, counts calls of its protocol's methods, and stores the count with the
    component's state."""

    def __init__(self, inner: Any, protocol: Any) -> None:
        self.inner, self.calls = inner, 0
        self.declared = {name for name in vars(protocol) if not name.startswith("_")} | {"state_dict"}

    def __getattr__(self, name: str) -> Any:
        if name in ("inner", "declared"):  # not set yet
            raise AttributeError(name)
        if name not in self.declared | {"load_state_dict"}:
            raise AttributeError(f"{name} is not in the protocol: nobody may ask a component for it")
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def counted(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            return found(*arguments, **options)

        return counted

    def __len__(self) -> int:
        return len(self.inner)

    def state_dict(self) -> State:
        return {"inner": self.inner.state_dict(), "calls": self.calls}

    def load_state_dict(self, state: State) -> None:
        self.inner.load_state_dict(state["inner"])
        self.calls = int(state["calls"])


PROTOCOLS: dict[str, Any] = {
    "generator": parts.TextGenerator,
    "attributor": parts.Attributor,
    "kl": parts.KLCoefficient,
    "kl_divergence": parts.KLEstimator,
    "reward_computer": parts.Rewarder,
    "reward_adjuster": parts.Adjuster,
    "value_adder": parts.ValueEstimator,
    "td_error": TDErrors,
    "gae_advantage": Advantages,
    "return_calculator": Returns,
    "advantage_comp": parts.AdvantageEstimator,
    "buffer": parts.Buffer,
    "model_trainer": parts.PolicyAndValueTrainer,
}


def original(name: str, config: PPOConfig, models: Models) -> Any:
    """The component that would be used if none were given."""
    made = DefaultComponents(config, models, OWN)
    if name == "model_trainer":
        return made.model_trainer(made.kl())
    stages = made.advantage_comp()
    return getattr(stages, name) if name in stages.stages() else getattr(made, name)()


SETTINGS: dict[str, Any] = {
    "eval_every": 2,
    "eval_fraction": 0.4,
    "batch_size": 2,
    "minibatch_size": 2,
    "checkpoint_every": 2,
    "replay_rollouts": 2,
    "normalize_rewards": "running",
}


def train(config: PPOConfig, name: str | None, resume: Path | None = None) -> tuple[Path, Any]:
    """A run with one component wrapped in ``Counting``, and the wrapper."""
    models, replaced = setup_models(config), dict[str, Any]()
    if name is not None:
        replaced[name] = Counting(original(name, config, models), PROTOCOLS[name])
    trainer = PPOTrainer(config, reward=OWN, models=models, **replaced)
    results = trainer.train(PROMPTS, 10, resume=resume)
    return results.run_dir, replaced.get(name or "")


@pytest.fixture(scope="module")
def plain_numbers() -> dict[str, Any]:
    """The metrics of the run with nothing replaced, computed once."""
    return {}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_replaced_component_serves_a_whole_run_with_resume(
    name: str, make_config: MakeConfig, plain_numbers: dict[str, Any]
) -> None:
    if not plain_numbers:
        run, _ = train(make_config(**SETTINGS, max_steps=4, run_name="plain"), None)
        plain_numbers.update(train=numbers(run), eval=numbers(run, "eval"))
    run, first = train(make_config(**SETTINGS, max_steps=2, run_name=name), name)
    assert first.calls > 0
    _, second = train(make_config(**SETTINGS, max_steps=4, run_name=name), name, resume=run)
    assert second.calls > first.calls, "its own state is in the checkpoint"
    assert numbers(run) == plain_numbers["train"]
    assert numbers(run, "eval") == plain_numbers["eval"]


def test_every_argument_of_the_trainer_that_is_a_component_is_replaced_above() -> None:
    others = {"self", "config", "reward", "models", "evaluator"}
    assert set(inspect.signature(PPOTrainer).parameters) - others == set(PROTOCOLS)


def test_what_a_checkpoint_keeps_is_the_state_of_every_component(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(), reward=spread)
    assert set(trainer.components()) | {"td_error", "gae_advantage", "return_calculator"} == set(PROTOCOLS)


def test_a_state_comes_back_from_its_files_exactly(tmp_path: Path, make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(), reward=spread)
    table = full_table(trainer)
    deep: dict[str, Any] = {"a/b.c": torch.arange(3.0), "none": torch.zeros(0), "empty": {}}
    states: dict[str, State] = {
        "one": {"number": 1, "text": "x", "deep": deep, "tables": [table, table]},
        "two": {},
    }
    rest = save_states(tmp_path, states)
    back = load_states(tmp_path, rest, trainer.models.setup.tokenizer)
    assert back["two"] == {}
    one = back["one"]
    assert (one["number"], one["text"], one["deep"]["empty"]) == (1, "x", {})
    assert torch.equal(one["deep"]["a/b.c"], deep["a/b.c"])
    assert len(one["deep"]["none"]) == 0
    assert [len(part) for part in one["tables"]] == [len(table)] * 2
    assert torch.equal(one["tables"][1].column("advantage"), table.column("advantage"))


def test_a_tensor_without_a_name_cannot_be_in_a_state(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="state of mine has a tensor in a list"):
        save_states(tmp_path, {"mine": {"several": [torch.zeros(1)]}})


def test_a_copied_state_does_not_change_with_the_original() -> None:
    moments = torch.zeros(2)
    kept = copied({"deep": {"moments": moments}, "list": [1, {"x": moments}]})
    moments.add_(1)
    assert kept["deep"]["moments"].tolist() == kept["list"][1]["x"].tolist() == [0.0, 0.0]


# ---- The stages named in document 004 -------------------------------------------------------------------------------


def test_the_stages_have_the_methods_of_the_documents(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(), reward=spread)
    pairs, texts = trainer.sequence_generator.generate_sequences(PROMPTS[:3])
    pairs = KLDivergence().add_kl_to_sa_pairs(pairs)
    pairs = RewardAdjuster().adjust_rewards_with_kl(pairs, [1.0, 2.0, 3.0], kl_coef=0.1)
    pairs = trainer.value_adder.add_values_to_sa_pairs(pairs)
    pairs = TDError(0.9).compute_td_errors(pairs)
    pairs = GAEAdvantage(0.5, 0.5).compute_gae_advantages(pairs, gamma=0.9, lam=0.8)
    pairs = ReturnCalculator(0.9).add_reward_to_go(pairs)
    expected = AdvantageComp(0.9, 0.8).add_advantages(pairs)
    for name in ("td_error", "advantage", "return", "reward_to_go"):
        assert torch.equal(pairs.column(name), expected.column(name))
    assert len(texts) == 3


@pytest.mark.parametrize("stage", [KLDivergence("k3"), RewardAdjuster(), TDError(0.9), GAEAdvantage(1, 1)])
def test_a_stage_is_nothing_but_its_settings(stage: Any) -> None:
    assert stage.state_dict() == {}
    with pytest.raises(AttributeError):
        stage.gamma = 0.0
