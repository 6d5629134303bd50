"""Write docs/columns.md: what every column of a token table means, from token_attribution/columns.py.

python -m scripts.columns_page
"""

from __future__ import annotations

from pathlib import Path

from ppolm.token_attribution.columns import MEANINGS, WHERE

PAGE = Path(__file__).resolve().parent.parent / "docs" / "columns.md"
INTRODUCTION = """# Columns of a token table

A run stores the table of a step as `table/step-000010.parquet`: a row per generated token. Every column below is a
number unless it says text; logarithms are natural. `results["sa_pairs"]` of a PPO step has the same columns, as does
what `ppolm tokens RUN` prints and the page [Tokens](tokens.md) shows. Questions to ask such a table:
[asking-tables.md](asking-tables.md).

The same sentences are in each file, as the description of its columns and as `columns` in the metadata under the key
`ppolm`, which also holds token ids of the prompts, which responses ended with EOS (`ended`), and the step's `kl_coef`
and `reward_coef` (`notes`):

```python
import json

import pyarrow.parquet as parquet

schema = parquet.read_schema("runs/my-run/table/step-000010.parquet")
print(schema.field("kl").metadata[b"description"].decode())
print(json.loads(schema.metadata[b"ppolm"])["notes"])
```

Made by `python -m scripts.columns_page`; a test fails if it is out of date.
"""


def page() -> str:
    """The whole page."""
    places = [name for name, meaning in MEANINGS.items() if meaning.added_by == WHERE]
    stages = [name for name in MEANINGS if name not in places]
    return "\n".join(
        [
            INTRODUCTION,
            "## Which token a row is\n",
            "| column | meaning |\n|---|---|",
            *(f"| `{name}` | {_cell(name)} |" for name in places),
            "",
            "## What the stages of a step add, in their order\n",
            "| column | meaning | added by |\n|---|---|---|",
            *(f"| `{name}` | {_cell(name)} | `{MEANINGS[name].added_by}` |" for name in stages),
            "",
        ]
    )


def _cell(name: str) -> str:
    return MEANINGS[name].text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
