# ruff: noqa: ARG002 (a tool is called with more than this one reads)
"""Runs logged by the real W&B, MLflow, Trackio and TensorBoard, offline, read back and compared with metrics.jsonl."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from ppolm.config import PPOConfig
from ppolm.errors import ConfigError
from ppolm.hooks import background_logger
from ppolm.hooks.background_logger import BackgroundLogger
from ppolm.hooks.log_sink import without_secrets
from ppolm.hooks.loggers import SINKS
from ppolm.hooks.mlflow_sink import metric_name
from ppolm.hooks.wandb_sink import has_key
from ppolm.ppo_trainer import PPOTrainer
from ppolm.storage.metrics_log import read_metrics
from tests.conftest import PROMPTS, spread
from tests.hooks import tool_readers
from tests.hooks.tool_readers import Numbers
from tests.warm import start_warm

MakeConfig = Callable[..., PPOConfig]
SMALL = ["--batch-size", "2", "--minibatch-size", "2", "--max-new-tokens", "4", "--lora-r", "2"]
TOOLS = ("tensorboard", "wandb", "mlflow", "trackio")
HERE = tuple(tool for tool in TOOLS if find_spec(tool) is not None)
SECRETS = {
    "WANDB_API_KEY": "5ec2e7" * 7,
    "MLFLOW_TRACKING_TOKEN": "mlflow-swordfish-1234",
    "MLFLOW_TRACKING_PASSWORD": "mlflow-hunter2-5678",
    "HF_TOKEN": "hf_sesame0penSesame",
}
REWARD = "def score(prompts, responses):\n    return [sum(map(ord, text)) % 97 / 97 for text in responses]\n"


def needs(tool: str) -> None:
    if tool not in HERE:
        pytest.skip(f"{tool} is not installed (pip install 'ppolm[{tool}]')")


class Logged:
    """A run that was logged to all tools: its folder, what it printed, and what each start had written."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.run = folder, folder / "runs" / "run"
        self.printed = ""
        (folder / "reward.py").write_text(REWARD)
        (folder / "prompts.txt").write_text("\n".join(f"{prompt} {i}" for i in range(3) for prompt in PROMPTS))
        flags = [*SMALL, "--model-name", str(model), "--prompts", str(folder / "prompts.txt"), "--eval-every", "2"]
        flags += ["--reward", f"{folder}/reward.py:score", "--output-dir", str(folder / "runs"), "--run-name", "run"]
        flags += ["--checkpoint-every", "2", "--max-eval-prompts", "2", "--keep-checkpoints", "9", "--threads", "1"]
        self.start(*flags, "--max-steps", "3", "--log-to", *HERE)

    def start(self, *flags: str) -> None:
        """The command line, with keys in its environment and no network."""
        offline = {"WANDB_MODE": "offline", "TRACKIO_DIR": str(self.folder / "trackio"), **SECRETS}
        with start_warm("ppolm", "train", *flags, environment=os.environ | offline) as child:
            assert child.end(300) == 0, child.err
            self.printed += child.out + child.err
            self.left = [one for one in psutil.process_iter(["cmdline"]) if serves(one, child.pid)]

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run / "metrics.jsonl").read_text().splitlines()]


def serves(process: psutil.Process, pid: int) -> bool:
    """Whether it is a service that W&B has started for a process."""
    words = process.info["cmdline"] or []
    return "wandb-core" in "".join(words) and str(pid) in words


def expected(run: Path, repeated: tuple[int, ...] = ()) -> dict[tuple[int, str], float]:
    """Every number of metrics.jsonl; of repeated steps without the seconds, which are never the same."""
    return {
        (int(row["step"]), f"{kind}/{name}"): float(value)
        for kind in ("train", "eval")
        for row in read_metrics(run, kind)
        for name, value in row.items()
        if isinstance(value, (int, float)) and name != "step"
        if not (kind == "train" and row["step"] in repeated and name.startswith("seconds/"))
    }


def compare(found: Numbers, run: Path, repeated: tuple[int, ...] = (), tolerance: float = 0.0) -> None:
    """Everything is there, once, and the same."""
    wanted = expected(run, repeated)
    kept = [one for one in found if (one[0], one[1]) in wanted]
    assert {(step, name) for step, name, _ in kept} == set(wanted)
    assert len(kept) == len(wanted), "no step is there twice"
    left_out = {(step, name) for step, name, _ in found if (step, name) not in wanted}
    abandoned = (3, "eval/")  # the last evaluation of a run that then went on from before it
    assert all(name.startswith("train/seconds/") or (step, name[:5]) == abandoned for step, name in left_out)
    for step, name, value in kept:
        assert math.isclose(value, wanted[step, name], rel_tol=tolerance, abs_tol=0.0), (step, name)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Logged:
    """Three steps and two evaluations; then resumed from the end for a fourth step, and from step 2 for all to five."""
    made = Logged(tmp_path_factory.mktemp("logged"), model_folder)
    made.start("--resume", str(made.run), "--max-steps", "4")
    return made


@pytest.mark.parametrize("tool", TOOLS)
def test_a_run_and_its_resume_are_in_every_tool_number_by_number(
    logged: Logged, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(tool)
    assert [row["step"] for row in read_metrics(logged.run)] == [1, 2, 3, 4]
    assert [row["step"] for row in read_metrics(logged.run, "eval")] == [0, 2, 3, 4]
    settings = PPOConfig.from_yaml(logged.run / "config.yaml")
    if tool == "tensorboard":
        found, texts = tool_readers.tensorboard_run(logged.run)
        compare(found, logged.run, tolerance=1e-6)  # float32
        assert {"settings", "samples", "verdict", "stopped"} <= set(texts)
    if tool == "wandb":
        found, shown, summary = tool_readers.wandb_run(logged.run)
        compare(found, logged.run)
        assert shown["learning_rate"] == settings.learning_rate
        assert summary["verdict"] in ("unclear", "unchanged", "suspect")
        assert list(logged.run.glob("wandb/*/files/media/table/samples_*.json"))
        assert len({path.name[-8:] for path in logged.run.glob("wandb/offline-run-*")}) == 1, "one run, with one id"
        assert logged.left == [], "the service of W&B has ended"
    if tool == "mlflow":
        found, run, samples = tool_readers.mlflow_run(logged.run, monkeypatch)
        compare(found, logged.run)
        assert float(run.data.params["learning_rate"]) == settings.learning_rate
        assert run.data.tags["stopped"] == "finished"
        assert (run.info.status, run.info.run_name) == ("FINISHED", "run")
        assert samples == ["step-000000.json", "step-000002.json", "step-000003.json", "step-000004.json"]
    if tool == "trackio":
        found, shown, others = tool_readers.trackio_run(logged.folder / "trackio", "run", monkeypatch)
        compare(found, logged.run)
        assert shown["learning_rate"] == settings.learning_rate
        assert [step for step, key, _ in others if key == "samples"] == [0, 2, 3, 4]
        assert (4, "stopped", "finished") in others


def test_keys_in_the_environment_are_in_no_file_and_in_no_message(logged: Logged) -> None:
    files = [path for path in logged.folder.rglob("*") if path.is_file()]
    assert len(files) > 100
    for secret in SECRETS.values():
        assert secret not in logged.printed
        assert not [path for path in files if secret.encode() in path.read_bytes()]


def test_a_resume_from_an_earlier_checkpoint_doubles_no_step(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last test of this file that uses the run: it changes it."""
    logged.start("--resume", str(logged.run / "checkpoints" / "step-000002"), "--max-steps", "5")
    assert [row["step"] for row in read_metrics(logged.run)] == [1, 2, 3, 4, 5]
    again = (3, 4)
    if "wandb" in HERE:
        compare(tool_readers.wandb_run(logged.run)[0], logged.run, again)
    if "mlflow" in HERE:
        compare(tool_readers.mlflow_run(logged.run, monkeypatch)[0], logged.run, again)
    if "trackio" in HERE:
        found, _, _ = tool_readers.trackio_run(logged.folder / "trackio", "run", monkeypatch)
        compare(found, logged.run, again)
    compare(tool_readers.tensorboard_run(logged.run)[0], logged.run, tolerance=1e-6)


@pytest.mark.parametrize("tool", ["wandb", "mlflow", "trackio"])
def test_a_tool_that_is_not_installed_is_named_before_a_model_is_loaded(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    monkeypatch.setattr("ppolm.hooks.loggers.find_spec", lambda name: None if name == tool else name)
    monkeypatch.setattr("ppolm.ppo_trainer.ppo_trainer.setup_models", lambda _: pytest.fail("a model was loaded"))
    with pytest.raises(ConfigError, match=rf"log_to names {tool}, which is not .* pip install 'ppolm\[{tool}\]'"):
        PPOTrainer(make_config(log_to=("tensorboard", tool)))


class Broken:
    """A tool that fails or hangs at some call."""

    def __init__(self, where: str, hangs: bool) -> None:
        self.where, self.hangs, self.calls = where, hangs, list[str]()

    def _at(self, where: str) -> None:
        self.calls.append(where)
        if where == self.where and self.hangs:
            time.sleep(60)
        elif where == self.where:
            raise OSError("no route to https://me:hunter2-abc@host with hf_sesame0penSesame")

    def begin(self, _: Any) -> Broken:
        self._at("begin")
        return self

    def numbers(self, kind: str, step: int, numbers: Any) -> None:
        self._at(f"{kind} {step}")

    def samples(self, step: int, rows: Any) -> None:
        self._at("samples")

    def close(self, end: Any) -> None:
        self._at("close")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_logger, "PATIENCE", 0.5)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize("where", ["begin", "train 1", "samples", "close"])
def test_a_tool_that_fails_or_hangs_is_one_warning_and_the_run_goes_on(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str, hangs: bool
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRETS["HF_TOKEN"])
    broken = Broken(where, hangs)
    monkeypatch.setitem(SINKS, "wandb", broken.begin)
    monkeypatch.setattr("ppolm.hooks.loggers.find_spec", lambda name: name)
    config = make_config(max_steps=2, eval_every=1, eval_fraction=0.3, log_to=("wandb",))
    results = PPOTrainer(config, reward=spread).train(PROMPTS)
    assert results.stopped == "finished"
    assert broken.calls[-1] == where, "after its failure it is not called again"
    said = [record.getMessage() for record in caplog.records if "wandb" in record.getMessage()]
    assert len(said) == 1
    assert ("has not taken everything" if hangs else "left out from here, and the run goes on: OSError") in said[0]
    assert "hunter2" not in said[0]
    assert "sesame" not in said[0]


def test_a_tool_that_falls_too_far_behind_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background_logger, "BEHIND", 3)
    logger = BackgroundLogger("wandb", lambda _: pytest.fail("never begun"))
    for _ in range(5):
        logger._put(lambda: None)
    assert [record.getMessage().partition(":")[2] for record in caplog.records] == [" it is 3 events behind"]


def test_old_settings_files_with_tensorboard_still_load() -> None:
    assert PPOConfig.from_dict({"tensorboard": True}).log_to == ("tensorboard",)
    assert PPOConfig.from_dict({"tensorboard": False}).log_to == ()
    with pytest.raises(ConfigError, match="tensorboard is 'yes', expected true or false"):
        PPOConfig.from_dict({"tensorboard": "yes"})
    with pytest.raises(ConfigError, match="log_to, which is given too"):
        PPOConfig.from_dict({"tensorboard": True, "log_to": ["wandb"]})
    with pytest.raises(ConfigError, match="log_to is 'wnb', expected one of: tensorboard, wandb, mlflow, trackio"):
        PPOConfig(log_to=("wnb",))  # type: ignore[arg-type]


def test_names_of_rewards_become_names_that_mlflow_takes() -> None:
    assert metric_name("train/reward//abs/dir/x.py:score").endswith("train/reward/abs/dir/x.py:score")
    assert metric_name("train/reward/https://host/score?key=$MY_KEY") == "train/reward/https:/host/score_key__MY_KEY"
    assert metric_name("train/a/../b[0]") == "train/a/b_0_"


def test_w_and_b_is_offline_without_a_key_and_asks_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not has_key({})
    assert has_key({"WANDB_API_KEY": "x"})
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password secret\n")
    assert has_key({"NETRC": str(tmp_path / "netrc")})
    assert not has_key({"NETRC": str(tmp_path / "netrc"), "WANDB_BASE_URL": "https://wandb.my.org"})


def test_messages_lose_the_values_of_keys_and_users_in_addresses() -> None:
    environment = {"MLFLOW_TRACKING_TOKEN": "swordfish", "LANG": "C.UTF-8", "MY_KEY": "abc"}
    said = without_secrets("401 from https://me:pw@host for swordfish, C.UTF-8, abc", environment)
    assert said == "401 from https://...@host for $MLFLOW_TRACKING_TOKEN, C.UTF-8, abc"
