"""How good the reference summaries of the embedded world are, and so how much room for improvement there is.

python -m scripts.world_room
"""

from __future__ import annotations

import statistics

from ppolm.data.load_rows import load_demonstrations
from ppolm.embedded.world.gold import gold


def main() -> None:
    """Print mean gold and the share of perfect references of each split."""
    for split in ("train", "validation", "test"):
        rows = load_demonstrations("embedded", split)
        scores = [gold(str(row.prompt.content), row.completion) for row in rows]
        perfect = statistics.fmean(score == 1 for score in scores)
        print(
            f"{split}: {len(rows)} posts, gold of the references {statistics.fmean(scores):.3f}, perfect {perfect:.3f}"
        )


if __name__ == "__main__":
    main()
