"""Small models for the probe: the widths of the planned one, random weights, and one or a few blocks."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig

from ppolm.base_setup.load_model import blaming

VOCABULARY = 32768
"""Most rows of the trial's output matrix: its time is scaled to the planned size."""
WIDE = 40_000_000
"""Weights of a block from which two blocks are enough, and a third would cost seconds."""
PAD, EOS = 0, 1


def depths(block_weights: float, least: int = 1) -> tuple[int, int]:
    """Numbers of blocks of the two trial models: what differs between them is the time of blocks alone."""
    return least, least + (1 if block_weights >= WIDE else 3)


def trial_config(config: PreTrainedConfig, layers: int) -> PreTrainedConfig:
    """The same configuration with few blocks and a vocabulary of bounded size."""
    trial = copy.deepcopy(config)
    text: Any = trial.get_text_config()
    before = text.num_hidden_layers
    for name, value in list(vars(text).items()):
        if isinstance(value, list) and len(value) == before:  # something for every block, such as its kind of attention
            setattr(text, name, [value[block % before] for block in range(layers)])
    text.num_hidden_layers = layers
    if hasattr(text, "decoder_layers"):  # where the former name is that of an encoder's, which is not used
        text.decoder_layers = layers
    if getattr(text, "first_k_dense_replace", None):  # blocks without experts, which most of the model has
        text.first_k_dense_replace = 0
    if hasattr(trial, "quantization_config"):  # random weights are packed by nobody
        del trial.quantization_config
    text.vocab_size = min(text.vocab_size, VOCABULARY)
    text.pad_token_id, text.eos_token_id, text.bos_token_id = PAD, EOS, None
    return trial


def make_folder(config: PreTrainedConfig, folder: Path, dtype: torch.dtype) -> Path:
    """A model folder with random weights and a tokenizer of bytes."""
    with blaming("for the probe"), torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
        model.generation_config.eos_token_id = model.generation_config.pad_token_id = EOS
        model.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    known = {"<pad>": PAD, "<eos>": EOS} | {letter: number + 2 for number, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocab=known, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
