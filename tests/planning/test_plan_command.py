"""`ppolm plan` prints memory, time, traffic and commands, says which figures are computed, and loads no weights."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from shlex import split
from typing import Any

import pytest
import torch
from torch.distributed.run import get_args_parser
from transformers import Qwen3Config

from ppolm.cli.main import run as ppolm
from ppolm.cli.plan_command import PlanFlags, parse_plan, plan_told
from ppolm.cli.settings import parse_train
from ppolm.engines.build_engine import check_engine
from ppolm.errors import ConfigError
from ppolm.planning import this_machine
from ppolm.planning.build_plan import advised
from ppolm.planning.model import SHAPES, shape_config, shape_from
from ppolm.planning.step_time import Rate, Speed

EIGHT = ["--shape", "qwen3-8b", "--prompt-tokens", "300", "--longest-prompt", "500", "--max-new-tokens", "200"]
MANY = [
    "--hardware",
    "h100-80gb",
    "--devices",
    "48",
    "--servers",
    "16",
    "--batch-size",
    "960",
    "--minibatch-size",
    "240",
]
SLOW = Speed(Rate(1e10, 1e10), Rate(1e10, 1e10), 1e10, 1e-4, 1e-4, 1e9, 1e-3)


def values(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert ppolm(["plan", *words, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def text(*words: str) -> str:
    return plan_told(*parse_plan(words)).text()


@pytest.fixture
def without_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine with a known speed: the probe itself has a test of its own."""
    monkeypatch.setattr(this_machine, "probe", lambda *_: SLOW)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("qwen3-0.6b", 0.6), ("qwen3-8b", 8.19), ("qwen3-32b", 32.8), ("llama-3-8b", 8.03), ("llama-3-70b", 70.6)],
)
def test_published_shapes_have_as_many_parameters_as_their_models(name: str, billions: float) -> None:
    shape = shape_from(shape_config(name), parse_plan(["--model-name", name])[2])
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert name in SHAPES


def test_a_plan_has_all_phases_and_more_devices_take_less_time(capsys: pytest.CaptureFixture[str]) -> None:
    one = values(capsys, *EIGHT, "--hardware", "h100-80gb")
    eight = values(capsys, *EIGHT, "--hardware", "h100-80gb", "--devices", "8")
    for phase in ("generation", "scoring", "update"):
        assert 0 < eight["seconds"][phase] < one["seconds"][phase]
    assert one["seconds"]["step"] == pytest.approx(
        sum(one["seconds"][name] for name in ("generation", "scoring", "update", "exchange", "shipping"))
    )
    assert one["network_bytes"]["gradients"] == one["seconds"]["exchange"] == one["seconds"]["shipping"] == 0
    assert eight["network_bytes"]["gradients"] > 0
    assert eight["memory_bytes"]["base"] == one["memory_bytes"]["base"] == 2 * one["parameters"]
    assert {one[group]["kind"] for group in ("memory_bytes", "seconds", "network_bytes", "speed")} == {"computed"}


def test_servers_sample_and_a_sharded_base_takes_less_memory_and_more_traffic(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, shared = (values(capsys, *EIGHT, *MANY, *more) for more in ([], ["--shard-base"]))
    assert whole["memory_bytes"]["generation"] == 0
    assert shared["memory_bytes"]["base"] < whole["memory_bytes"]["base"] / 4
    assert shared["network_bytes"]["base"] > whole["network_bytes"]["base"] == 0
    assert shared["seconds"]["update"] >= whole["seconds"]["update"]
    assert (whole["servers"], whole["hosts"]) == (16, 6)
    assert whole["server_bytes"]["rows"] > 0
    assert whole["seconds"]["shipping"] > 0


def test_the_text_says_which_figures_are_computed(without_probe: None) -> None:
    named = text(*EIGHT, "--hardware", "h100-80gb", "--devices", "8")
    assert "calibrated" not in named
    assert "[computed from published figures of the hardware]" in named
    here = text("--model-name", "embedded", "--device", "cpu", "--devices", "2")
    (time,) = (line for line in here.splitlines() if line.startswith("Time of a step"))
    assert "[calibrated by a probe on this machine]" in time
    (memory,) = (line for line in here.splitlines() if line.startswith("Memory of each"))
    assert memory.endswith("free   [computed]")
    assert "exchange" in here
    assert "assumed link" in here


STARTED = (
    ["--hardware", "h100-80gb"],
    ["--hardware", "h100-80gb", "--devices", "8"],
    ["--hardware", "h100-80gb", "--devices", "16", "--shard-base", "--engine", "local"],
    ["--hardware", "mac", "--base-bits", "4"],
    ["--hardware", "mac", "--engine", "mlx", "--dtype", "bfloat16"],
    ["--hardware", "gpu-24gb"],  # fits with changes
    ["--hardware", "gpu-24gb", "--dtype", "float32", "--microbatch-tokens", "8192"],
    [*MANY, "--async-rollouts", "--importance-cap", "3"],
    MANY,
)
"""Plans of many kinds."""


@pytest.mark.parametrize("words", STARTED, ids=str)
def test_the_commands_that_are_printed_are_understood_and_accepted_by_all_that_a_run_checks(words: list[str]) -> None:
    told = plan_told(*parse_plan([*EIGHT, *words, "--lora-r", "32", "--log-to"]))
    *servers, (_, command) = told.commands
    given = split(command.replace("NUMBER", "3"))
    if given[0] == "torchrun":
        launch = get_args_parser().parse_args(given[1:])
        assert int(launch.nproc_per_node) * int(launch.nnodes.split(":")[0]) == told.plan.case.devices.count
        given = ["ppolm", *launch.training_script_args]
    assert given[:2] == ["ppolm", "train"]
    started = parse_train(given[2:]).settings  # PPOConfig checks all settings together
    expected = told.plan.case.config if told.plan.fits else advised(told.plan.case.config, told.advice)
    assert started == dataclasses.replace(expected, prompts="path/to/prompts.jsonl")
    with contextlib.suppress(ConfigError) if started.engine == "mlx" else contextlib.nullcontext():
        check_engine(started)  # which may miss MLX on this machine
    assert plan_told(PlanFlags(**told_flags(words)), started, started).plan.fits
    assert len(servers) == bool(told.plan.case.pool)
    for _, served in servers:
        assert "--max-lora-rank 32" in served
        assert "--max-model-len 700" in served


def told_flags(words: list[str]) -> dict[str, Any]:
    """The command's own flags of a plan that was asked for with these words."""
    own = parse_plan([*EIGHT, *words])[0]
    return vars(own)


def test_what_does_not_fit_is_started_as_advised_or_not_at_all() -> None:
    told = plan_told(*parse_plan([*EIGHT, "--hardware", "gpu-24gb"]))
    assert not told.plan.fits
    assert "Commands, with the changes above:" in told.text()
    assert all(change.flag in told.commands[0][1] for change in told.advice)
    never = plan_told(*parse_plan(["--shape", "llama-3-70b", "--prompt-tokens", "9", "--hardware", "laptop"]))
    assert never.commands == []
    assert never.text().endswith("Commands: none, because it does not fit.")


def test_the_settings_of_a_file_are_not_repeated_as_flags(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model_name: x\nbatch_size: 64\nmax_new_tokens: 100\n")
    told = plan_told(
        *parse_plan(["--config", str(file), "--shape", "qwen3-8b", "--prompt-tokens", "9", "--hardware", "mac"])
    )
    assert told.commands == [
        ("start", f"ppolm train --config {file} --model-name path/to/model --prompts path/to/prompts.jsonl")
    ]
    assert told.plan.case.config.batch_size == 64


def test_a_folder_with_a_config_alone_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = Qwen3Config(hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
    config.save_pretrained(tmp_path)
    found = values(capsys, "--model-name", str(tmp_path), "--prompt-tokens", "30", "--hardware", "laptop")
    assert found["dtype"] == "float32"
    with torch.device("meta"):
        assert found["parameters"] == shape_from(config, parse_plan([])[2]).parameters


def test_what_does_not_fit_comes_with_what_to_change() -> None:
    said = text(*EIGHT, "--hardware", "gpu-24gb", "--dtype", "float32")
    assert "It does not fit. What to change" in said
    assert "--dtype bfloat16" in said
    told = plan_told(*parse_plan([*EIGHT, "--hardware", "gpu-24gb", "--dtype", "float32"]))
    changed = [word for change in told.advice for word in change.flag.split()]
    flags = dict(zip(changed[::2], changed[1::2], strict=True))
    mended = [word for pair in ({"--dtype": "float32"} | flags).items() for word in pair]
    assert plan_told(*parse_plan([*EIGHT, "--hardware", "gpu-24gb", *mended])).plan.fits
    small = ["--shape", "llama-3-70b", "--prompt-tokens", "9", "--hardware", "h100-80gb", "--servers", "1"]
    assert "does not fit on a server" in text(*small)


def test_servers_ahead_of_training_make_a_step_as_long_as_the_slower_of_both(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [*EIGHT, "--hardware", "h100-80gb", "--servers", "1"]
    assert "the longer of generation with shipping, and of the rest" in text(*words, "--async-rollouts")
    apart, ahead = (values(capsys, *words, *more)["seconds"] for more in ([], ["--async-rollouts"]))
    training = ahead["scoring"] + ahead["update"] + ahead["exchange"]
    assert ahead["step"] == max(training, ahead["generation"] + ahead["shipping"]) < apart["step"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hardware", "gpu-24g"], "Did you mean gpu-24gb? Use this or laptop"),
        (["--shape", "qwen3-9b"], "not in the table. Did you mean qwen3-"),
        (["--devices", "0"], "devices is 0. It must be at least 1"),
        (["--servers", "-1"], "servers is -1"),
        (["--shard-base"], "there is one"),
        (["--hardware", "h100-80gb", "--devices", "12", "--shard-base"], ""),
        (["--hardware", "h100-80gb", "--devices", "11"], "11 devices do not fill hosts of 8"),
        (["--longest-prompt", "100"], "less than prompt_tokens, 300"),
        (["--longest-prompt", "50000"], "do not fit the model's context of 40960"),
        (["--server-hardware", "mac"], "there are no servers"),
        (["--servers", "2", "--engine", "mlx"], "servers is 2, and the settings say mlx"),
        (["--engine", "mlx", "--base-bits", "4"], "engine mlx has a copy of the base that is not packed"),
        (["--servers", "1", "--lora-r", "600"], "lora_r is 600, and vLLM serves ranks up to 512"),
        (["--device", "cpu"], "device is 'cpu', and gpu-24gb is planned as cuda"),
        (["--device", "cuda:1"], ""),
        (["--async-rollouts"], "engine is not vllm"),
        (["--servers", "1", "--async-rollouts", "--engine-folder", "/disk"], ""),
        (["--server-hardware", "this", "--servers", "1"], "only if it trains"),
        (["--lora-target-modules", "nonsense"], "LoRA cannot be added to path/to/model: Target modules"),
        (["--sft-adapter", "nowhere"], "Adapter folder nowhere has no adapter_config.json"),
    ],
    ids=str,
)
def test_bad_input_ends_in_one_clear_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = ["--shape", "qwen3-8b", "--prompt-tokens", "300", "--hardware", "gpu-24gb"]
    status = ppolm(["plan", *first, *words])
    error = capsys.readouterr().err
    assert status == (1 if said else 0), error
    assert said in error
    assert error.count("\n") == (1 if said else 0)


def test_prompts_of_unknown_length_are_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert ppolm(["plan", "--shape", "qwen3-8b", "--hardware", "mac"]) == 1
    assert "Give --prompt-tokens" in capsys.readouterr().err
    assert ppolm(["plan", "--shape", "qwen3-8b", "--hardware", "mac", "--prompts", str(tmp_path / "x.txt")]) == 1
    assert "A shape has no tokenizer" in capsys.readouterr().err
    assert ppolm(["plan", "--model-name", str(tmp_path / "nowhere"), "--prompt-tokens", "9", "--hardware", "mac"]) == 1
    assert "does not exist" in capsys.readouterr().err
    (tmp_path / "config.json").write_text("{")
    assert ppolm(["plan", "--model-name", str(tmp_path), "--prompt-tokens", "9", "--hardware", "mac"]) == 1
    assert "The config in folder" in capsys.readouterr().err
