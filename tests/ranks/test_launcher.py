"""`accelerate launch`: it starts a job that computes what one process does, and where it would not, one is told."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ppolm.errors import ProcessesError
from ppolm.ranks.launcher import check_launcher
from tests.ranks.launching import TRAIN, accelerate, metrics, run, same


@pytest.mark.slow
def test_accelerate_launches_processes_that_compute_what_one_does(tmp_path: Path) -> None:
    flags = [*TRAIN, "--max-steps", "2"]
    code, output = run(1, "ppolm", "train", *flags, "--run-name", "alone", cwd=tmp_path)
    assert code == 0, output
    for name, asked in (("two", ["--multi_gpu"]), ("asked for two", ["--cpu"])):
        code, output = accelerate([*asked, "--num_processes", "2"], "train", *flags, "--run-name", name, cwd=tmp_path)
        assert code == 0, output
        assert output.count("step 1/2") == 1, "one process speaks"
        assert ("has started one" in output) == (asked == ["--cpu"])
        assert same(metrics(tmp_path / "runs" / "alone"), metrics(tmp_path / "runs" / name))
    code, output = accelerate(["--multi_gpu", "--num_processes", "2"], "runs", cwd=tmp_path)
    assert code != 0
    assert "ppolm runs runs in one process." in output, "they were two, indeed"


@pytest.mark.parametrize("name", ["ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_MEGATRON_LM"])
def test_options_that_are_for_other_programs_are_refused(name: str) -> None:
    with pytest.raises(ProcessesError, match=r"accelerate launch was given --use_\w+, which ppolm does not use"):
        check_launcher(2, {name: "true"})
    check_launcher(2, {name: "false"})


def test_processes_of_mpi_that_do_not_know_of_each_other_are_refused() -> None:
    with pytest.raises(ProcessesError, match=r"MPI has started 4 processes, each of which would train by itself"):
        check_launcher(1, {"PMI_SIZE": "4"})
    check_launcher(1, {"PMI_SIZE": "1", "OMPI_COMM_WORLD_SIZE": ""})
    check_launcher(4, {"PMI_SIZE": "4"})  # torchrun inside of it


def test_one_process_where_several_were_asked_for_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_launcher(1, {"ACCELERATE_USE_CPU": "True"})
        check_launcher(1, {"MASTER_ADDR": "127.0.0.1"})
        assert not caplog.records
        check_launcher(1, {"ACCELERATE_USE_CPU": "True", "MASTER_ADDR": "127.0.0.1"})
    assert "was to start several processes and has started one" in caplog.text
