"""The recipes for several hosts: their files parse, their numbers agree, and their commands are ours."""

from __future__ import annotations

import copy
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from shlex import split
from typing import Any

import kubernetes_validate
import pytest
import yaml
from torch.distributed.run import get_args_parser

from ppolm.cli.settings import TrainArguments, parse_train
from ppolm.embedded import EXAMPLE_RUN
from ppolm.planning.launch import PORT
from tests.conftest import ROOT
from tests.ranks.launching import QUIET, metrics

RECIPES = ROOT / "examples" / "recipes"
SCRIPT = RECIPES / "train.sh"
KUBERNETES = "1.37"
"""The version whose schema the manifest is compared with."""
ASKED = ("NODES", "NODE_RANK", "FIRST_HOST", "DEVICES")
"""What train.sh is told by every other recipe."""


def environment(**values: str) -> dict[str, str]:
    """With this Python's torchrun and this checkout's ppolm."""
    given = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")} | QUIET
    given["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    given["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return given | values


def kubernetes() -> dict[str, Any]:
    parts = yaml.safe_load_all((RECIPES / "kubernetes.yaml").read_text())
    return {part["kind"]: part for part in parts}


@pytest.mark.parametrize("name", ["train.sh", "slurm.sbatch"])
def test_scripts_are_read_by_bash(name: str) -> None:
    subprocess.run(["bash", "-n", str(RECIPES / name)], check=True)


@pytest.mark.parametrize("name", ["train.sh", "slurm.sbatch"])
def test_shellcheck_finds_nothing(name: str) -> None:
    subprocess.run([str(Path(sys.executable).parent / "shellcheck"), str(RECIPES / name)], check=True)


def test_kubernetes_takes_every_part() -> None:
    """Strictly: a field that its version does not know is an error."""
    parts = kubernetes()
    for part in parts.values():
        kubernetes_validate.validate(part, KUBERNETES, strict=True)
    broken = copy.deepcopy(parts["Job"])
    broken["spec"]["template"]["spec"]["containers"][0]["comand"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES, strict=True)


def started(tmp_path: Path, **values: str) -> list[str]:
    """What train.sh hands to torchrun, which here only writes it down."""
    (tmp_path / "bin").mkdir()
    noting = tmp_path / "bin" / "torchrun"
    noting.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\n')
    noting.chmod(0o755)
    given = environment(NODES="2", NODE_RANK="1", FIRST_HOST="host-a", **values)
    given["PATH"] = f"{tmp_path}/bin:{given['PATH']}"
    subprocess.run(["bash", str(SCRIPT), "--max-steps", "7"], check=True, env=given)
    return (tmp_path / "words").read_text().splitlines()


def understood(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, TrainArguments]:
    """The words as torchrun's own parser and ours read them."""
    launch = get_args_parser().parse_args(words)
    assert (launch.module, launch.training_script) == (True, "ppolm")
    assert launch.training_script_args[0] == "train"
    monkeypatch.chdir(ROOT)
    return launch, parse_train(launch.training_script_args[1:])


def test_the_script_starts_a_run_that_torchrun_and_ppolm_understand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = started(tmp_path, RUN=f"{tmp_path}/runs/one", MODEL="embedded")
    launch, arguments = understood(words, monkeypatch)
    assert (launch.nnodes, launch.node_rank, launch.nproc_per_node) == ("2", 1, "8")
    assert (launch.master_addr, launch.master_port) == ("host-a", PORT)
    settings = arguments.settings
    assert (settings.model_name, settings.run_name, settings.max_steps) == ("embedded", "one", 7)
    assert settings.output_dir == f"{tmp_path}/runs"


def test_started_again_the_script_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "runs" / "one"
    shutil.copytree(EXAMPLE_RUN, run)
    (run / "checkpoints" / "step-000001").mkdir(parents=True)
    _, arguments = understood(started(tmp_path, RUN=str(run)), monkeypatch)
    assert arguments.resume == str(run)
    assert arguments.config is None


@pytest.mark.parametrize("missing", ["NODES", "NODE_RANK", "FIRST_HOST"])
def test_a_variable_that_is_missing_is_named(missing: str, tmp_path: Path) -> None:
    given = environment(NODES="2", NODE_RANK="0", FIRST_HOST="a", RUN=str(tmp_path))
    del given[missing]
    answer = subprocess.run(["bash", str(SCRIPT)], capture_output=True, text=True, env=given, check=False)
    assert answer.returncode != 0
    assert missing in answer.stderr


@pytest.mark.parametrize("name", ["slurm.sbatch", "skypilot.yaml", "kubernetes.yaml"])
def test_every_recipe_tells_the_script_what_it_asks_for_and_says_how_it_is_started(name: str) -> None:
    text = (RECIPES / name).read_text()
    for variable in ASKED:
        assert re.search(rf"\b{variable}=|name: {variable}\b", text), f"{name} does not set {variable}"
    assert "examples/recipes/train.sh" in text
    assert f"examples/recipes/{name}" in text.split("\nname:")[0].split("apiVersion")[0]


def test_the_port_is_the_same_everywhere() -> None:
    assert f"PORT=${{PORT:-{PORT}}}" in SCRIPT.read_text()
    parts = kubernetes()
    (container,) = parts["Job"]["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one["value"] for one in container["env"]}
    ports = {parts["Service"]["spec"]["ports"][0]["port"], container["ports"][0]["containerPort"], int(given["PORT"])}
    assert ports == {PORT}


def test_pods_devices_names_and_volumes_agree() -> None:
    parts = kubernetes()
    job, name = parts["Job"]["spec"], parts["Job"]["metadata"]["name"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    given = {one["name"]: one["value"] for one in container["env"]}
    assert job["completions"] == job["parallelism"] == int(given["NODES"])
    assert container["resources"]["limits"]["nvidia.com/gpu"] == int(given["DEVICES"])
    assert parts["Service"]["metadata"]["name"] == pod["subdomain"]
    assert parts["Service"]["spec"]["selector"] == {"job-name": name}
    assert given["FIRST_HOST"] == f"{name}-0.{pod['subdomain']}"
    claims = [one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"] if "persistentVolumeClaim" in one]
    assert claims == [parts["PersistentVolumeClaim"]["metadata"]["name"]]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert set(mounts) == {one["name"] for one in pod["volumes"]}
    assert given["RUN"].startswith(mounts["shared"] + "/")


def test_slurm_and_skypilot_ask_for_what_they_use() -> None:
    slurm = (RECIPES / "slurm.sbatch").read_text()
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", slurm, re.MULTILINE))
    assert asked["ntasks-per-node"] == "1", "torchrun starts the processes of a host"
    assert f"DEVICES={asked['gpus-per-node']}" in slurm
    sky = yaml.safe_load((RECIPES / "skypilot.yaml").read_text())
    assert sky["num_nodes"] == 2
    assert list(sky["volumes"]) == ["/shared"]
    for part in ("setup", "run"):
        subprocess.run(["bash", "-n"], input=sky[part], text=True, check=True)


@pytest.mark.slow
def test_two_hosts_train_together_and_resume(tmp_path: Path) -> None:
    """Two launchers on this machine, as on two hosts, each with a process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    run = tmp_path / "runs" / "first"
    flags = split("--max-new-tokens 6 --max-eval-prompts 2 --log-to --threads 1 --checkpoint-every 1")
    for steps, extra in ((1, flags), (2, [])):
        jobs = []
        for number in ("1", "0"):  # the first host comes last
            given = {"NODES": "2", "NODE_RANK": number, "FIRST_HOST": "127.0.0.1", "DEVICES": "1", "PORT": port}
            given |= {"MODEL": "embedded", "RUN": str(run)}
            command = ["bash", str(SCRIPT), "--max-steps", str(steps), *extra]
            streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            jobs.append(subprocess.Popen(command, env=environment(**given), cwd=tmp_path, **streams))
        try:
            said = [job.communicate(timeout=400)[0] for job in jobs]
        finally:
            for job in jobs:
                job.kill()
        assert [job.returncode for job in jobs] == [0, 0], "\n".join(said)
        assert "Run folder:" not in said[0], "the first host speaks"
        assert f"step {steps}/{steps}" in said[1]
    assert [row["step"] for row in metrics(run) if "kl" in row][-1] == 2
