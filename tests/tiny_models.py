"""Tiny random models of every architecture under test, and a byte-level tokenizer, built on the fly."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    GemmaConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

PAD, EOS, BOS = 0, 1, 2
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


SMALL_ALPHABET = "abcdefghijklmnopqrstuvwxyzĠ0123456789"
"""Lower-case letters, the space and digits: for models whose policy should be easy to train."""


def make_tokenizer(pad_token: str | None = "<pad>", alphabet: str = "") -> PreTrainedTokenizerFast:
    """One token per byte (or per symbol of ``alphabet``), with pad, EOS and BOS."""
    symbols = list(alphabet) or sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<pad>": PAD, "<eos>": EOS, "<bos>": BOS} | {symbol: i + 3 for i, symbol in enumerate(symbols)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad_token, eos_token="<eos>", bos_token="<bos>", unk_token="<pad>"
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_config(
    architecture: str, vocab_size: int = 259, context: int = 128, window: int | None = None
) -> PreTrainedConfig:
    """The smallest config of an architecture that still has all of its components."""
    special = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": BOS}
    if architecture == "gpt2":
        return GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=vocab_size, n_positions=context, **special)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    shape |= {"vocab_size": vocab_size, "max_position_embeddings": context}
    if architecture == "gpt_neox":
        return GPTNeoXConfig(**shape, **special)
    if architecture == "mistral":
        return MistralConfig(**shape, num_key_value_heads=2, head_dim=8, sliding_window=window, **special)
    kind = {"qwen3": Qwen3Config, "qwen2": Qwen2Config, "llama": LlamaConfig, "gemma": GemmaConfig}[architecture]
    return kind(**shape, num_key_value_heads=2, head_dim=8, **special)


ARCHITECTURES = ("qwen3", "qwen2", "llama", "gpt2", "gpt_neox", "gemma")


def make_model_folder(
    folder: Path,
    architecture: str = "qwen3",
    seed: int = 0,
    scale: float = 1.0,
    alphabet: str = "",
    context: int = 128,
    window: int | None = None,
) -> Path:
    """A model folder as ``save_pretrained`` writes it; ``scale`` sharpens the random logits."""
    tokenizer = make_tokenizer(alphabet=alphabet)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(make_config(architecture, len(tokenizer), context, window))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(scale)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
