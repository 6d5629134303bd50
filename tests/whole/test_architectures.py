"""Every architecture gives the numbers of plain transformers and peft, or is refused in one sentence."""

from __future__ import annotations

import re

import pytest

from scripts.architecture_table import PAGE, read_table, row_of
from tests.architecture_check import check_architecture
from tests.architectures import ALL

IN_THE_SUITE = (
    # The families most people use, and at least one of every kind of deviation.
    *("llama", "llama (biases)", "llama (one key head)", "llama (tied)", "mistral", "mistral (window 8)"),
    *("qwen2", "qwen2 (windows above)", "qwen3", "qwen3_next", "smollm3", "olmo2", "phi", "phi3", "phi3 (long rope)"),
    *("gemma", "gemma2", "gemma2 (window 8)", "gemma3_text", "gemma3", "vaultgemma", "stablelm"),
    *("gemma3n_text", "gemma4_text", "gemma4_text (experts)", "gemma4", "qwen3_5", "llama4", "zamba2"),
    *("gpt2", "gpt_neo", "gptj", "gpt_neox", "gpt_neox (partial rotary)", "gpt_neox_japanese", "codegen", "gpt_oss"),
    *("bloom", "mpt", "falcon", "falcon (ALiBi)", "opt", "opt (embeddings of another width)", "xglm", "biogpt", "ctrl"),
    *("granite", "granite (scaled logits)", "cohere", "cohere (scaled logits)", "cohere2", "starcoder2", "persimmon"),
    *("mixtral", "phimoe", "qwen3_moe", "llama4_text", "deepseek_v3", "olmoe", "granitemoe", "laguna"),
    *("rwkv", "mamba", "jamba", "lfm2", "bart", "bert", "nanochat", "doge", "minicpm3"),
)


@pytest.mark.parametrize("name", IN_THE_SUITE)
def test_it_agrees_or_is_refused_as_the_page_says(name: str) -> None:
    outcome = check_architecture(name)
    assert not outcome.wrong, outcome.wrong
    assert row_of(name, outcome)[:4] == read_table()[name][:4]
    assert outcome.refused is None or "MODEL" in outcome.refused, "one sentence about this model"


def test_the_page_has_every_architecture_of_the_library_and_none_is_wrong() -> None:
    table = read_table()
    text = PAGE.read_text()
    assert len(table) >= 120
    left_out = set(re.findall(r"`([^`]+)`", text.split("## Left out")[1]))
    assert set(ALL) <= table.keys() | left_out
    assert all(row[1] in ("agrees", "refused") for row in table.values())
    assert sum(row[1] == "agrees" for row in table.values()) >= 90
