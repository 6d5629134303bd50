"""A plan for this machine knows its devices, what its processes share, and models that are hard to probe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BartConfig,
    BertConfig,
    Gemma3TextConfig,
    MambaConfig,
    MixtralConfig,
    PreTrainedConfig,
    Qwen3Config,
    RwkvConfig,
    T5Config,
)

from ppolm.cli.main import run as ppolm
from ppolm.cli.plan_command import parse_plan, plan_told
from ppolm.errors import ConfigError
from ppolm.planning import build_plan, probe, this_machine
from ppolm.planning.step_time import Rate, Speed
from ppolm.planning.this_machine import refuse_missing, share_of, slowed
from ppolm.planning.trial_model import trial_config
from tests.tiny_models import make_tokenizer

CPU = torch.device("cpu")
SPEED = Speed(Rate(8e9, 4e9), Rate(6e9, 3e9), 1e10, 1e-4, 2e-4, 1e9, 1e-3)
TINY: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300}
WIDE: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48}
BART: dict[str, Any] = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 300}
BART |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
PROBED: dict[str, PreTrainedConfig] = {
    "fewer blocks than a trial": Qwen3Config(**TINY, **WIDE),
    "kinds of attention": Gemma3TextConfig(**TINY, **WIDE),
    "experts": MixtralConfig(**TINY, **WIDE, num_local_experts=4),
    "kinds that are computed": MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=300, state_size=8),
    "no single block": RwkvConfig(hidden_size=32, num_hidden_layers=3, vocab_size=300, context_length=256),
    "a decoder's own number": BartConfig(**BART, max_position_embeddings=512),
}
REFUSED: dict[str, tuple[PreTrainedConfig, str]] = {
    "t5": (T5Config(d_model=32, num_layers=2), "of type t5, which transformers does not load as a causal"),
    "bert": (BertConfig(**TINY, architectures=["BertForMaskedLM"]), "of type bert and fills gaps in a text"),
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe of a moment: how exact it is does not matter."""
    monkeypatch.setattr(probe, "LEAST", 2)
    monkeypatch.setattr(probe, "SECONDS", 0.0)
    monkeypatch.setattr(probe, "STREAM", 2**22)


def words(folder: Path) -> list[str]:
    flags = ["--prompt-tokens", "20", "--max-new-tokens", "10", "--batch-size", "4", "--minibatch-size", "2"]
    return ["plan", "--model-name", str(folder), *flags, "--threads", "1", "--lora-dropout", "0"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("kind", PROBED)
def test_models_with_special_configurations_are_probed(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PROBED[kind].save_pretrained(tmp_path)
    capsys.readouterr()
    assert ppolm([*words(tmp_path), "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seconds"]["step"] > 0
    assert found["seconds"]["kind"] == "calibrated"


@pytest.mark.parametrize("hardware", ["this", "laptop"])
@pytest.mark.parametrize("kind", REFUSED)
def test_models_that_do_not_continue_text_are_refused_by_name(
    kind: str, hardware: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, said = REFUSED[kind]
    config.save_pretrained(tmp_path)
    assert ppolm([*words(tmp_path), "--hardware", hardware]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_probe_that_fails_in_any_way_ends_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> Speed:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr(this_machine, "probe", broken)
    PROBED["experts"].save_pretrained(tmp_path)
    assert ppolm([*words(tmp_path), "--device", "cpu"]) == 1
    error = capsys.readouterr().err
    assert f"cannot be probed with {tmp_path}: float division by zero" in error
    assert "--hardware laptop" in error


def test_a_trial_repeats_what_the_model_says_of_every_block() -> None:
    kinds = trial_config(PROBED["kinds of attention"], 4).layer_types
    assert kinds == PROBED["kinds of attention"].layer_types * 2
    packed = Qwen3Config(**TINY, **WIDE, quantization_config={"quant_method": "gptq", "bits": 4})
    assert getattr(trial_config(packed, 1), "quantization_config", None) is None


def test_processes_share_the_cores_of_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "cores_here", lambda: 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert share_of(CPU, 1) == share_of(CPU, 2) == (1.0, "")
    share, note = share_of(CPU, 16)
    assert share == 2 / 16
    assert "16 processes of 1 threads share the 2 cores" in note
    assert share_of(torch.device("mps"), 4)[0] == 1 / 4
    slow = slowed(SPEED, share)
    assert (slow.scoring.blocks, slow.bandwidth, slow.block_overhead) == (1e9, 1.25e9, 8e-4)
    assert (slow.link, slow.latency) == (SPEED.link, SPEED.latency)


def test_more_processes_than_cores_make_a_planned_step_no_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "cores_here", lambda: 2)
    monkeypatch.setattr(this_machine, "probe", lambda *_: SPEED)
    flags = ["--model-name", "embedded", "--device", "cpu", "--threads", "1", "--batch-size", "32"]
    two, many = (plan_told(*parse_plan([*flags, "--devices", str(count)])) for count in (2, 16))
    assert many.plan.seconds.update > 0.99 * two.plan.seconds.update
    assert "Note: 16 processes of 1 threads share the 2 cores" in many.text()
    assert "Note" not in two.text()


def test_gpus_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    refuse_missing(torch.device("cuda"), 2)
    refuse_missing(CPU, 16)
    with pytest.raises(ConfigError, match=r"uses 3 devices, and this machine has 2"):
        refuse_missing(torch.device("cuda"), 3)


def test_servers_on_this_machine_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "probe", lambda *_: SPEED)
    flags = ["--model-name", "embedded", "--device", "cpu", "--threads", "1"]
    told = plan_told(*parse_plan([*flags, "--servers", "4"]))
    pool = told.plan.case.pool
    assert pool is not None
    assert pool.speed.scoring.blocks == SPEED.scoring.blocks / 4
    assert "4 servers and the training share this machine" in told.text()
    assert pool.hardware == build_plan.THIS


def test_a_folder_with_config_and_tokenizer_counts_prompts_without_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PROBED["fewer blocks than a trial"].save_pretrained(tmp_path)
    (tmp_path / "prompts.txt").write_text("one prompt\nanother one\n" * 4)
    given = ["--model-name", str(tmp_path), "--prompts", str(tmp_path / "prompts.txt")]
    assert ppolm(["plan", *given, "--hardware", "laptop"]) == 1
    assert "has no tokenizer files, which count the prompts" in capsys.readouterr().err
    make_tokenizer().save_pretrained(tmp_path)
    assert ppolm(["plan", *given, "--hardware", "laptop", "--batch-size", "4"]) == 0
    assert "(longest 1" in capsys.readouterr().out
    assert ppolm(["train", *given, "--estimate", "--batch-size", "4"]) == 0
    assert ppolm(["train", *given, "--batch-size", "4", "--output-dir", str(tmp_path / "runs")]) == 1
    assert "has no weights" in capsys.readouterr().err
    nonsense = ["--lora-target-modules", "nonsense"]
    assert ppolm(["train", *given, "--estimate", *nonsense]) == 1
    assert "LoRA cannot be added to" in capsys.readouterr().err
