"""Build the embedded model and its reward model from scratch, with ppolm's own trainers.

    make embedded          writes src/ppolm/embedded/{model,reward,README.md}; on one machine the same bytes every time

Posts and summaries come from the grammar in ppolm.embedded.world, preferences from its gold judge. No downloads.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from ppolm.base_setup import AdapterSet, BaseModelSetup
from ppolm.config import RewardConfig, SFTConfig
from ppolm.data.examples import Demonstration, Preference, as_preference
from ppolm.data.prompts import Prompt
from ppolm.embedded import FOLDER
from ppolm.embedded.world import Post, world_posts
from ppolm.embedded.world.contrasts import contrast
from ppolm.embedded.world.gold import preference_row
from ppolm.embedded.world.rows import NOISE
from ppolm.embedded.world.summaries import reference_summary
from ppolm.embedded.world.tokenizer import make_tokenizer
from ppolm.models.full_finetune_model import FullFinetuneModel
from ppolm.names import EMBEDDED
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from ppolm.supervised import RewardTrainer, SFTTrainer
from scripts.model_card import POSTS, card, measure

BUILD_SEED = 1
"""Seed of the posts used for building; the demo trains on posts of seed 0."""


@dataclass(frozen=True)
class Sizes:
    """How much data each part of the build uses."""

    demonstrations: int = 80000
    preferences: int = 16000
    held_out: int = 512
    width: int = 128
    layers: int = 4
    measured: int = POSTS


def build(output: Path, sizes: Sizes, threads: int = 2) -> None:
    """Write model/, reward/ and their card into ``output``."""
    torch.set_num_threads(threads)  # floating-point sums depend on how they are split among threads
    torch.use_deterministic_algorithms(True)
    with tempfile.TemporaryDirectory() as scratch:
        start = Path(scratch) / "start"
        random_model(start, sizes)
        train_sft(start, output / "model", sizes)
        train_reward(output / "model", output / "reward", sizes)
    scores = measure(output / "model", output / "reward", sizes.measured)
    (output / "README.md").write_text(card(scores, about(output / "model", sizes)), encoding="utf-8")


def random_model(folder: Path, sizes: Sizes) -> None:
    """A Qwen3 with random weights, and a tokenizer that knows the words of the world."""
    tokenizer = make_tokenizer(f"{row.prompt.content}{row.completion}" for row in demonstrations(4000))
    torch.manual_seed(BUILD_SEED)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=sizes.width,
        intermediate_size=3 * sizes.width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=sizes.width // 4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))


def demonstrations(count: int, split: str = "train") -> list[Demonstration]:
    """Posts with reference summaries of mixed quality."""
    random = Random(f"demonstrations {split}")
    return [
        Demonstration(Prompt(post.text), f" {reference_summary(post.facts, random)}")
        for post in world_posts(split, count, BUILD_SEED)
    ]


def train_sft(start: Path, output: Path, sizes: Sizes) -> None:
    """Train all weights on demonstrations."""
    config = SFTConfig(
        model_name=str(start),
        train="all",
        packing=False,  # as in the first build: another order of summation changes the last bits
        learning_rate=3e-3,
        warmup_steps=100,
        batch_size=32,
        microbatch_tokens=16384,
        eval_every=250,
        device="cpu",
    )
    trainer = SFTTrainer(
        config, demonstrations(sizes.demonstrations), demonstrations(sizes.held_out, split="validation")
    )
    trainer.train()
    ship(trainer, output)


def train_reward(model: Path, output: Path, sizes: Sizes) -> None:
    """Train the reward adapter on preferences of the gold judge."""
    config = RewardConfig(
        model_name=str(model),
        lora_r=32,
        lora_alpha=64,
        lora_dropout=0.0,
        packing=False,
        max_reference_rows=None,
        learning_rate=2e-3,
        warmup_steps=20,
        batch_size=32,
        microbatch_tokens=16384,
        eval_every=100,
        device="cpu",
    )
    train = preferences(model, sizes.preferences, "train", NOISE)
    trainer = RewardTrainer(config, train, preferences(model, sizes.held_out, "validation", noise=0.0))
    trainer.train()
    ship(trainer, output)
    adapter = output / "adapter_config.json"
    settings = json.loads(adapter.read_text())
    # PEFT writes the modules as a set, whose order differs between processes.
    settings |= {"base_model_name_or_path": EMBEDDED, "target_modules": sorted(settings["target_modules"])}
    adapter.write_text(json.dumps(settings, indent=2, sort_keys=True))


def preferences(model: Path, count: int, split: str, noise: float) -> list[Preference]:
    """A quarter of the pairs are two samples of the SFT model, the others differ in one respect: see contrasts.py.

    The judge gets label noise as people have it; constructed pairs have none, since it is known which side is worse.
    """
    random = Random(f"preferences {split}")
    posts = world_posts(split, count, seed=BUILD_SEED + 1)
    judged, made = posts[: count // 4], posts[count // 4 :]
    samples = zip(judged, sample_twice(model, judged), strict=True)
    rows = [preference_row(post, pair, noise, random) for post, pair in samples if pair[0] != pair[1]]
    rows += [preference_row(post, contrast(post.facts, random), 0.0, random) for post in made]
    return [as_preference(row, f"pair {number}") for number, row in enumerate(rows)]


def sample_twice(model: Path, posts: Sequence[Post]) -> list[tuple[str, str]]:
    """Two summaries of each post by the SFT model."""
    setup = BaseModelSetup(SFTConfig(model_name=str(model), device="cpu"))
    role = FullFinetuneModel(AdapterSet(setup))
    texts, _ = Generator(role, setup, Sampling(48), seed=BUILD_SEED, samples_per_prompt=2).generate(
        [post.text for post in posts]
    )
    said = [text.strip() or "." for text in texts]
    return list(zip(said[::2], said[1::2], strict=True))


def about(model: Path, sizes: Sizes) -> dict[str, str]:
    """The facts for the model card."""
    setup = BaseModelSetup(SFTConfig(model_name=str(model), device="cpu"))
    weights = sum(parameter.numel() for parameter in setup.causal_lm.parameters())
    return {
        "architecture": f"Qwen3, {sizes.layers} layers, width {sizes.width}, tied embeddings, {weights:,} weights",
        "tokenizer": f"byte-level, {setup.text_config.vocab_size} tokens, one for each word of the world",
        "SFT": f"all weights, from scratch, {sizes.demonstrations:,} posts with a summary of mixed quality, one epoch",
        "reward model": f"LoRA on the SFT model, {sizes.preferences:,} preferences, one epoch",
        "preferences": f"a quarter: the gold judge between two samples of the SFT model, {NOISE:.0%} wrong on purpose; "
        "the others: pairs that differ in one respect, two thirds of them in a wrong fact",
        "licence": "MIT, as the package",
    }


def ship(trainer: SFTTrainer | RewardTrainer, output: Path) -> None:
    """Save without files that name folders of this machine or prompts: the world keeps its splits apart anyway."""
    trainer.save(output)
    for name in ("training.json", "manifest.json", "trained_on.txt"):
        (output / name).unlink()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    for name in ("model", "reward"):
        shutil.rmtree(arguments.output / name, ignore_errors=True)
    build(arguments.output, Sizes())


if __name__ == "__main__":
    main()
