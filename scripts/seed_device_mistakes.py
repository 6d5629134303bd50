"""Seeds bugs that only show on a device other than the CPU, one at a time, and reports whether the tests catch them.

    python -m scripts.seed_device_mistakes            all of them, about half a minute each
    python -m scripts.seed_device_mistakes 3 7        some of them, by number

Each is made in a copy of the sources; the checkout is not changed. The exit code is the number of bugs not caught.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.whole import test_devices

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Mistake:
    """What is wrong, in which file, and the replacement of code that causes it."""

    what: str
    file: str
    old: str
    new: str
    device: str = "mps:0"
    """Where it should be caught: mps refuses everything that cuda refuses, and float64."""


CONTROL = Mistake("no mistake", "models/scalar_head.py", "hidden.float()", "hidden.float()")
"""A change without effect: if the tests fail on it, they fail anyway, and say nothing about the mistakes."""

MISTAKES = (
    Mistake(
        "an index on the host",
        "batches/sequences.py",
        "ids, index, moved = on_device([input_ids, torch.cat(state_index), torch.cat(read_actions)], device)",
        "(ids, moved), index = on_device([input_ids, torch.cat(read_actions)], device), torch.cat(state_index)",
    ),
    Mistake(
        "columns of the table not brought to the device",
        "ppo_trainer/model_trainer.py",
        "columns.to(batch.actions.device).unbind()",
        "columns.unbind()",
    ),
    Mistake(
        "a mask on the host, in the last block",
        "kernels/fused_block.py",
        "torch.arange(width, device=positions.device)",
        "torch.arange(width)",
    ),
    Mistake(
        "an attention mask on the host, of packed rows",
        "batches/packing.py",
        "mask=_mask(*moved[4:])",
        "mask=_mask(*tree)",
    ),
    Mistake(
        "an attention mask made on the host and copied, of packed rows",
        "batches/packing.py",
        "mask=_mask(*moved[4:])",
        "mask=_mask(*tree).to(device)",
    ),
    Mistake(
        "tensors of a microbatch copied one by one",
        "batches/one_copy.py",
        'if device.type == "cpu":\n        return list(tensors)',
        "if True:\n        return [one.to(device) for one in tensors]",
    ),
    Mistake(
        "scores read after every microbatch",
        "models/base_model.py",
        "(batch.rows, measure(batch).float())",
        "(batch.rows, measure(batch).float().cpu())",
    ),
    Mistake(
        "metrics of an update read on their own",
        "training/updater.py",
        "(metrics or DeferredMeans()).read_with(",
        "DeferredMeans().read_with(",
    ),
    Mistake(
        "the running rows copied to the device at every token",
        "rollout/slot_sampler.py",
        'if self.device.type == "cpu" and len(numbers) < len(self.running):\n            return torch.tensor(numbers)',
        "if len(numbers) < len(self.running):\n            return torch.tensor(numbers, device=self.device)",
    ),
    Mistake(
        "keys and values copied for every query head",
        "kernels/attention.py",
        "whole = length > 1 and not query.is_cpu",
        "whole = not query.is_cpu",
    ),
    Mistake(
        "an attention mask on the host, in sampling",
        "rollout/slot_cache.py",
        "torch.arange(reach, device=columns.device) <= columns[:, None]",
        "torch.arange(reach) <= columns.cpu()[:, None]",
    ),
    Mistake(
        "float64 on mps, in sampling",
        "rollout/sampling.py",
        'torch.float32 if device.type == "mps" else torch.float64',
        "torch.float64",
    ),
    Mistake(
        "float64 on mps, in the fit of the head",
        "supervised/head_fit.py",
        "states.cpu().double(), held_out_states.cpu().double()",
        "states.double(), held_out_states.double()",
    ),
    Mistake(
        "float64 on mps, in the validation of a reward model",
        "supervised/reward_trainer.py",
        "self.model.head(states()).cpu())",
        "self.model.head(states()))",
    ),
    Mistake(
        "torch.zeros without a device, in the trunk",
        "base_setup/trunk.py",
        "dtype=found[0].dtype, device=self.setup.device)",
        "dtype=found[0].dtype)",
    ),
    Mistake(
        "random numbers of the host not moved",
        "rollout/slot_sampler.py",
        "uniforms.to(self.device, exact_dtype(self.device))",
        "uniforms.to(exact_dtype(self.device))",
    ),
    Mistake(
        "a scalar head left on the CPU",
        "models/scalar_head.py",
        "nn.Linear, hidden_size, 1, device=device)",
        'nn.Linear, hidden_size, 1, device="cpu")',
    ),
    Mistake(
        "a head that is loaded, and stays on the CPU",
        "models/scalar_head.py",
        "self.linear.load_state_dict(tensors)",
        "self.linear.load_state_dict(tensors, assign=True)",
    ),
    Mistake(
        "moments of the optimiser left on the CPU after a resume",
        "training/updater.py",
        'self.optimizer.load_state_dict({"state": moments, "param_groups": groups})',
        "self.optimizer.state.update({list(self.parameters.values())[i]: one for i, one in moments.items()})",
    ),
    Mistake(
        "random states of a checkpoint asked of a device that did not write it",
        "supervised/checkpoint.py",
        'if device.type == "cuda" and "cuda" in states:',
        'if device.type == "cuda":',
        device="cuda:0",
    ),
    Mistake(
        "one more number read per token",
        "rollout/slot_sampler.py",
        "reach = self._reach(max(self.host_columns) + 1)",
        "reach = self._reach(int(self.columns.max()) + 1)",
    ),
)


def noticed(mistake: Mistake) -> str | None:
    """How the tests catch a mistake; None if they do not."""
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder) / "src"
        shutil.copytree(ROOT / "src", sources)
        file = sources / "ppolm" / mistake.file
        text = file.read_text()
        assert text.count(mistake.old) == 1, f"{mistake.file} has changed: seed the mistake where it is now"
        file.write_text(text.replace(mistake.old, mistake.new))
        path = os.pathsep.join([str(sources), str(ROOT)])
        line = [sys.executable, "-m", "tests.device_program", str(Path(folder) / "runs"), mistake.device]
        done = subprocess.run(
            line, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False
        )
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:110]
    return failed_test(json.loads(done.stdout), mistake.device)


def failed_test(found: dict[str, Any], device: str) -> str | None:
    """The first test that fails on the results."""
    same = test_devices.test_what_is_trained_and_said_on_a_device_is_what_the_cpu_gives
    fast = test_devices.test_the_fast_paths_are_used_on_every_device
    resumed = test_devices.test_a_resumed_training_is_the_uninterrupted_one_to_the_last_bit_on_its_device
    moved = test_devices.test_a_training_that_was_interrupted_on_one_device_goes_on_on_another
    waits = test_devices.test_the_host_waits_for_the_device_no_more_often_than_it_must
    tests: list[partial[None]] = [
        partial(fast, found, device),
        *(partial(same, found, device, scenario) for scenario in test_devices.SCENARIOS),
        partial(resumed, found, device),
        *(partial(moved, found, device, way) for way in ("from_cpu", "to_cpu")),
        *(partial(waits, found, device, what) for what in test_devices.BUDGET),
    ]
    for test in tests:
        try:
            test()
        except AssertionError:
            return str(test.func.__name__)
    return None


def main() -> None:
    """Seed the mistakes, and print a line for each."""
    chosen = [int(number) for number in sys.argv[1:]] or range(1, len(MISTAKES) + 1)
    failure, missed = noticed(CONTROL), 0
    if failure is not None:
        raise SystemExit(f"The tests fail without a mistake ({failure}). Make them pass first.")
    for number in chosen:
        how = noticed(MISTAKES[number - 1])
        missed += how is None
        verdict = "NOT CAUGHT" if how is None else f"caught: {how}"
        print(f"{number:2} {MISTAKES[number - 1].what}: {verdict}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    raise SystemExit(missed)


if __name__ == "__main__":
    main()
