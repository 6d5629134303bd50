"""GGUF of every architecture that we write gives the same numbers when it is read by others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFReader, dequantize
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ppolm.errors import ModelError
from ppolm.export.gguf_layout import layout_of, refuse_unknown, tensors_of
from ppolm.export.merge import merge
from tests.architectures import make_architecture
from tests.conftest import SHARED_DATA, needs_shared_data
from tests.export.whole import gguf_of, log_softmax_of, whole_model
from tests.tiny_models import make_model_folder

FAMILIES = ("llama", "llama (biases)", "llama (one key head)", "llama (tied)", "mistral", "qwen2", "qwen3")
IDS = [2, *range(20, 60)]


@pytest.mark.parametrize("name", FAMILIES)
def test_plain_transformers_reads_the_same_log_probabilities_from_the_file(name: str, tmp_path: Path) -> None:
    folder = make_architecture(name, tmp_path / "model")
    gguf_of(folder, tmp_path / "gguf")
    off = log_softmax_of(tmp_path / "gguf", IDS, gguf=True) - log_softmax_of(folder, IDS)
    assert off.abs().max() < 1e-5
    assert log_softmax_of(folder, IDS).std() > 0.1  # of different sizes, so that a wrong row would show


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2"])
def test_the_file_alone_is_enough_for_transformers(name: str, tmp_path: Path) -> None:
    folder = make_architecture(name, tmp_path / "model")
    gguf_of(folder, tmp_path / "gguf")
    off = log_softmax_of(tmp_path / "gguf", IDS, gguf=True, beside=False) - log_softmax_of(folder, IDS)
    assert off.abs().max() < 1e-5


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "q8_0"])
def test_every_tensor_read_by_the_gguf_package_is_the_weight_rounded_once(kind: str, tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "model", "qwen3", scale=3.0)
    gguf_of(folder, tmp_path / "gguf", kind)
    model = merge(whole_model(folder)).model
    wanted = {name: weight.detach() for name, weight in tensors_of(model, layout_of(model))}
    read = {tensor.name: tensor for tensor in GGUFReader(tmp_path / "gguf" / "model.gguf").tensors}
    assert read.keys() == wanted.keys()
    for name, weight in wanted.items():
        found = torch.from_numpy(np.array(dequantize(read[name].data, read[name].tensor_type))).reshape(weight.shape)
        if weight.dim() == 1:
            assert torch.equal(found, weight)
        elif kind == "q8_0":  # half a step of each block of 32, whose scale is a float16
            step = weight.reshape(-1, 32).abs().amax(1, keepdim=True) / 127
            assert ((found - weight).reshape(-1, 32).abs() <= 0.6 * step + 1e-6).all(), name
        else:
            assert torch.equal(found, weight.to(getattr(torch, kind)).float()), name


def test_a_tied_output_matrix_is_not_written_twice(tmp_path: Path) -> None:
    gguf_of(make_architecture("llama (tied)", tmp_path / "model"), tmp_path / "gguf")
    names = [tensor.name for tensor in GGUFReader(tmp_path / "gguf" / "model.gguf").tensors]
    assert "output.weight" not in names
    gguf_of(make_architecture("llama", tmp_path / "other"), tmp_path / "gguf")
    assert "output.weight" in [tensor.name for tensor in GGUFReader(tmp_path / "gguf" / "model.gguf").tensors]


def test_a_mistral_with_a_window_reads_no_further_than_its_window(tmp_path: Path) -> None:
    folder = make_architecture("mistral (window 8)", tmp_path / "model")
    gguf_of(folder, tmp_path / "gguf")
    assert GGUFReader(tmp_path / "gguf" / "model.gguf").fields["llama.context_length"].contents() == 8
    off = log_softmax_of(tmp_path / "gguf", IDS[:8], gguf=True, beside=False) - log_softmax_of(folder, IDS[:8])
    assert off.abs().max() < 1e-5


def test_the_rotations_of_llama_3_are_divided_as_transformers_scales_them(tmp_path: Path) -> None:
    folder = make_architecture("llama", tmp_path / "model")
    config = AutoConfig.from_pretrained(folder)
    config.rope_parameters = {
        "rope_type": "llama3",
        "rope_theta": 500.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    model = AutoModelForCausalLM.from_config(config)
    layout = layout_of(model)
    assert layout.rope_factors is not None
    assert len(set(layout.rope_factors.round(3))) > 2  # some as they are, some divided by 8, some between
    written = dict(tensors_of(model, layout))["rope_freqs.weight"]
    plain = 500.0 ** -(torch.arange(0, 8, 2) / 8)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    assert torch.allclose(plain / written, scaled, rtol=1e-6)


@pytest.mark.parametrize(
    ("rope", "numbers"),
    [
        ({"rope_type": "linear", "factor": 4.0}, {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
        (
            {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64},
            {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0, "rope.scaling.original_context_length": 64},
        ),
    ],
)
def test_scaled_rotations_are_said_in_words(
    rope: dict[str, object], numbers: dict[str, object], tmp_path: Path
) -> None:
    config = AutoConfig.from_pretrained(make_architecture("qwen2", tmp_path / "model"))
    config.rope_parameters = {"rope_theta": 1e4, **rope}
    layout = layout_of(AutoModelForCausalLM.from_config(config))
    assert numbers.items() <= dict(layout.numbers).items()


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64, "attention_factor": 1.5},
    ],
)
def test_scaling_that_llama_cpp_would_do_otherwise_is_refused(rope: dict[str, object], tmp_path: Path) -> None:
    config = AutoConfig.from_pretrained(make_architecture("qwen2", tmp_path / "model"))
    config.rope_parameters = {"rope_theta": 1e4, **rope}
    with pytest.raises(ModelError, match=r"rotations .* --format merged"):
        layout_of(AutoModelForCausalLM.from_config(config))


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "qwen3_moe"])
def test_an_architecture_that_is_not_certain_is_refused_with_what_to_do(name: str, tmp_path: Path) -> None:
    folder = make_architecture(name, tmp_path / "model")
    with pytest.raises(ModelError, match=r"GGUF is written for llama, .* convert_hf_to_gguf.py"):
        refuse_unknown(AutoConfig.from_pretrained(folder))


@needs_shared_data
def test_a_real_llama_says_the_same(tmp_path: Path) -> None:
    folder = SHARED_DATA / "stories260K"
    gguf_of(folder, tmp_path / "gguf")
    ids = [1, 403, 407, 261, 378, 500, 310]
    off = log_softmax_of(tmp_path / "gguf", ids, gguf=True, beside=False) - log_softmax_of(folder, ids)
    assert off.abs().max() < 1e-5
