"""Writing a model as one GGUF file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ppolm.base_setup.tokenizer_setup import TokenizerSetup
from ppolm.errors import ConfigError
from ppolm.export.gguf_layout import Layout, layout_of, tensors_of
from ppolm.export.gguf_vocabulary import Vocabulary, vocabulary_of
from ppolm.export.merge import Merged, refuse_overflow

FILE_TYPES = {"float32": "ALL_F32", "float16": "MOSTLY_F16", "bfloat16": "MOSTLY_BF16", "q8_0": "MOSTLY_Q8_0"}
"""GGUF's names for files by the type of their matrices."""
MATRICES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "q8_0": "Q8_0"}
BLOCK = 32
"""Numbers that share a scale in q8_0."""
QUESTION = [{"role": "user", "content": "Hello"}]


def check_gguf() -> None:
    """Raise if the package that writes GGUF is missing; to be called before a model is loaded for nothing."""
    if find_spec("gguf") is None:
        raise ConfigError(
            "--format gguf needs the package gguf, which is not installed. Install it: pip install 'ppolm[gguf]'"
        )


def write_gguf(merged: Merged, path: Path, kind: str, name: str) -> Vocabulary:
    """Write the file with matrices of a kind (``MATRICES``); returns what it says of the tokenizer.

    Vectors, such as the weights of norms and biases, are float32, as llama.cpp expects.
    """
    from gguf import GGUFWriter, LlamaFileType

    layout = layout_of(merged.model)
    if kind == "float16":
        refuse_overflow(merged.model)
    vocabulary = describe_tokenizer(merged, int(layout.numbers["vocab_size"]))
    writer = GGUFWriter(path, layout.architecture)
    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(LlamaFileType[FILE_TYPES[kind]])
    writer.add_quantization_version(2)
    for key, number in layout.numbers.items():
        add_number(writer, f"{layout.architecture}.{key}", number)
    add_vocabulary(writer, vocabulary)
    if isinstance(merged.tokenizer.chat_template, str):
        writer.add_chat_template(merged.tokenizer.chat_template)
    try:
        write_tensors(writer, merged, layout, kind)
    finally:
        writer.close()
    return vocabulary


def describe_tokenizer(merged: Merged, rows: int) -> Vocabulary:
    """The tokenizer for GGUF, with what ends an answer in a chat."""
    tokenizer, end = merged.tokenizer, None
    generation = merged.model.generation_config
    eos = generation.eos_token_id if generation is not None else None
    setup = TokenizerSetup(tokenizer, rows, [eos] if isinstance(eos, int) else eos or [])
    if tokenizer.chat_template and tokenizer.eos_token_id is not None:
        end = setup.answer_end(QUESTION)
    return vocabulary_of(tokenizer, rows, end)


def add_number(writer: Any, key: str, number: int | float | str) -> None:
    """One number or word of metadata."""
    if isinstance(number, str):
        writer.add_string(key, number)
    elif isinstance(number, float):
        writer.add_float32(key, number)
    else:
        writer.add_uint32(key, number)


def add_vocabulary(writer: Any, vocabulary: Vocabulary) -> None:
    """The tokenizer's metadata."""
    writer.add_tokenizer_model("no_vocab" if vocabulary.model == "none" else vocabulary.model)
    for name, number in vocabulary.special.items():
        writer.add_uint32(f"tokenizer.ggml.{name}", number)
    if vocabulary.model == "none":
        return
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(list(vocabulary.kinds))
    writer.add_token_merges(list(vocabulary.merges))
    if vocabulary.scores:
        writer.add_token_scores(list(vocabulary.scores))
    for name, value in vocabulary.flags.items():
        writer.add_bool(f"tokenizer.ggml.{name}", value)


def write_tensors(writer: Any, merged: Merged, layout: Layout, kind: str) -> None:
    """Announce every tensor, then write them one by one: only one of them is held in its new form."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

    types = {}
    for name, weight in tensors_of(merged.model, layout):
        types[name] = GGMLQuantizationType[type_of(weight, kind)]
        numbers, size = GGML_QUANT_SIZES[types[name]]
        writer.add_tensor_info(
            name, weight.shape, np.dtype(np.float32), weight.numel() // numbers * size, raw_dtype=types[name]
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, weight in tensors_of(merged.model, layout):
        writer.write_tensor_data(quants.quantize(weight.float().contiguous().numpy(), types[name]))


def type_of(weight: Tensor, kind: str) -> str:
    """The type of one tensor: vectors are float32, and rows that q8_0 cannot cut into blocks are float16."""
    if weight.dim() == 1:
        return "F32"
    return "F16" if kind == "q8_0" and weight.shape[-1] % BLOCK else MATRICES[kind]
