"""Mutates good input: bytes, text, and values as in JSON and YAML, all from one random generator."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

NASTY_TEXT = (
    *(
        "",
        " ",
        "\0",
        "\x1b[2J\x1b[31m",
        "\u202e",
        "\x9b5n",
        "\ufeff",
        "a\nb",
        "'",
        '"',
        "`",
        "\\",
        "%s%n",
        "${HOME}",
        "$X",
        "~",
    ),
    *(
        "..",
        ".",
        "/",
        "../../x",
        "/dev/null",
        "/proc/self/mem",
        "nul",
        "-",
        "--",
        "--help",
        "x" * 300,
        "x" * 5000,
        "é" * 200,
    ),
    *(
        "nan",
        "inf",
        "-inf",
        "1e400",
        "0x10",
        "1_000",
        "9" * 30,
        "9" * 5000,
        "-1",
        "0",
        "true",
        "null",
        "None",
        "[]",
        "{}",
    ),
    *(
        "http://",
        "http://[",
        "http://127.0.0.1:99999/",
        "os:system",
        "a.py:",
        ":",
        "a:b:c",
        "x.py",
        "sqlite://",
        "embedded:",
    ),
    *("2024-13-45", "!!python/object:os.system", "*a", "&a", "<<", "? a", "[" * 200, "{" * 3000, "\ud800", "𝔘" * 50),
)
NASTY_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.5, 1e308, -1e308, 1e-320, float("nan"), float("inf"), -float("inf")),
    *(2**31, 2**63, -(2**63), 2**64, 10**30, 10**400, [], {}, [[]], {"a": []}, [None], [{}], [0] * 100, ["x", 1, None]),
)


def nested(rng: Random) -> Any:
    """Deeply nested lists and dicts."""
    value: Any = rng.choice([1, "x", None])
    for _ in range(rng.choice([3, 50, 900])):
        value = [value] if rng.random() < 0.7 else {"k": value}
    return value


def value(rng: Random) -> Any:
    """An unexpected value."""
    kind = rng.random()
    if kind < 0.45:
        return copy.deepcopy(rng.choice(NASTY_VALUES))
    if kind < 0.95:
        return rng.choice(NASTY_TEXT)
    return nested(rng)


def tree(rng: Random, good: Any, times: int | None = None) -> Any:
    """A JSON-like value with one or a few places changed, removed, inserted or copied to another key."""
    bad = copy.deepcopy(good)
    for _ in range(times or rng.choice([1, 1, 1, 2, 4])):
        bad = _change(rng, bad, 0)
    return bad


def _change(rng: Random, node: Any, depth: int) -> Any:
    if isinstance(node, dict) and node and (depth == 0 or rng.random() < 0.6):
        key = rng.choice(list(node))
        action = rng.random()
        if action < 0.15:
            del node[key]
        elif action < 0.3:
            node[rng.choice(NASTY_TEXT)] = node[key]
        else:
            node[key] = _change(rng, node[key], depth + 1)
        return node
    if isinstance(node, list) and node and rng.random() < 0.6:
        place = rng.randrange(len(node))
        action = rng.random()
        if action < 0.2:
            del node[place]
        elif action < 0.4:
            node.insert(place, value(rng))
        else:
            node[place] = _change(rng, node[place], depth + 1)
        return node
    if isinstance(node, str) and rng.random() < 0.4:
        return text(rng, node)
    return value(rng)


def text(rng: Random, good: str) -> str:
    """Text with pieces cut out, repeated, replaced or inserted."""
    bad = good
    for _ in range(rng.choice([1, 1, 2, 5])):
        start, end = sorted((rng.randint(0, len(bad)), min(len(bad), rng.randint(0, len(bad)))))
        end = min(end, start + rng.choice([1, 5, 50, 10_000]))
        piece = bad[start:end]
        bad = rng.choice(
            [
                bad[:start] + bad[end:],
                bad[:start] + piece * rng.choice([2, 3, 50]) + bad[end:],
                bad[:start] + rng.choice(NASTY_TEXT) + bad[end:],
                bad[:start] + rng.choice("\"'`,:;[]{}()#&*!|>%@\n\r\t\\- ") + bad[end:],
                bad[:start],
            ]
        )
    return bad[:200_000]


def data(rng: Random, good: bytes) -> bytes:
    """Bytes with some flipped, cut out, inserted or overwritten."""
    bad = bytearray(good)
    for _ in range(rng.choice([1, 1, 3, 20])):
        place = rng.randrange(len(bad) + 1)
        action = rng.randrange(5)
        if action == 0 and bad:
            bad[place % len(bad)] ^= 1 << rng.randrange(8)
        elif action == 1:
            del bad[place : place + rng.choice([1, 4, 100, len(bad)])]
        elif action == 2:
            bad[place:place] = rng.randbytes(rng.choice([1, 4, 64]))
        elif action == 3:
            bad[place : place + 8] = rng.choice([b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7])
        else:
            bad[place:place] = rng.choice(NASTY_TEXT).encode("utf-8", "surrogatepass")
    return bytes(bad)
