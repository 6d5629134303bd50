"""Inputs for both sides of the speed comparison: models of named shapes with random weights, and random prompts."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

SMALL = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8}
TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
EMBEDDED = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
DEEP = {"hidden_size": 32, "num_hidden_layers": 28, "num_attention_heads": 4, "num_key_value_heads": 2}
SHAPES: dict[str, dict[str, int]] = {
    "tiny": TINY | {"head_dim": 16, "intermediate_size": 192, "vocab_size": 512},
    "embedded": EMBEDDED | {"head_dim": 32, "intermediate_size": 384, "vocab_size": 1024},
    "small": SMALL | {"head_dim": 32, "intermediate_size": 768, "vocab_size": 4096},
    "deep": DEEP | {"head_dim": 8, "intermediate_size": 64, "vocab_size": 151936},
    "qwen3-0.6b": LARGE | {"head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936},
}
PAD, EOS = 0, 1
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LORA_R, TEMPERATURE = 16, 0.7


def parser(description: str | None) -> argparse.ArgumentParser:
    """The flags that both sides take."""
    flags = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--shape", default="small", choices=list(SHAPES))
    flags.add_argument("--shortest", type=int, default=64, help="prompt lengths are uniform from here ...")
    flags.add_argument("--longest", type=int, default=64, help="... to here")
    flags.add_argument("--response", type=int, default=53, help="tokens of each response")
    flags.add_argument("--batch", type=int, default=8, help="responses per PPO step")
    flags.add_argument("--samples", type=int, default=1, help="responses per prompt")
    flags.add_argument("--micro", type=int, default=None, help="responses per forward pass of the peer's update")
    flags.add_argument("--minibatch", type=int, default=None, help="responses per update (ours); all by default")
    flags.add_argument("--epochs", type=int, default=4)
    flags.add_argument("--layers", type=int, default=None, help="top layers that train (ours; the peer trains all)")
    flags.add_argument("--steps", type=int, default=3, help="the first one is not counted")
    flags.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    flags.add_argument("--threads", default="2", help="a number; auto (ours alone): as many as pay")
    return flags


def model_config(shape: str) -> Any:
    """A Qwen3 configuration."""
    from transformers import Qwen3Config

    special = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": None}
    return Qwen3Config(**SHAPES[shape], max_position_embeddings=2048, tie_word_embeddings=True, **special)


def make_tokenizer() -> Any:
    """A byte-level tokenizer; no text is actually tokenized here."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<pad>": PAD, "<eos>": EOS} | {letter: i + 2 for i, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )


def make_prompts(shape: str, count: int, shortest: int, longest: int) -> list[list[int]]:
    """Random token ids, the same on both sides."""
    random = np.random.default_rng(0)
    largest = min(4096, SHAPES[shape]["vocab_size"])
    return [random.integers(2, largest, int(random.integers(shortest, longest + 1))).tolist() for _ in range(count)]
