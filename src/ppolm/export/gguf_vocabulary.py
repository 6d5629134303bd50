"""A tokenizer as GGUF describes one: tokens with their kinds, merges, and how text is cut before them.

GGUF has no room for the program that a tokenizer.json is. It names a family, and what reads the file knows the rest. So
a tokenizer is written only if it is recognised; of any other the file says nothing, and tokenizer.json lies beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX as QWEN2

from ppolm.errors import ModelError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Kinds of tokens, by llama.cpp's numbers."""
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS = {QWEN2: "qwen2", LLAMA3: "llama-bpe", TEKKEN: "tekken"}
"""Expressions that cut text into words, and llama.cpp's names of them."""
WHOLE_WORDS = ("llama-bpe", "tekken")
"""Of these, those with which llama.cpp takes a word whole if it is in the vocabulary."""
SPACE = "▁"


@dataclass(frozen=True)
class Vocabulary:
    """What GGUF says of a tokenizer."""

    model: str
    """gpt2 (bytes), llama (SentencePiece), or none: the file holds no tokenizer."""
    why: str = ""
    """Why there is none."""
    pre: str = "default"
    tokens: Sequence[str] = ()
    kinds: Sequence[int] = ()
    merges: Sequence[str] = ()
    scores: Sequence[float] = ()
    flags: Mapping[str, bool] = field(default_factory=dict)
    special: Mapping[str, int] = field(default_factory=dict)
    """Numbers of special tokens by GGUF's names for them."""


def vocabulary_of(tokenizer: PreTrainedTokenizerBase, size: int, answer_end: int | None = None) -> Vocabulary:
    """The tokenizer for an embedding with ``size`` rows; rows without a token are padding. ``answer_end``: what ends an
    answer in a chat."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    special = special_tokens(tokenizer, answer_end, size)
    if backend is None:
        return Vocabulary("none", "it is not one of the tokenizers library", special=special)
    program = json.loads(backend.to_str())
    why, pre = family_of(program)
    if why:
        return Vocabulary("none", why, special=special)
    byte_level = pre != "sentencepiece"
    tokens, kinds = tokens_of(program, size, byte_level)
    pairs = [merge if isinstance(merge, list) else merge.split(" ") for merge in program["model"]["merges"]]
    scores = [] if byte_level else scores_of(program["model"]["vocab"], pairs, tokens)
    if not byte_level and scores is None:
        return Vocabulary("none", "its merges do not follow from scores, as SentencePiece has them", special=special)
    return Vocabulary(
        model="gpt2" if byte_level else "llama",
        pre=pre if byte_level else "default",
        tokens=tokens,
        kinds=kinds,
        merges=[" ".join(pair) for pair in pairs],
        scores=scores or (),
        flags=flags_of(tokenizer, program, byte_level),
        special=special,
    )


def family_of(program: Mapping[str, Any]) -> tuple[str, str]:
    """Why a tokenizer is not known to GGUF, or else the name of how it cuts text; ``sentencepiece`` does not."""
    model = program["model"]
    if model["type"] != "BPE":
        return f"it is a {model['type']} tokenizer", ""
    if not model["merges"]:
        return "it has no merges", ""
    if model.get("byte_fallback"):
        return ("", "sentencepiece") if _prefixes(program) is not None else ("it changes text in a way of its own", "")
    pre = _split_name(program)
    normal = (program.get("normalizer") or {}).get("type")
    if pre is None or normal not in (None, "NFC"):
        return "it cuts text into words in a way that has no name there", ""
    if model.get("ignore_merges") and pre not in WHOLE_WORDS:
        return "it takes whole words that its merges do not make", ""
    return "", pre


def _split_name(program: Mapping[str, Any]) -> str | None:
    """llama.cpp's name for how a byte-level tokenizer cuts text into words."""
    pre = program.get("pre_tokenizer") or {}
    steps = pre.get("pretokenizers", [pre])
    kinds = [step.get("type") for step in steps]
    last = steps[-1]
    if kinds[-1] != "ByteLevel" or last.get("add_prefix_space"):
        return None
    if kinds == ["ByteLevel"] and last.get("use_regex", True):
        return "gpt-2"
    if kinds == ["Digits", "ByteLevel"] and steps[0].get("individual_digits") and last.get("use_regex", True):
        return "smollm"
    if kinds == ["Split", "ByteLevel"] and not last.get("use_regex", True) and steps[0].get("behavior") == "Isolated":
        return SPLITS.get(str(steps[0].get("pattern", {}).get("Regex")))
    return None


def _prefixes(program: Mapping[str, Any]) -> bool | None:
    """Whether a SentencePiece tokenizer puts a space before a text; None if it does something else to it."""
    normal, pre = program.get("normalizer"), program.get("pre_tokenizer")
    steps = [] if normal is None else normal.get("normalizers", [normal])
    kinds = [step["type"] for step in steps]
    if pre is None and kinds and kinds[-1] == "Replace" and kinds[:-1] in ([], ["Prepend"]):
        return kinds[0] == "Prepend"
    if pre is not None and pre["type"] == "Metaspace" and not kinds:
        return str(pre.get("prepend_scheme", "always")) != "never"
    return None


def tokens_of(program: Mapping[str, Any], size: int, byte_level: bool) -> tuple[list[str], list[int]]:
    """A token and its kind for each row of the embedding."""
    tokens, kinds = [f"[PAD{i}]" for i in range(size)], [UNUSED] * size
    known = {number: token for token, number in program["model"]["vocab"].items()}
    added = {token["id"]: token for token in program["added_tokens"]}
    if max([*known, *added]) >= size:
        raise ModelError(
            f"The tokenizer has tokens up to number {max([*known, *added])}, and the model's embedding {size} rows."
        )
    for number, token in known.items():
        tokens[number], kinds[number] = token, NORMAL
        if not byte_level and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            kinds[number] = BYTE
    for number, token in added.items():
        tokens[number], kinds[number] = token["content"], CONTROL if token["special"] else USER_DEFINED
    unknown = program["model"].get("unk_token")
    if not byte_level and unknown in program["model"]["vocab"]:
        kinds[program["model"]["vocab"][unknown]] = UNKNOWN
    return tokens, kinds


def scores_of(vocab: Mapping[str, int], pairs: Sequence[Sequence[str]], tokens: Sequence[str]) -> list[float] | None:
    """A score for each token from the order of the merges: the earlier made, the higher.

    SentencePiece joins any two neighbours that make a token, by the token's score. That is the same as the merges only
    if they hold every way to make a token, next to each other; else None.
    """
    rank: dict[str, int] = {}
    previous = None
    for left, right in pairs:
        made = left + right
        if made != previous and made in rank:
            return None
        rank.setdefault(made, len(rank))
        previous = made
    listed = {(left, right) for left, right in pairs}
    for made in rank:
        ways = ((made[:cut], made[cut:]) for cut in range(1, len(made)))
        if any(left in vocab and right in vocab and (left, right) not in listed for left, right in ways):
            return None
    return [-float(rank[token]) if token in rank else 0.0 for token in tokens]


def flags_of(tokenizer: PreTrainedTokenizerBase, program: Mapping[str, Any], byte_level: bool) -> dict[str, bool]:
    """What is added around a text."""
    ids = tokenizer("a")["input_ids"]
    found = {
        "add_bos_token": tokenizer.bos_token_id is not None and ids[0] == tokenizer.bos_token_id,
        "add_eos_token": tokenizer.eos_token_id is not None and ids[-1] == tokenizer.eos_token_id,
    }
    return found if byte_level else found | {"add_space_prefix": bool(_prefixes(program))}


def special_tokens(tokenizer: PreTrainedTokenizerBase, answer_end: int | None, size: int) -> dict[str, int]:
    """Special tokens by GGUF's names."""
    named = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "unknown_token_id": tokenizer.unk_token_id,
        "padding_token_id": tokenizer.pad_token_id,
        "eot_token_id": answer_end if answer_end != tokenizer.eos_token_id else None,
    }
    return {name: int(number) for name, number in named.items() if number is not None and number < size}
