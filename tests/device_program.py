"""Everything that ppolm trains, on the CPU and on emulated devices: a program, started by whole/test_devices.py.

    python -m tests.device_program FOLDER cuda:0 mps:0

prints one JSON object: the results of every scenario on the CPU and on each device, the results of trainings that were
interrupted on one and resumed on the other, and how often the host waited for the device.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import transformers

from ppolm.batches import packing, packing_cost
from ppolm.cli import generate_command
from ppolm.config import ModelSettings, PPOConfig, RewardConfig, SFTConfig
from ppolm.data.examples import Demonstration, Judgement, Preference, Rating, Thumb
from ppolm.data.prompts import Prompt
from ppolm.measures import intervals
from ppolm.models.base_model import BaseModel
from ppolm.names import SamplerKind
from ppolm.ppo_trainer import PPOTrainer
from ppolm.readiness import assess
from ppolm.rollout.samplers import sample
from ppolm.rollout.sampling import Sampling
from ppolm.runs import training_run
from ppolm.runs.results import TrainingResults
from ppolm.supervised import RewardTrainer, SFTTrainer, head_fit
from ppolm.supervised.load_reward import load_reward_model
from ppolm.supervised.supervised_trainer import SupervisedTrainer
from tests.device_waits import count_waits
from tests.emulated_device import emulated
from tests.tiny_models import make_model_folder

Numbers = dict[str, Any]
PROMPTS = [f"Tell me about {thing}:" for thing in ("cats", "the sea", "a long winter", "bread", "old maps", "rain")]
DEMONSTRATIONS = [Demonstration(Prompt(f"Say yes {number}:"), f" yes {number}") for number in range(20)]
JUDGEMENTS: list[Judgement] = [
    *(Preference(Prompt(f"Be kind {n}:"), f" kind {n}", f" rude {n}", tie=n % 5 == 4) for n in range(12)),
    *(Rating(Prompt(f"Be brief {n}:"), " so" * n, float(n)) for n in range(1, 7)),
    *(Thumb(Prompt(f"Be glad {n}:"), f" glad {n}", n % 2 == 0) for n in range(6)),
]
SAMPLERS: Numbers = {"without": ("slot_sampler", "decode_matrices", "library_cache")}
"""Supervised training does not sample, and trying the samplers would take most of its time here."""
LORA: Numbers = {"lora_r": 4, "lora_alpha": 8, "dtype": "float32", "trainable_layers": 1}
SUPERVISED: Numbers = (
    LORA
    | SAMPLERS
    | {
        "batch_size": 4,
        "learning_rate": 1e-2,
        "warmup_steps": 0,
        "eval_every": 2,
        "eval_fraction": 0.3,
        "checkpoint_every": 2,
        "lora_dropout": 0.2,
    }
)


packing_cost.PAYS = 1e9  # forces packing, which would not pay for such short prompts
WIDTHS, packing.ALIGNED = packing.ALIGNED, 1
"""Dropout draws a number per place: in rows of other widths it would draw others than on the CPU. PPO has none."""


class Scenarios:
    """The scenarios on one device; folders of other devices may be read."""

    def __init__(self, root: Path, device: str) -> None:
        self.root, self.device = root, device
        self.folder = root / device.replace(":", "")
        self.base = {"model_name": str(root / "qwen3"), "device": device}

    def all(self) -> Numbers:
        """Every scenario, in the order of their dependencies."""
        first = (self.sft, self.reward, self.readiness, self.ppo, self.resume)
        return {step.__name__: step() for step in (*first, self.generate, self.samplers, self.fallbacks, self.saving)}

    def sft(self) -> Numbers:
        """SFT of an adapter on the top block, with packed rows."""
        trainer = self.sft_trainer()
        history = trainer.train()
        trainer.save(self.folder / "sft")
        return {"history": history, "fast": fast_paths(trainer.model) | {"packing": trainer.packing}}

    def sft_trainer(self, **changes: Any) -> SFTTrainer:
        """A new trainer that has not trained yet."""
        return SFTTrainer(SFTConfig(**self.base | SUPERVISED | changes), DEMONSTRATIONS)

    def reward(self) -> Numbers:
        """A reward model from comparisons, scores and thumbs."""
        trainer = self.reward_trainer()
        history = trainer.train()
        trainer.save(self.folder / "reward")
        scale = {"mean": trainer.model.mean, "std": trainer.model.std}
        return {"history": history, "scale": scale, "fast": fast_paths(trainer.model) | {"packing": trainer.packing}}

    def reward_trainer(self, **changes: Any) -> RewardTrainer:
        """A new trainer that has not trained yet."""
        settings = self.base | SUPERVISED | {"centre_coef": 0.01, "learning_rate": 1e-3}
        return RewardTrainer(RewardConfig(**settings | changes), JUDGEMENTS)

    def readiness(self) -> Numbers:
        """The report on that reward model."""
        settings = ModelSettings(device=self.device, dtype="float32", **SAMPLERS)
        model = load_reward_model(str(self.folder / "reward"), settings=settings)
        return assess(JUDGEMENTS, model.score_texts).to_dict()

    def ppo_trainer(self, **changes: Any) -> PPOTrainer:
        """A new trainer that has not trained yet: prompts are packed, the lower block is shared."""
        return PPOTrainer(self.ppo_config(**changes))

    def ppo_config(self, **changes: Any) -> PPOConfig:
        """Two PPO steps, with everything that has a state between steps."""
        settings = (
            self.base
            | LORA
            | {
                "output_dir": str(self.folder / "runs"),
                "run_name": "run",
                "trainable_layers": None,  # the loaded adapters determine it
                "sft_adapter": str(self.folder / "sft"),
                "reward_model": (str(self.folder / "reward"),),
                "reward": ("model",),
                "value_init": "reward",
                "batch_size": 4,
                "minibatch_size": 4,
                "ppo_epochs": 2,
                "samples_per_prompt": 2,
                "microbatch_tokens": 64,
                "max_new_tokens": 10,
                "learning_rate": 1e-3,
                "value_learning_rate": 1e-3,
                "normalize_rewards": "running",
                "target_kl": 1.0,
                "max_steps": 2,
                "eval_every": 1,
                "eval_fraction": 0.34,
                "checkpoint_every": 1,
                "table_every": 1,
                "log_to": (),
                "collapse_reward_drop": 1e6,
            }
        )
        return PPOConfig(**settings | changes)

    def train_ppo(self, resume: Path | None = None, **changes: Any) -> tuple[PPOTrainer, TrainingResults]:
        """Train, from the start or a checkpoint."""
        with patch.object(packing, "ALIGNED", WIDTHS):
            trainer = self.ppo_trainer(**changes)
            return trainer, trainer.train(PROMPTS, resume=resume)

    def ppo(self) -> Numbers:
        """Two steps with evaluations, in a run folder."""
        trainer, results = self.train_ppo()
        policy, adapters = trainer.models.policy, trainer.models.adapters
        found = trainer.models.setup.capabilities
        slots = found.sampler_for(20) == "slots" and found.has("decode_matrices")
        fast = fast_paths(policy) | {"packs_prompts": adapters.packs_prompts, "slots": slots}
        texts = (results.run_dir / "samples.jsonl").read_text().splitlines()
        return {
            "steps": [numbers_of(row) for row in results.metrics],
            "evaluations": [numbers_of(row) for row in results.evaluations],
            "texts": [json.loads(line)["response"] for line in texts],
            "fast": fast,
        }

    def resume(self) -> Numbers:
        """The second PPO step again, and the rest of two interrupted supervised trainings."""
        interrupt(self.sft_trainer(), self.folder / "sft-checkpoint")
        interrupt(self.reward_trainer(), self.folder / "reward-checkpoint")
        return self.go_on_with(self)

    def generate(self) -> Numbers:
        """The output of ``ppolm generate`` for the run."""
        printed = io.StringIO()
        flags = ["--run", str(self.folder / "runs" / "run"), "--device", self.device, "--json", "--samples", "2"]
        with redirect_stdout(printed):
            generate_command.main([*flags, "--prompt", *PROMPTS[:2]])
        return {"texts": [json.loads(line)["response"] for line in printed.getvalue().splitlines()]}

    def samplers(self) -> Numbers:
        """Each sampler on prompts of equal and of different lengths: the library builds other masks for these."""
        trainer = self.ppo_trainer()
        setup, policy = trainer.models.setup, trainer.models.policy
        different = [setup.tokenizer.encode(prompt) for prompt in PROMPTS]
        equal = [ids[: min(map(len, different))] for ids in different]
        random = torch.rand(len(PROMPTS), 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        kinds: tuple[SamplerKind, ...] = ("slots", "cache", "whole")
        found: Numbers = {}
        for name, prompts in (("different", different), ("equal", equal)):
            with policy.active():
                drawn = {kind: sample(kind, setup, prompts, Sampling(12), random) for kind in kinds}
            ids = [[one.token_ids for one in own] for own in drawn.values()]
            assert ids[0] == ids[1] == ids[2], f"the samplers draw different texts on {self.device}"
            found[name] = {kind: [[*one.token_ids, *one.logprobs] for one in own] for kind, own in drawn.items()}
        return found

    def fallbacks(self) -> Numbers:
        """An architecture without fast paths, rows without packing, all weights trained, a fitted head."""
        changes = {"model_name": str(self.root / "gpt2"), "packing": False, "trainable_layers": None}
        return {
            "sft": self.sft_trainer(**changes, train="all").train(),
            "reward": self.reward_trainer(**changes, head_init="fit").train(),
        }

    def saving(self) -> Numbers:
        """Weights in float16 and recomputed blocks, with dropout and without; the policy is scored, not believed."""
        changes = {"dtype": "float16", "gradient_checkpointing": "on"}
        ppo = self.ppo_trainer(**changes, sft_adapter=None, trainable_layers=1)
        step = ppo.ppo_step(PROMPTS[:2])
        weights = [float(value.float().norm()) for value in ppo.models.policy.parameters().values()]
        return {
            "sft": self.sft_trainer(**changes).train(),
            "losses": [step["policy_loss"], step["value_loss"]],
            "weights": weights,
        }

    def go_on_with(self, other: Scenarios) -> Numbers:
        """Resume trainings that were interrupted on another device, or on this one."""
        checkpoint = other.folder / "runs" / "run" / "checkpoints" / "step-000001"
        start = {"sft_adapter": str(other.folder / "sft"), "reward_model": (str(other.folder / "reward"),)}
        return {
            "ppo": [numbers_of(row) for row in self.train_ppo(checkpoint, **start)[1].metrics],
            "sft": self.sft_trainer().train(other.folder / "sft-checkpoint"),
            "reward": self.reward_trainer().train(other.folder / "reward-checkpoint"),
        }


def fast_paths(model: BaseModel) -> dict[str, bool]:
    """Whether the fast paths are used: otherwise a fallback could hide a mistake in one of them."""
    grouped = model.setup.capabilities.has("grouped_attention")
    last = model.setup.last_block is not None
    return {"last_block": last, "trunk": model.adapters.trunk is not None, "grouped": grouped}


def numbers_of(row: Numbers) -> Numbers:
    """The reproducible metrics: all but timings."""
    return {name: value for name, value in row.items() if not name.startswith("seconds/")}


def interrupt(trainer: SupervisedTrainer[Any], checkpoint: Path) -> None:
    """Start training and stop after the third update: the checkpoint is then that of the second."""
    update = trainer.updater.update

    def until_third(*arguments: Any) -> Any:
        if trainer.step == 3:
            raise KeyboardInterrupt
        return update(*arguments)

    with suppress(KeyboardInterrupt), patch.object(trainer.updater, "update", until_third):
        trainer.train(checkpoint)
    assert trainer.step == 3, f"it stopped after {trainer.step} updates, expected 3: give it more rows"


def main(root: Path, names: Sequence[str]) -> None:
    """Run everything on the CPU and on the devices, and print the results."""
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    head_fit.PENALTIES = head_fit.PENALTIES[:3]
    intervals.RESAMPLES = 100
    for architecture in ("qwen3", "gpt2"):
        make_model_folder(root / architecture, architecture, scale=3.0)
    host = Scenarios(root, "cpu")
    with patch.object(training_run, "write_report"):  # plots take long, and do not depend on the device
        found: Numbers = {"cpu": host.all()}
        for name in names:
            device = Scenarios(root, name)
            with emulated(name):
                found[name] = device.all() | {"from_cpu": device.go_on_with(host)}
                found[name]["waits"] = count_waits(device.ppo_trainer(), PROMPTS)
            found[name]["to_cpu"] = host.go_on_with(device)  # as on a machine that has no such device
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
