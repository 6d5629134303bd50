"""Bad inputs of every kind, mutated from good ones: files and flags as a user passes them to ``ppolm``."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import yaml

from attack import mutate
from attack.samples import ROWS, Samples, copy, write_rows
from attack.sandbox import Case, Sandbox

Maker = Callable[[Random, Samples, Sandbox], Case]


def command(*argv: str, typed: str = "", **environment: str) -> Case:
    """A call of ``ppolm``; training runs end where the first step would begin."""
    from ppolm.cli.main import run
    from ppolm.ppo_trainer import PPOTrainer

    def action() -> int:
        import sys

        train, stdin = PPOTrainer.train, sys.stdin
        PPOTrainer.train = _no_training  # type: ignore[method-assign, assignment]
        sys.stdin = io.StringIO(typed)
        try:
            return run(list(argv))
        finally:
            PPOTrainer.train, sys.stdin = train, stdin  # type: ignore[method-assign]

    about = " ".join(shlex.quote(word[:300]) for word in ("ppolm", *argv))
    return Case(action, about, environment)


def _no_training(*_: Any, **__: Any) -> None:
    raise SystemExit(0)


def settings(rng: Random, samples: Samples, box: Sandbox) -> Case:
    """A YAML file: values of the wrong type or size, duplicate or unknown keys, text that is not YAML."""
    good = {key: value for key, value in samples.config.items() if rng.random() < 0.3}
    names = list(samples.config)
    if rng.random() < 0.6:
        for _ in range(rng.choice([1, 1, 2])):
            good[rng.choice(names)] = mutate.value(rng)
    try:
        content = yaml.safe_dump(good, allow_unicode=True)
    except (yaml.YAMLError, ValueError, RecursionError):
        content = "\n".join(
            f"{key}: {value}" for key, value in good.items() if not isinstance(value, (int, list, dict))
        )
    if rng.random() < 0.5:
        content = mutate.text(rng, content)
    path = box.given / "config.yaml"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    if rng.random() < 0.1:
        return command("train", "--config", str(path), "--prompts", str(samples.folder / "prompts.txt"))
    return command("overopt", "--config", str(path), "--output", str(box.out / "sweep"), "--steps", "0", "--kl-coefs")


def flags(rng: Random, samples: Samples, box: Sandbox) -> Case:  # noqa: ARG001
    """Command lines: values out of range or of the wrong type, unknown flags, words in the wrong place."""
    name = rng.choice(
        ["train", "sft", "reward", "eval", "generate", "readiness", "data", "feedback", "overopt", "demo"]
    )
    given = {
        "train": ["--model-name", str(samples.model), "--prompts", "missing.jsonl", "--batch-size", "2"],
        "sft": ["--model-name", str(samples.model), "--data", "missing.jsonl", "--output", "sft-out"],
        "reward": ["--model-name", str(samples.model), "--data", "missing.jsonl", "--output", "reward-out"],
        "eval": ["missing-run", "--policy", "best", "--samples", "1"],
        "generate": ["--model", "missing/model/folder", "--prompt", "hello", "--top-k", "5"],
        "readiness": ["missing-reward", "--data", "missing.jsonl", "--mistakes", "3"],
        "data": ["check", "missing.jsonl", "--split", "train"],
        "feedback": [rng.choice(["stats", "export", "import", "label"]), "x.jsonl", "--store", "missing.db"],
        "overopt": ["--kl-coefs", "0.1", "--steps", "0", "--config", "missing.yaml"],
        "demo": ["--posts", "0", "--samples", "1"],
    }[name]
    if name in ("train", "sft", "reward") and rng.random() < 0.7:
        field = rng.choice(sorted(samples.config))
        given += [f"--{field.replace('_', '-')}", str(mutate.value(rng))[:5000] if rng.random() < 0.9 else ""]
    for _ in range(rng.choice([1, 1, 2, 3])):
        place, action = rng.randrange(len(given) + 1), rng.random()
        if action < 0.25 and len(given) > place:
            del given[place]
        elif action < 0.6 and len(given) > place:
            given[place] = mutate.text(rng, given[place]) if rng.random() < 0.5 else rng.choice(mutate.NASTY_TEXT)
        else:
            given.insert(place, rng.choice(mutate.NASTY_TEXT))
    kept = [word.replace("\0", "?") for word in given]  # no operating system passes NUL in arguments
    return command(name if rng.random() < 0.98 else mutate.text(rng, name), *kept)


ENDINGS = ("jsonl", "json", "csv", "parquet", "txt", "jsonl.gz", "csv.gz", "txt.gz")


def data(rng: Random, samples: Samples, box: Sandbox) -> Case:
    """Data files of each format: rows with corrupted values, keys or bytes."""
    ending = rng.choice(ENDINGS)
    rows = [rng.choice(ROWS) for _ in range(rng.choice([1, 3, 30]))]
    bad: list[Any] = [mutate.tree(rng, row) if rng.random() < 0.5 else row for row in rows]
    path = box.given / f"rows.{ending}"
    plain = box.given / f"rows.{ending.removesuffix('.gz')}"
    try:
        write_rows(plain, bad)
    except Exception:  # the format cannot hold these values: use the good rows, and corrupt their bytes
        write_rows(plain, list(rows))
    content = plain.read_bytes()
    plain.unlink()
    if ending.endswith(".gz"):
        content = gzip.compress(mutate.data(rng, content) if rng.random() < 0.5 else content)
    path.write_bytes(mutate.data(rng, content) if rng.random() < 0.6 else content)
    skip = ["--skip-bad-rows"] if rng.random() < 0.5 else []
    kind = rng.random()
    if kind < 0.6:
        return command("data", "check", str(path), *skip, *(["--json"] if rng.random() < 0.3 else []))
    if kind < 0.9:
        return command("feedback", "import", str(path), "--store", str(box.out / "feedback.db"), *skip)
    if kind < 0.95:
        return command("reward", "--model-name", "no/such/model", "--data", str(path), "--output", "reward-out", *skip)
    return command("generate", "--model", str(samples.model), "--prompts", str(path), "--max-new-tokens", "1", *skip)


def spoil(rng: Random, folder: Path) -> str:
    """Corrupt one file of a folder, JSON by its values or any file by its bytes; returns its name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".png")
    path = rng.choice([file for file in files if file.suffix in (".json", ".yaml")] if rng.random() < 0.6 else files)
    action = rng.random()
    if path.suffix == ".json" and action < 0.75:
        try:
            bad = json.dumps(mutate.tree(rng, json.loads(path.read_text())))
        except (ValueError, RecursionError, OverflowError):
            bad = "{"
        path.write_text(bad[:500_000])
    elif action < 0.85:
        path.write_bytes(mutate.data(rng, path.read_bytes()))
    elif action < 0.92 and path.suffix == ".safetensors":
        _spoil_tensors(rng, path)
    elif action < 0.96:
        path.unlink()
    else:
        path.unlink()
        path.mkdir()
    return path.name


def _spoil_tensors(rng: Random, path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    name = rng.choice(sorted(tensors))
    odd = rng.choice(["nan", "inf", "shape", "kind", "name", "gone"])
    if odd in ("nan", "inf") and tensors[name].is_floating_point():
        tensors[name] = torch.full_like(tensors[name], float(odd))
    elif odd == "shape":
        tensors[name] = torch.zeros(rng.choice([(0,), (1,), (3, 5), (2, 2, 2)]))
    elif odd == "kind":
        tensors[name] = tensors[name].to(rng.choice([torch.int64, torch.float16, torch.bool]))
    else:
        moved = tensors.pop(name)
        if odd == "name":
            tensors["odd"] = moved
    save_file(tensors, path)


def adapters(rng: Random, samples: Samples, box: Sandbox) -> Case:
    """Adapter folders: odd fields; damaged, missing or mismatched weights; pickles."""
    source = samples.reward_model if rng.random() < 0.5 else samples.run / "best"
    folder = copy(source, box.given / "adapter")
    spoil(rng, folder)
    if rng.random() < 0.05 and (folder / "adapter_model.safetensors").is_file():
        (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    if source == samples.reward_model and rng.random() < 0.6:
        (box.given / "rows.jsonl").write_text("\n".join(json.dumps(ROWS[0] | {"prompt": f"{i}?"}) for i in range(4)))
        return command("readiness", str(folder), "--data", str(box.given / "rows.jsonl"), "--device", "cpu")
    return command(*_generate(samples.model), "--adapter", str(folder))


def _generate(model: Path | str) -> tuple[str, ...]:
    return ("generate", "--model", str(model), "--prompt", "hello", "--max-new-tokens", "1", "--device", "cpu")


def models(rng: Random, samples: Samples, box: Sandbox) -> Case:
    """Model folders: odd configurations, damaged tokenizers and weights."""
    folder = copy(samples.model, box.given / "model")
    spoil(rng, folder)
    if rng.random() < 0.4:
        return command("data", "check", str(samples.folder / "prompts.txt"), "--model-name", str(folder))
    return command(*_generate(folder))


def stores(rng: Random, samples: Samples, box: Sandbox) -> Case:
    """Feedback stores: damaged files, and tables changed by another program."""
    path = copy(samples.store, box.out / "feedback.db")
    if rng.random() < 0.5:
        path.write_bytes(mutate.data(rng, path.read_bytes()))
    else:
        _spoil_table(rng, path)
    kind = rng.choice(["stats", "stats-json", "export", "label", "import"])
    place = ("--store", str(path))
    if kind == "export":
        ending = rng.choice(["jsonl", "csv", "parquet"])
        rule = rng.choice(["all", "latest", "majority", "mean"])
        return command("feedback", "export", f"export.{ending}", "--rule", rule, *place)
    if kind == "label":
        ask = rng.choice(["score", "thumb", "preference"])
        typed = "\n".join(rng.choice(["1", "y", "u", "s", *mutate.NASTY_TEXT]) for _ in range(4)) + "\nq\n"
        return command("feedback", "label", "--annotator", "ann", "--ask", ask, *place, typed=typed)
    if kind == "import":
        return command("feedback", "import", str(samples.folder / "rows.jsonl"), *place)
    return command("feedback", "stats", *place, *(["--json"] if kind == "stats-json" else []))


def _spoil_table(rng: Random, path: Path) -> None:
    connection = sqlite3.connect(path)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = rng.choice([name for name in tables if not name.startswith("sqlite")])
    column = rng.choice([row[1] for row in connection.execute(f"PRAGMA table_info({table})")])
    bad = rng.choice([None, 7, -1.5, 1e300, b"\xff\0", "[" * 5000, *mutate.NASTY_TEXT[:40], "[{}]", '{"a": 1}', '"x"'])
    try:
        if rng.random() < 0.15:
            connection.execute(f"DROP TABLE {table}")
        elif rng.random() < 0.1:
            connection.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
        else:
            connection.execute(f"UPDATE {table} SET {column} = ?", (bad,))
        connection.commit()
    except (sqlite3.Error, UnicodeEncodeError):
        pass
    finally:
        connection.close()


def runs(rng: Random, samples: Samples, box: Sandbox) -> Case:
    """Run folders: settings, states, checkpoints and policies that were damaged or written by another program."""
    from ppolm.storage.atomic import MANIFEST, describe

    run = copy(samples.run, box.out / "run")
    part = rng.choice([run, run / "best", max((run / "checkpoints").iterdir())])
    spoil(rng, part)
    if part != run and rng.random() < 0.7 and (part / MANIFEST).is_file():  # so that checksums fit
        files = {
            str(file.relative_to(part)): describe(file)
            for file in sorted(part.rglob("*"))
            if file.is_file() and file.name != MANIFEST
        }
        (part / MANIFEST).write_text(json.dumps(files))
    reward = ("--reward", f"{samples.folder}/rewards.py:score")
    kind = rng.random()
    if kind < 0.4:
        return command("eval", str(run), "--samples", "0", *(reward if rng.random() < 0.9 else ()))
    if kind < 0.6:
        words = ("--prompt", "hello", "--max-new-tokens", "1")
        return command("generate", "--run", str(run), *words)
    return resume(run, *reward)


def resume(run: Path, *given: str) -> Case:
    """``ppolm train --resume``, up to the first step."""
    from ppolm.cli.main import run as ppolm
    from ppolm.runs.training_run import TrainingRun

    def action() -> int:
        train = TrainingRun.run
        TrainingRun.run = _no_training  # type: ignore[method-assign, assignment]
        try:
            return ppolm(["train", "--resume", str(run), *given])
        finally:
            TrainingRun.run = train  # type: ignore[method-assign]

    return Case(action, f"ppolm train --resume {run}")


NAMES = ("HOME", "HF_HOME", "TMPDIR", "XDG_STATE_HOME", "OMP_NUM_THREADS", "http_proxy", "no_proxy", "MY_KEY", "LANG")


def environment(rng: Random, samples: Samples, box: Sandbox) -> Case:
    """Environment variables with arbitrary values."""
    nasty = [text for text in mutate.NASTY_TEXT if "\0" not in text and "\ud800" not in text]
    changed = {
        name: rng.choice(nasty) for name in rng.sample([*NAMES, "PPOLM_REWARD_AUTHORIZATION"], rng.choice([1, 2]))
    }
    if rng.random() < 0.5:
        case = command("data", "check", str(samples.folder / "prompts.txt"))
    else:
        path = box.given / "config.yaml"
        url = f"http://127.0.0.1:9/{rng.choice(nasty)[:50]}?key=$MY_KEY"
        path.write_text(yaml.safe_dump({"reward": [url], "prompts": "missing.txt", "judge": rng.choice([url, "gold"])}))
        case = command("overopt", "--config", str(path), "--output", str(box.out / "sweep"), "--steps", "0")
    return dataclasses.replace(case, environment=changed)
