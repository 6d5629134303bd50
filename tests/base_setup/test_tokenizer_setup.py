"""The tokenizer is saved as it was loaded: no ordinary token becomes a special one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, PreTrainedTokenizerFast

from ppolm.base_setup import TokenizerSetup
from ppolm.config import SFTConfig
from ppolm.data.examples import Demonstration
from ppolm.data.prompts import Prompt
from ppolm.supervised import SFTTrainer

TEXT = "Hello! Wow!! (all of it!)"
EOS_TOKEN, EOS_ID = "<|endoftext|>", 256


def gpt2_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes numbered as in GPT-2, "!" first, with the end of text as the only special token."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate([*symbols, EOS_TOKEN])}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=EOS_TOKEN, bos_token=EOS_TOKEN, unk_token=EOS_TOKEN
    )


@pytest.fixture
def gpt2_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "gpt2"
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "vocab_size": EOS_ID + 1}
    config = GPT2Config(**shape, bos_token_id=EOS_ID, eos_token_id=EOS_ID)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    gpt2_tokenizer().save_pretrained(folder)
    return folder


def what_is_special(tokenizer: Any) -> dict[str, Any]:
    added = {id_: (token.content, token.special) for id_, token in tokenizer.added_tokens_decoder.items()}
    return {"map": tokenizer.special_tokens_map, "ids": sorted(tokenizer.all_special_ids), "added": added}


def test_a_whole_model_keeps_its_tokenizer_through_sft(gpt2_folder: Path, tmp_path: Path) -> None:
    before = AutoTokenizer.from_pretrained(str(gpt2_folder))
    config = SFTConfig(model_name=str(gpt2_folder), train="all", device="cpu", num_epochs=1, warmup_steps=0)
    rows = [Demonstration(Prompt(f"Say {number}!"), " yes!") for number in range(8)]
    trainer = SFTTrainer(config, rows)
    assert trainer.model.setup.tokenizer.pad_id != EOS_ID
    assert trainer.model.setup.tokenizer.decode(before(TEXT)["input_ids"]) == TEXT
    trainer.train()
    trainer.model.save(tmp_path / "trained")
    after = AutoTokenizer.from_pretrained(str(tmp_path / "trained"))
    ids = before(TEXT)["input_ids"]
    assert after(TEXT)["input_ids"] == ids
    assert after.decode(ids, skip_special_tokens=True) == before.decode(ids, skip_special_tokens=True) == TEXT
    assert what_is_special(after) == what_is_special(before)
    files = [json.loads((folder / "tokenizer.json").read_text()) for folder in (gpt2_folder, tmp_path / "trained")]
    assert files[0]["added_tokens"] == files[1]["added_tokens"]


def test_a_tokenizer_is_read_and_never_changed() -> None:
    for given in (gpt2_tokenizer(), PreTrainedTokenizerFast(tokenizer_object=gpt2_tokenizer()._tokenizer)):
        before, side = what_is_special(given), given.padding_side
        pad = TokenizerSetup(given, vocab_size=EOS_ID + 1, eos_ids=[EOS_ID]).pad_id
        assert pad != EOS_ID
        assert (what_is_special(given), given.padding_side) == (before, side)


def llama_tokenizer(metaspace: bool) -> PreTrainedTokenizerFast:
    """Puts a space before every text, as tokenizers of Llama 2 do: by a normalizer, or by a pre-tokenizer."""
    pieces = ["<s>", "</s>", "<unk>", "\n", "▁", "▁t", "▁two", *",.abcdefghijklmnopqrstuvwxyzT"]
    merges = [("▁", "t"), ("▁t", "wo"), ("w", "o")]
    backend = Tokenizer(
        models.BPE(vocab={piece: i for i, piece in enumerate([*pieces, "wo"])}, merges=merges, unk_token="<unk>")
    )
    if metaspace:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        backend.decoder = decoders.Metaspace(prepend_scheme="first")
    else:
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@pytest.mark.parametrize("metaspace", [False, True])
def test_an_answer_is_encoded_as_it_would_have_been_sampled(metaspace: bool) -> None:
    setup = TokenizerSetup(llama_tokenizer(metaspace), vocab_size=40)
    pieces = setup.tokenizer.convert_ids_to_tokens
    before = setup.encode("The number is")
    assert pieces(setup.encode_answer("The number is", " two")) == ["▁two", "</s>"]
    for text in (" two", "two", "  two", ", two", " ", "", "\ntwo", " a two. b"):
        ids = setup.encode_answer("The number is", text)
        assert ids[-1] in setup.eos_ids
        assert setup.decode(ids, after=before) == text
    assert pieces(setup.encode_answer("The number is", " two</s>"))[-2:] == ["▁two", "</s>"], "its end is not doubled"


def test_an_answer_to_a_chat_is_encoded_by_itself() -> None:
    """A template decides what stands before it."""
    setup = TokenizerSetup(llama_tokenizer(metaspace=False), vocab_size=40)
    ids = setup.encode_answer([{"role": "user", "content": "a"}], "two")
    assert setup.tokenizer.convert_ids_to_tokens(ids) == ["▁two", "</s>"]
