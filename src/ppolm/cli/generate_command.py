"""``ppolm generate``."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from tqdm import tqdm

from ppolm.cli.settings import SamplingArguments, parse
from ppolm.config import PPOConfig
from ppolm.data.load_rows import load_prompts
from ppolm.data.prompts import as_prompts, preview
from ppolm.errors import ConfigError
from ppolm.messages import brief, json_text, printable

if TYPE_CHECKING:
    from ppolm.rollout.generated_text import GeneratedText


PROMPTS_AT_ONCE = 32
MOST_SAMPLES = 10_000
"""The most responses per prompt: they are all in memory at once."""


@dataclass(frozen=True)
class GenerateArguments(SamplingArguments):
    """Sample from the best policy of a run, from any PEFT adapter, or from a bare model."""

    run: str | None = None
    """Run folder: its base model, best adapter and sampling settings."""
    model_name: Annotated[str | None, tyro.conf.arg(aliases=["--model"])] = None
    """Base model, instead of a run."""
    adapter: str | None = None
    """PEFT adapter folder: with --model-name, or instead of the run's best."""
    prompt: tuple[str, ...] = ()
    """One or more prompts."""
    prompts: str | None = None
    """File or dataset with prompts."""
    chat: Literal["auto", "yes", "no"] = "auto"
    """Pass text prompts through the model's chat template as user messages. auto: as the run was trained; no for a bare
    model, because many base models have a template although they only continue text."""
    skip_bad_rows: bool = False
    """Leave out and count rows of --prompts that cannot be used, instead of failing."""
    samples: int = 1
    """Responses per prompt."""
    max_new_tokens: int | None = None
    """Longest response. Default: the run's, or 64."""
    temperature: float | None = None
    """Default: the run's, or 1. 0 always takes the most likely token."""
    top_k: int | None = None
    """Default: the run's, or 50."""
    top_p: float | None = None
    """Default: the run's, or 0.95."""
    seed: int = 0
    """Seed of the samples."""
    json: bool = False
    """Print one JSON object per response."""


def main(argv: list[str]) -> None:
    """Print the responses."""
    arguments = parse(GenerateArguments, "ppolm generate", argv)
    rows = load_prompts(arguments.prompts, skip_bad=arguments.skip_bad_rows) if arguments.prompts else []
    prompts = [*arguments.prompt, *rows]
    if not 1 <= arguments.samples <= MOST_SAMPLES:
        raise ConfigError(f"samples is {brief(arguments.samples)}, expected at least 1 and at most {MOST_SAMPLES:,}.")
    if not 0 <= arguments.seed < 2**63:
        raise ConfigError(f"seed is {brief(arguments.seed)}, expected between 0 and 2^63 - 1.")
    if not prompts:
        raise ConfigError("There are no prompts. Give --prompt 'text' or --prompts FILE.")
    from ppolm.base_setup import AdapterSet, BaseModelSetup, new_lora_config
    from ppolm.engines.build_engine import build_engine, release_engine
    from ppolm.models import PolicyModel
    from ppolm.rollout.generator import Generator
    from ppolm.rollout.sampling import Sampling
    from ppolm.runs.chat_prompts import as_chat, trained_on_chats

    config, adapter = config_and_adapter(arguments, argv)
    if arguments.chat == "yes" or (arguments.chat == "auto" and trained_on_chats(adapter)):
        prompts = [as_chat(prompt) for prompt in as_prompts(prompts)]
    adapters = AdapterSet(BaseModelSetup(config))
    if adapter is None:
        adapters.create("policy", new_lora_config(config, adapters.setup.causal_lm))  # new: it has no effect
    else:
        adapters.load("policy", adapter)
    sampling = dataclasses.replace(Sampling.of(config), greedy=arguments.temperature == 0)
    engine = build_engine(config, PolicyModel(adapters))
    generator = Generator(engine, adapters.setup, sampling, arguments.seed, arguments.samples)
    batches = [prompts[start : start + PROMPTS_AT_ONCE] for start in range(0, len(prompts), PROMPTS_AT_ONCE)]
    try:
        for batch in tqdm(batches, desc="sampling", unit="batch", disable=len(batches) == 1 or not sys.stderr.isatty()):
            show(generator.generate(batch)[0], arguments.json)
    finally:
        release_engine(engine)


def show(texts: list[GeneratedText], as_json: bool) -> None:
    """Print the responses of a batch."""
    for text in texts:
        if as_json:
            print(json_text({"prompt": text.prompt.content, "response": text, "ended": text.ended}))
        else:
            print(f"prompt    {preview(text.prompt.content)}\nresponse  {printable(str(text).strip())}\n")


def config_and_adapter(arguments: GenerateArguments, argv: Sequence[str]) -> tuple[PPOConfig, str | None]:
    """The run's configuration, or defaults for a bare model, overridden by flags; and the adapter to load."""
    from ppolm.storage.code_consent import ask_consent
    from ppolm.storage.stored_run import find_best, read_run_config

    if (arguments.run is None) == (arguments.model_name is None):
        raise ConfigError("Give either --run RUN or --model-name MODEL (with --adapter FOLDER if there is one).")
    adapter = arguments.adapter
    if arguments.run is not None:
        config = read_run_config(Path(arguments.run))
        ask_consent(Path(arguments.run), config, argv, "generate --run", rewards=False)
        adapter = adapter or str(find_best(Path(arguments.run)))
    else:
        # A server that takes the adapters of a run takes a new one of rank 1, which has no effect either.
        config = PPOConfig(model_name=str(arguments.model_name), max_new_tokens=64, lora_r=1)
    given = {name: getattr(arguments, name) for name in ("max_new_tokens", "temperature", "top_k", "top_p")}
    changes = arguments.given() | {name: value for name, value in given.items() if value is not None}
    if changes.get("temperature") == 0:
        del changes["temperature"]
    return config.overridden(**changes), adapter
