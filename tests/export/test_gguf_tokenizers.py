"""The tokenizer in a GGUF file cuts text as the model's own does; one that GGUF has no words for is left out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ppolm.errors import ModelError
from ppolm.export.gguf_vocabulary import CONTROL, NORMAL, UNUSED, USER_DEFINED, scores_of, vocabulary_of
from tests.conftest import SHARED_DATA, needs_shared_data
from tests.export.whole import gguf_of
from tests.tiny_models import make_config, make_model_folder

TEXTS = (
    "Hello, my roommate doesn't drive after 10 beers!",
    "  two spaces,\n\nnew lines\tand tabs ",
    "Ünïcödé, 漢字 and 🙂; TL;DR: it's 1234567",
    "user<|end|>assistant <tool>x</tool>",
)
CHATS = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|turn|>{% endfor %}"


def byte_level(pre: Any = None, **options: Any) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with merges learned from a few lines, special tokens and one that is not special."""
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre or pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|end|>", "<|pad|>", "<|turn|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*TEXTS, "the roommate and the beer and the drive"] * 3, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>")
    fast.add_tokens(["<tool>", "</tool>"])
    fast.chat_template = CHATS
    return fast


def with_tokenizer(folder: Path, tokenizer: PreTrainedTokenizerFast, rows: int) -> Path:
    """A tiny Llama with a tokenizer and an embedding of ``rows``."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(make_config("llama", rows))
    turn = tokenizer.convert_tokens_to_ids("<|turn|>")
    model.generation_config = GenerationConfig(eos_token_id=[tokenizer.eos_token_id, turn])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def alone(folder: Path, target: Path) -> Any:
    """The tokenizer of the GGUF file, with nothing beside it."""
    target.mkdir()
    shutil.copy(folder / "model.gguf", target)
    return AutoTokenizer.from_pretrained(target, gguf_file="model.gguf")


def test_a_byte_level_tokenizer_reads_the_same_from_the_file(tmp_path: Path) -> None:
    own = byte_level()
    said = gguf_of(with_tokenizer(tmp_path / "model", own, 410), tmp_path / "gguf")
    assert (said.model, said.pre) == ("gpt2", "gpt-2")
    read = alone(tmp_path / "gguf", tmp_path / "alone")
    for text in TEXTS:
        assert read(text)["input_ids"] == own(text)["input_ids"], text
        assert read.decode(own(text)["input_ids"]) == own.decode(own(text)["input_ids"])
    assert (read.eos_token, read.pad_token, read.chat_template) == ("<|end|>", "<|pad|>", CHATS)


def test_kinds_padding_and_what_ends_a_turn_are_in_the_file(tmp_path: Path) -> None:
    own = byte_level()
    gguf_of(with_tokenizer(tmp_path / "model", own, 410), tmp_path / "gguf")
    fields = GGUFReader(tmp_path / "gguf" / "model.gguf").fields
    tokens, kinds = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type"))
    assert len(tokens) == 410
    assert [kinds[tokens.index(token)] for token in ("<|end|>", "<tool>", "a", "[PAD409]")] == [
        *(CONTROL, USER_DEFINED, NORMAL, UNUSED)
    ]
    numbers = {name: fields[f"tokenizer.ggml.{name}_token_id"].contents() for name in ("eos", "padding", "eot")}
    assert numbers == {"eos": 0, "padding": 1, "eot": 2}
    assert fields["tokenizer.ggml.add_bos_token"].contents() is False
    assert fields["tokenizer.chat_template"].contents() == CHATS


@needs_shared_data
def test_the_real_tokenizer_of_qwen_3_is_written_as_llama_cpp_names_it() -> None:
    own = AutoTokenizer.from_pretrained(SHARED_DATA / "qwen3_tokenizer")
    said = vocabulary_of(own, 151_936)
    assert (said.model, said.pre, said.why) == ("gpt2", "qwen2", "")
    assert (len(said.tokens), len(said.merges)) == (151_936, 151_387)
    assert said.special["eos_token_id"] == own.eos_token_id
    assert said.tokens[151_668] == "</think>"
    assert said.kinds[151_643:151_646] == [CONTROL] * 3


@needs_shared_data
def test_a_real_sentencepiece_like_tokenizer_reads_the_same_from_the_file(tmp_path: Path) -> None:
    folder = SHARED_DATA / "stories260K"
    own = AutoTokenizer.from_pretrained(folder)
    said = gguf_of(folder, tmp_path / "gguf")
    assert (said.model, said.flags) == (
        "llama",
        {"add_bos_token": True, "add_eos_token": False, "add_space_prefix": True},
    )
    read = alone(tmp_path / "gguf", tmp_path / "alone")
    for text in ("Once upon a time, there was a girl.", "It's 5 o'clock, Ümläut 🙂", 'She said: "no"\nand left'):
        assert read(text, add_special_tokens=False)["input_ids"] == own(text, add_special_tokens=False)["input_ids"]


def test_scores_follow_the_merges_and_merges_that_no_score_can_say_are_refused() -> None:
    vocab = {token: number for number, token in enumerate(("a", "b", "c", "ab", "abc", "bc"))}
    tokens = list(vocab)
    complete = [("a", "b"), ("ab", "c"), ("a", "bc"), ("b", "c")]
    assert scores_of(vocab, complete, tokens) == [0.0, 0.0, 0.0, 0.0, -1.0, -2.0]
    assert scores_of(vocab, [("a", "b"), ("ab", "c"), ("b", "c")], tokens) is None  # a + bc is missing
    assert scores_of(vocab, [("a", "b"), ("ab", "c"), ("b", "c"), ("a", "bc")], tokens) is None  # not side by side


@pytest.mark.parametrize(
    ("tokenizer", "why"),
    [
        (byte_level(ignore_merges=True), "whole words"),
        (byte_level(pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), pre_tokenizers.ByteLevel()])), "no name"),
        (PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<pad>": 0}, "<pad>"))), "WordLevel"),
    ],
)
def test_a_tokenizer_that_gguf_has_no_words_for_is_left_out_with_the_reason(
    tokenizer: PreTrainedTokenizerFast, why: str
) -> None:
    said = vocabulary_of(tokenizer, 500)
    assert said.model == "none"
    assert why in said.why


def test_a_tokenizer_with_more_tokens_than_the_embedding_has_rows_is_refused() -> None:
    with pytest.raises(ModelError, match="embedding 300 rows"):
        vocabulary_of(byte_level(), 300)


def test_digits_apart_are_named_as_smollm() -> None:
    apart = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    assert vocabulary_of(byte_level(apart), 410).pre == "smollm"


def test_a_file_without_a_tokenizer_says_so_and_has_its_special_tokens(tmp_path: Path) -> None:
    said = gguf_of(make_model_folder(tmp_path / "model", "qwen3"), tmp_path / "gguf")
    assert (said.model, said.why) == ("none", "it has no merges")
    fields = GGUFReader(tmp_path / "gguf" / "model.gguf").fields
    assert fields["tokenizer.ggml.model"].contents() == "no_vocab"
    assert fields["tokenizer.ggml.eos_token_id"].contents() == 1
    assert json.loads((tmp_path / "gguf" / "tokenizer.json").read_text())["model"]["type"] == "BPE"
