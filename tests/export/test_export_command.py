"""``ppolm export``: what is written, what is refused, and that nothing is harmed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from ppolm.base_setup import AdapterSet, BaseModelSetup, new_lora_config
from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.embedded import EXAMPLE_RUN, MODEL
from ppolm.export.merge import add_adapter
from ppolm.storage.atomic import MANIFEST, describe
from ppolm.storage.claim import Claim
from tests.architectures import make_architecture
from tests.tiny_models import make_model_folder

Fails = Callable[..., str]


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str]) -> Fails:
    """The one sentence that an export prints."""

    def run(*arguments: Any) -> str:
        capsys.readouterr()
        assert ppolm(["export", *map(str, arguments)]) == 1
        said = capsys.readouterr()
        assert said.err.count("\n") == 1
        assert said.err.startswith("error: ")
        return said.err

    return run


def exported(folder: Path, *flags: str, run: Path = EXAMPLE_RUN) -> Path:
    assert ppolm(["export", str(run), "--output", str(folder), *flags]) == 0
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of the example run, to be damaged."""
    shutil.copytree(EXAMPLE_RUN, tmp_path / "run")
    return tmp_path / "run"


def code_of(folder: Path) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    return str(code)


@pytest.mark.parametrize("form", ["merged", "adapter", "gguf"])
def test_the_code_of_the_card_loads_the_export_and_answers(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = exported(tmp_path / "out", "--format", form)
    code = code_of(folder)
    assert "ppolm" not in code
    code = code.replace("path/to/this/folder", str(folder)).replace("path/to/the/base", str(MODEL))
    capsys.readouterr()
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert capsys.readouterr().out.strip()
    merged = AutoModelForCausalLM.from_pretrained(MODEL)
    adapted = PeftModel.from_pretrained(merged, str(EXAMPLE_RUN / "best"))
    ids = torch.tensor([[5, 9, 40, 77]])
    assert (scope["model"](ids).logits - adapted(ids).logits).abs().max() < 1e-4


def test_the_card_says_where_it_comes_from_how_good_it_is_and_validates(tmp_path: Path) -> None:
    card = ModelCard.load(exported(tmp_path / "out") / "README.md")
    assert card.data.to_dict() == {
        "library_name": "transformers",
        "license": "mit",
        "pipeline_tag": "text-generation",
        "tags": ["ppolm", "ppo"],
    }
    for said in (
        "**Improved.**",
        "| reward | -0.4592 [-0.785, -0.133] | 0.6009 [0.261, 0.94] |",
        "| judge | 0.3247 [0.24, 0.41] | 0.7834 [0.686, 0.881] |",
        "Change of the judge, prompt by prompt: +0.459 [+0.283, +0.635].",
        "| PPO steps | 25 of 30 |",
        "| reward | the embedded reward model |",
        "| held-out prompts | embedded:validation |",
        "| judge (measured, never trained on) | gold |",
        "| `kl_coef` | 0.1 |",
    ):
        assert said in card.text, said


def test_the_card_has_no_path_of_this_machine_and_no_key(run: Path, tmp_path: Path) -> None:
    config = PPOConfig.from_yaml(run / "config.yaml").changed(
        prompts="/home/me/secret-project/prompts.jsonl",
        reward=("/home/me/rewards.py:score", "https://judge.example/score?api_key=$MY_KEY"),
        reward_weights=(1.0, 0.5),
        sft_adapter="/home/me/sft",
        judge=None,
    )
    config.to_yaml(run / "config.yaml")
    (run / "start").mkdir()
    ancestor = {"path": "/home/me/runs/round-1", "step": 20, "digest": "0"}
    (run / "start" / "start.json").write_text(json.dumps({"ancestors": [ancestor]}))
    text = (exported(tmp_path / "out", run=run) / "README.md").read_text()
    assert not re.search(r"/home|/tmp|MY_KEY", text)
    assert "| prompts | prompts.jsonl |" in text
    assert "1 x rewards.py:score, 0.5 x https://judge.example/score" in text
    assert "| came from | round-1 (step 20) |" in text


def test_the_licence_is_that_of_the_bases_card_or_of_the_flag_or_unknown(run: Path, tmp_path: Path) -> None:
    base = shutil.copytree(MODEL, tmp_path / "base")
    PPOConfig.from_yaml(run / "config.yaml").changed(model_name=str(base)).to_yaml(run / "config.yaml")
    unknown = ModelCard.load(exported(tmp_path / "a", run=run) / "README.md")
    assert unknown.data.license is None
    assert "Unknown." in unknown.text
    (base / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A base\n")
    assert ModelCard.load(exported(tmp_path / "b", run=run) / "README.md").data.license == "apache-2.0"
    flagged = exported(tmp_path / "c", "--license", "cc-by-4.0", "--base-name", "me/base", run=run)
    card = ModelCard.load(flagged / "README.md")
    assert (card.data.license, card.data.base_model) == ("cc-by-4.0", "me/base")


def test_an_adapter_is_a_copy_and_can_name_its_base_anew(tmp_path: Path) -> None:
    folder = exported(tmp_path / "a", "--format", "adapter")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (folder / name).read_bytes() == (EXAMPLE_RUN / "best" / name).read_bytes()
    renamed = exported(tmp_path / "b", "--format", "adapter", "--base-name", "me/base")
    settings = json.loads((renamed / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "me/base"
    assert 'base = "me/base"' in code_of(renamed)


def test_an_adapter_that_names_its_base_by_a_path_is_exported_with_a_note(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = json.loads((run / "best" / "adapter_config.json").read_text())
    rewrite(run / "best", "adapter_config.json", json.dumps({**settings, "base_model_name_or_path": str(MODEL)}))
    folder = exported(tmp_path / "a", "--format", "adapter", run=run)
    printed = capsys.readouterr().out
    assert "Note:        adapter_config.json names the base by a path of the machine where it was trained." in printed
    assert "--base-name" in printed
    assert str(MODEL) not in (folder / "README.md").read_text()
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == str(MODEL)
    exported(tmp_path / "b", "--format", "adapter", "--base-name", "me/base", run=run)
    assert "Note:" not in capsys.readouterr().out
    exported(tmp_path / "c", "--format", "adapter")
    assert "calls the base 'embedded', a name that only ppolm knows" in capsys.readouterr().out


def rewrite(folder: Path, name: str, text: str) -> None:
    """Change a file of a folder, and its manifest with it."""
    (folder / name).write_text(text)
    files = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(files | {name: describe(folder / name)}, indent=1))


def test_weights_are_merged_in_float32_and_rounded_once_and_tied_ones_stay_tied(tmp_path: Path) -> None:
    whole = load_file(exported(tmp_path / "whole") / "model.safetensors")
    half = load_file(exported(tmp_path / "half", "--dtype", "bfloat16") / "model.safetensors")
    assert "lm_head.weight" not in whole
    assert all(torch.equal(half[name], weight.bfloat16()) for name, weight in whole.items())
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == "bfloat16"
    base = load_file(MODEL / "model.safetensors")
    changed = [name for name, weight in whole.items() if not torch.equal(weight, base[name])]
    assert changed
    assert all("_proj" in name for name in changed)


def test_the_default_precision_is_that_of_the_bases_files(run: Path, tmp_path: Path) -> None:
    base = shutil.copytree(MODEL, tmp_path / "base")
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)
    model.save_pretrained(base)
    PPOConfig.from_yaml(run / "config.yaml").changed(model_name=str(base)).to_yaml(run / "config.yaml")
    half = load_file(exported(tmp_path / "out", run=run) / "model.safetensors")
    assert {weight.dtype for weight in half.values()} == {torch.bfloat16}


def test_an_adapter_on_a_tied_output_matrix_unties_it(tmp_path: Path) -> None:
    folder = make_architecture("llama (tied)", tmp_path / "base")
    config = PPOConfig(model_name=str(folder), device="cpu", lora_r=2, lora_target_modules=("lm_head",))
    adapters = AdapterSet(BaseModelSetup(config))
    adapters.create("policy", new_lora_config(config, adapters.setup.causal_lm))
    for parameter in adapters.parameters("policy").values():
        torch.nn.init.normal_(parameter, std=0.1)
    adapters.save("policy", tmp_path / "adapter")
    ids = torch.tensor([[5, 9, 40]])
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), str(tmp_path / "adapter"))
    wanted = adapted(ids).logits.detach()
    merged = add_adapter(AutoModelForCausalLM.from_pretrained(folder), tmp_path / "adapter")
    merged.save_pretrained(tmp_path / "merged")
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")(ids).logits
    assert (found - wanted).abs().max() < 1e-4


def test_a_base_in_four_bits_is_merged_unquantised_and_that_is_said(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PPOConfig.from_yaml(run / "config.yaml").changed(base_bits=4).to_yaml(run / "config.yaml")
    packed = load_file(exported(tmp_path / "a", run=run) / "model.safetensors")
    assert "trained on a base in 4 bits" in capsys.readouterr().out
    whole = load_file(exported(tmp_path / "b") / "model.safetensors")
    assert all(torch.equal(packed[name], weight) for name, weight in whole.items())


def test_what_sft_made_is_exported_too(tmp_path: Path, fails: Fails) -> None:
    rows = ({"prompt": f"prompt {i}", "completion": " My roommate drives."} for i in range(8))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sft = ["sft", "--model-name", "embedded", "--data", str(tmp_path / "rows.jsonl"), "--num-epochs", "1"]
    assert ppolm([*sft, "--output", str(tmp_path / "adapter")]) == 0
    assert ppolm([*sft, "--train", "all", "--output", str(tmp_path / "all")]) == 0
    for name in ("adapter", "all"):
        folder = exported(tmp_path / f"{name}-out", "--format", "gguf", run=tmp_path / name)
        assert "Validation loss per token" in (folder / "README.md").read_text()
    whole = load_file(exported(tmp_path / "merged", run=tmp_path / "all") / "model.safetensors")
    trained = load_file(tmp_path / "all" / "model.safetensors")
    assert all(torch.equal(weight, trained[name]) for name, weight in whole.items())
    assert "there is no adapter" in fails(tmp_path / "all", "--output", tmp_path / "x", "--format", "adapter")
    with (tmp_path / "adapter" / "adapter_model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\1\2\3\4")
    assert "is damaged or cut off (adapter_model.safetensors" in fails(tmp_path / "adapter", "--output", tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("form", ["merged", "adapter", "gguf"])
def test_whoever_may_read_one_file_of_an_export_may_read_all(form: str, tmp_path: Path) -> None:
    folder = exported(tmp_path / "out", "--format", form)
    assert len({file.stat().st_mode for file in folder.iterdir()}) == 1


def test_an_existing_folder_is_refused_and_stays_as_it_is(tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    assert "already exists" in fails(EXAMPLE_RUN, "--output", tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["mine.txt"]
    assert "no output folder" in fails(EXAMPLE_RUN)


def test_what_is_no_run_is_said_to_be_what_it_is(run: Path, tmp_path: Path, fails: Fails) -> None:
    out = tmp_path / "out"
    merged, adapter = exported(tmp_path / "merged"), exported(tmp_path / "adapter", "--format", "adapter")
    for path in ("embedded", MODEL, merged):
        assert f"{path} is a model, not a run: other programs load it as it is" in fails(path, "--output", out)
    assert f"{adapter} is an adapter, not a run" in fails(adapter, "--output", out)
    for part in (run / "best" / "value", run / "config.yaml"):
        assert f"It is a part of the run {run}: give that." in fails(part, "--output", out)


def test_the_folder_of_the_best_policy_is_its_run(run: Path, tmp_path: Path) -> None:
    whole, best = exported(tmp_path / "a", run=run), exported(tmp_path / "b", run=run / "best")
    assert (whole / "README.md").read_text() == (best / "README.md").read_text()


def test_a_damaged_checkpoint_or_best_policy_is_refused_with_what_to_give_instead(
    run: Path, tmp_path: Path, fails: Fails
) -> None:
    for step in (10, 20):
        (run / "checkpoints" / f"step-{step}").mkdir(parents=True)
    said = fails(run / "checkpoints" / "step-20", "--output", tmp_path / "out")
    assert f"Give another one: {run / 'checkpoints' / 'step-10'}" in said
    (run / "checkpoints" / "step-10").rmdir()
    said = fails(run / "checkpoints" / "step-20", "--output", tmp_path / "out")
    assert f"Copy it again, or give the run: {run}" in said
    (run / "best" / "best.json").write_text("{}")
    assert "Copy the run again, or take one of its checkpoints." in fails(run, "--output", tmp_path / "out")


def test_an_export_into_a_best_policy_would_damage_it_and_is_refused(run: Path, tmp_path: Path, fails: Fails) -> None:
    assert "would look damaged with more files" in fails(run, "--output", run / "best" / "merged")
    exported(tmp_path / "out", run=run)


def test_runs_that_cannot_be_exported_are_refused_and_nothing_is_left(run: Path, tmp_path: Path, fails: Fails) -> None:
    out = tmp_path / "deep" / "out"
    with Claim(run, "wait"):
        assert "is being written to by process" in fails(run, "--output", out)
    (run / "best" / "adapter_model.safetensors").write_bytes(b"not weights")
    assert "is damaged or cut off" in fails(run, "--output", out)
    shutil.rmtree(run / "best")
    assert "has no best/ yet" in fails(run, "--output", out)
    assert "is not a run folder" in fails(tmp_path, "--output", out)
    assert not out.parent.exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--dtype", "q8_0"], "q8_0 is a type of GGUF"),
        (["--format", "adapter", "--dtype", "float16"], "copied as it is"),
        (["--license", "Free as in beer!"], "such as apache-2.0"),
        (["--push-to-hub", "a name with spaces"], "such as me/my-model"),
        (["--base-name", "a name with spaces"], "base_name is 'a name with spaces'"),
        (["--public"], "Give --push-to-hub"),
        (["--format", "adapter", "--push-to-hub", "me/x"], "Give --base-name"),
    ],
)
def test_flags_that_cannot_be_meant_are_refused_before_anything_is_loaded(
    flags: list[str], said: str, tmp_path: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppolm.export.export.merge", None)
    assert said in fails(EXAMPLE_RUN, "--output", tmp_path / "out", *flags)
    assert not (tmp_path / "out").exists()


def test_without_the_gguf_package_one_sentence_says_what_to_install(
    tmp_path: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppolm.export.gguf_file.find_spec", lambda name: None if name == "gguf" else find_spec(name))
    assert "pip install 'ppolm[gguf]'" in fails(EXAMPLE_RUN, "--output", tmp_path / "out", "--format", "gguf")


def test_an_architecture_without_gguf_and_a_packed_base_are_refused(run: Path, tmp_path: Path, fails: Fails) -> None:
    base = make_model_folder(tmp_path / "base", "gpt2")
    PPOConfig.from_yaml(run / "config.yaml").changed(model_name=str(base)).to_yaml(run / "config.yaml")
    assert "convert_hf_to_gguf.py" in fails(run, "--output", tmp_path / "out", "--format", "gguf")
    settings = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**settings, "quantization_config": {"quant_method": "gptq"}}))
    assert "is stored quantised ('gptq')" in fails(run, "--output", tmp_path / "out")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ppolm.export.export.card_text", full)
    assert "No space left" in fails(EXAMPLE_RUN, "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()
