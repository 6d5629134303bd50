r"""Turns what ``ppolm generate --json`` prints into demonstrations: each story up to its last whole sentence.

    ppolm generate --model-name path/to/model --prompts examples/stories/prompts.jsonl --json \
        | python examples/stories/whole_sentences.py > endings.jsonl
"""

from __future__ import annotations

import json
import re
import sys

for line in sys.stdin:
    row = json.loads(line)
    found = re.match(r".*[.!?](?=\s|$)", row["response"], re.DOTALL)
    if found and '"' not in found[0]:  # a quotation would often be cut in its middle
        print(json.dumps({"prompt": row["prompt"], "completion": found[0]}))
