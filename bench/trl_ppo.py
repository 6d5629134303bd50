"""The peer's side of the speed comparison: TRL's PPOTrainer, timed by phase; prints one JSON line.

TRL 1.12.0 is the last release with PPO. It runs in its own environment:

uv run --no-project --with trl==1.12.0 --with peft --with torch python -m bench.trl_ppo --shape small --batch 32

The trainer's code is not changed: the phases are timed by wrapping functions that its module calls.
  generation    batch_generation()
  scoring       from there to the first forward pass with gradients: log-probabilities, values, rewards, advantages
  optimisation  from there until metrics are logged: all PPO epochs
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import warnings
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

from bench.machine import peak_gib
from bench.shapes import LINEAR, LORA_R, TEMPERATURE, make_prompts, make_tokenizer, model_config, parser


def make_trainer(given: Any) -> Any:
    """TRL's trainer with a LoRA policy and a LoRA value model on random weights."""
    import peft
    import torch
    import transformers
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(int(given.threads))
    torch.manual_seed(0)
    config, dtype = model_config(given.shape), getattr(torch, given.dtype)
    config.num_labels = 1
    policy = AutoModelForCausalLM.from_config(config, dtype=dtype)
    value, reward = (AutoModelForSequenceClassification.from_config(config, dtype=dtype) for _ in range(2))
    reward.requires_grad_(False)
    lora = {"r": LORA_R, "lora_alpha": 2 * LORA_R, "lora_dropout": 0.0, "target_modules": list(LINEAR)}
    peft.inject_adapter_in_model(peft.LoraConfig(**lora), value)
    for name, parameter in value.named_parameters():
        parameter.requires_grad_("lora_" in name or name.startswith("score"))
    # TRL does not support several samples per prompt, so rows are repeated.
    unique = make_prompts(given.shape, max(4 * given.batch, 64) // given.samples, given.shortest, given.longest)
    data = Dataset.from_dict({"input_ids": [ids for ids in unique for _ in range(given.samples)]})
    micro = given.micro or given.batch
    arguments = PPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=given.batch // micro,
        num_mini_batches=1,
        total_episodes=given.batch * given.steps,
        num_ppo_epochs=given.epochs,
        response_length=given.response,
        local_rollout_forward_batch_size=64,
        num_sample_generations=0,
        bf16=False,
        gradient_checkpointing=False,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        stop_token=None,
        disable_tqdm=True,
        seed=0,
        temperature=TEMPERATURE,
    )
    return PPOTrainer(
        args=arguments,
        processing_class=make_tokenizer(),
        model=policy,
        ref_model=None,
        reward_model=reward,
        value_model=value,
        train_dataset=data,
        eval_dataset=data.select(range(8)),
        peft_config=peft.LoraConfig(**lora, task_type="CAUSAL_LM"),
    )


def main() -> None:
    given = parser(__doc__).parse_args()
    warnings.filterwarnings("ignore")
    import torch
    import trl
    import trl.experimental.ppo.ppo_trainer as module

    trainer = make_trainer(given)
    now: dict[str, float] = {}
    steps: list[dict[str, float]] = []
    kls: list[float] = []
    generate, forward = module.batch_generation, module.forward

    def timed_generate(*arguments: Any, **named: Any) -> Any:
        now.clear()
        now["start"] = time.perf_counter()
        answer = generate(*arguments, **named)
        now["generated"] = time.perf_counter()
        return answer

    def timed_forward(*arguments: Any) -> Any:
        if torch.is_grad_enabled():
            now.setdefault("scored", time.perf_counter())
        return forward(*arguments)

    def log(metrics: dict[str, float], *_: Any, **__: Any) -> None:
        end = time.perf_counter()
        kls.append(float(metrics["objective/kl"]))
        steps.append(
            {
                "generation": now["generated"] - now["start"],
                "scoring": now["scored"] - now["generated"],
                "optimisation": end - now["scored"],
                "total": end - now["start"],
            }
        )
        print(f"step {len(steps)}: {steps[-1]['total']:.2f} s", file=sys.stderr, flush=True)

    module.batch_generation, module.forward, trainer.log = timed_generate, timed_forward, log
    trainer.train()
    best = min(steps[1:] or steps, key=lambda one: one["total"])
    answer = {
        "peer": f"trl {trl.__version__}",
        "config": vars(given),
        "best_step_s": {name: round(value, 3) for name, value in best.items()},
        "steps_s": [round(one["total"], 3) for one in steps],
        "kl": [round(kl, 4) for kl in kls],
        "peak_rss_gib": round(peak_gib(), 3),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
