"""The commands in several processes: one folder, one voice, the same result; a job of N resumes as one of M."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.ranks.launching import TRAIN, metrics, run, same

pytestmark = pytest.mark.slow


def ppolm(processes: int, folder: Path, *arguments: str, cold: bool = False) -> str:
    code, output = run(processes, "ppolm", *arguments, cwd=folder, cold=cold)
    assert code == 0, output
    return output


def test_a_run_of_two_processes_resumes_on_one_and_on_three_with_equal_evaluations(tmp_path: Path) -> None:
    whole = ppolm(1, tmp_path, "train", *TRAIN, "--max-steps", "4", "--run-name", "whole")
    begun = ppolm(2, tmp_path, "train", *TRAIN, "--max-steps", "2", "--run-name", "then-1", cold=True)
    assert begun.count("step 1/2") == begun.count("Run folder:") == 1, "one process speaks"
    shutil.copytree(tmp_path / "runs" / "then-1", tmp_path / "runs" / "then-3")
    for processes in (1, 3):
        name = f"then-{processes}"
        ppolm(processes, tmp_path, "train", "--resume", f"runs/{name}", "--max-steps", "4")
        assert same(metrics(tmp_path / "runs" / "whole"), metrics(tmp_path / "runs" / name))
        assert not (tmp_path / "runs" / name / ".lock").exists()
    assert "Verdict" in whole
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["then-1", "then-3", "whole"]


def test_a_second_round_is_the_same_in_two_processes(tmp_path: Path) -> None:
    ppolm(1, tmp_path, "train", *TRAIN, "--max-steps", "1", "--run-name", "first")
    for processes in (1, 2):
        flags = ("--max-steps", "1", "--run-name", f"second-{processes}", "--start-reference", "policy")
        ppolm(processes, tmp_path, "train", "--start-from", "runs/first", *flags)
    one, two = (metrics(tmp_path / "runs" / f"second-{processes}") for processes in (1, 2))
    assert same(one, two)
    ppolm(2, tmp_path, "train", "--resume", "runs/second-1", "--max-steps", "2")


def test_a_run_without_a_name_has_one_folder_and_evaluates_the_same_in_two_processes(tmp_path: Path) -> None:
    ppolm(2, tmp_path, "train", *TRAIN, "--max-steps", "1")
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "best" / "adapter_model.safetensors").is_file()
    assert (folder / "report" / "summary.md").is_file()
    found = [json.loads(_last_object(ppolm(n, tmp_path, "eval", str(folder), "--json"))) for n in (1, 2)]
    numbers = [[one["reference"], one["policy"], *one["change"].values()] for one in found]
    assert same(*numbers)
    assert {key: found[0][key] for key in ("prompts", "responses")} == {"prompts": 6, "responses": 6}
    code, output = run(2, "ppolm", "train", *TRAIN, "--run-name", folder.name, cwd=tmp_path)
    assert code != 0
    assert output.count("already holds a run") == output.count("error: Run folder") == 1, output


@pytest.mark.parametrize("command", ["sft", "reward"])
def test_supervised_training_is_the_same_in_two_processes(tmp_path: Path, command: str) -> None:
    rows = [
        {"prompt": f"Question {i}?", "chosen": f"The answer to {i} is good.", "rejected": f"No, {i}."}
        if command == "reward"
        else {"prompt": f"Question {i}?", "completion": f"The answer to {i} is good."}
        for i in range(24)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["--model-name", "embedded", "--data", "rows.jsonl", "--num-epochs", "2", "--batch-size", "8"]
    flags += ["--learning-rate", "1e-3", "--threads", "1"]
    found = []
    for processes in (1, 2):
        output = ppolm(processes, tmp_path, command, *flags, "--output", f"out-{processes}")
        assert output.count("Use it:") == 1
        about = json.loads((tmp_path / f"out-{processes}" / "training.json").read_text())
        found.append(about["validation"])
        assert not (tmp_path / f"out-{processes}" / "checkpoint").exists()
    for begun, resumed in ((2, 1), (1, 2)):
        output = interrupted(begun, tmp_path, command, *flags, "--output", f"out-{begun}-{resumed}")
        assert output.count(f"--resume out-{begun}-{resumed}") == 1, output
        ppolm(resumed, tmp_path, command, "--resume", f"out-{begun}-{resumed}")
        found.append(json.loads((tmp_path / f"out-{begun}-{resumed}" / "training.json").read_text())["validation"])
    assert all(same(found[0], other) for other in found[1:])
    assert found[0][-1]["loss"] < found[0][0]["loss"]


def interrupted(processes: int, folder: Path, *arguments: str) -> str:
    code, output = run(processes, "tests.ranks.interrupted_job", *arguments, cwd=folder)
    assert code != 0
    assert "after update 3 of" in output, output
    assert output.count("stopping all processes after this step") == (processes > 1), output
    return output


def test_readiness_is_the_same_in_two_processes(tmp_path: Path) -> None:
    answers = ("The answer is good and true.", "It is what I have found so far.", "Yes.")
    rows = [{"prompt": f"Question {i}?", "chosen": answers[i % 3], "rejected": f"No, not {i}."} for i in range(40)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    one, two = (
        json.loads(_last_object(ppolm(n, tmp_path, "readiness", "embedded", "--data", "rows.jsonl", "--json")))
        for n in (1, 2)
    )
    assert same([flat(one)], [flat(two)])


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """What is in nested lists and mappings, by the way to it."""
    if not isinstance(value, dict | list):
        return {name: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {key: one for step, item in items for key, one in flat(item, f"{name}/{step}").items()}


def test_a_reward_function_is_asked_once_for_all_processes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\n"
        "def score(prompts, responses):\n"
        "    with Path('calls').open('a') as file:\n"
        "        file.write(f'{len(responses)}\\n')\n"
        "    return [float(len(response)) for response in responses]\n"
    )
    ppolm(2, tmp_path, "train", *TRAIN, "--max-steps", "2", "--run-name", "x", "--reward", "mine.py:score")
    assert (tmp_path / "calls").read_text().split() == ["6", "8", "8", "6"], "evaluation, two steps, evaluation"


def test_an_error_is_said_once_and_ends_all_processes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def score(prompts, responses):\n    raise ValueError('out of words')\n")
    code, output = run(
        2, "ppolm", "train", *TRAIN, "--reward", "mine.py:score", "--run-name", "x", cwd=tmp_path, cold=True
    )
    assert code != 0
    assert len(re.findall(r"^error: .*out of words", output, re.MULTILINE)) == 1, output
    assert "src/ppolm" not in output, "the launcher prints a traceback of its own, we do not"


def test_a_command_for_one_process_says_so(tmp_path: Path) -> None:
    code, output = run(2, "ppolm", "runs", cwd=tmp_path, cold=True)
    assert code != 0
    assert "error: ppolm runs runs in one process. Start it without torchrun or accelerate launch." in output


def _last_object(output: str) -> str:
    return output[output.index("{\n") : output.rindex("}") + 1]
