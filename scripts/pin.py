"""Re-pin every dependency, transitive ones too, inside pyproject.toml.

uv.lock is not committed because it records download addresses; the versions are kept in ``[tool.uv]
constraint-dependencies`` instead. Run ``make pin`` after changing a dependency, look at the diff, commit it.
"""

import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^constraint-dependencies = \[\n.*?^\]\n", re.DOTALL | re.MULTILINE)


def resolve(pyproject: str) -> list[str]:
    """Newest versions that satisfy ``pyproject`` without its constraints, as ``name==version ; markers`` lines."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pyproject.toml").write_text(BLOCK.sub("", pyproject))
        command = ["uv", "export", "--all-groups", "--no-hashes", "--no-emit-project", "--no-annotate", "--no-header"]
        answer = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return [line for line in answer.stdout.splitlines() if "==" in line]


def main() -> None:
    path = ROOT / "pyproject.toml"
    text = path.read_text()
    if not BLOCK.search(text):
        raise SystemExit("pyproject.toml has no constraint-dependencies block to fill")
    pins = "".join(f'    "{line}",\n' for line in resolve(text))
    path.write_text(BLOCK.sub(lambda _: f"constraint-dependencies = [\n{pins}]\n", text))
    print(f"pinned {pins.count(chr(10))} versions")


if __name__ == "__main__":
    main()
