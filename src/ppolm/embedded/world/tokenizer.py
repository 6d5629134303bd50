"""The embedded model's tokenizer: one token per word of the world, bytes for everything else."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

EOS, PAD = "<|end|>", "<|pad|>"


def make_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer, so that any text survives encoding and decoding; each word of ``texts`` is one token.

    Nothing is trained: words in the vocabulary are taken whole (``ignore_merges``), and other words are split into
    bytes because there are no merges.
    """
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found = {piece for text in texts for piece, _ in split.pre_tokenize_str(text)}
    bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [EOS, PAD, *bytes_, *sorted(found - set(bytes_))]
    model = models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[], ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.decoder = split, decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS, pad_token=PAD)
