"""What the programs of tests import, loaded once, by the process of which warm programs are forks.

Nothing is computed here, and no thread is started: a fork has only the thread that made it.
"""

import gc
from importlib import import_module

MODULES = (
    *("torch.distributed.run", "transformers.models.qwen3.modeling_qwen3", "pandas", "matplotlib.figure"),
    *(f"ppolm.cli.{name}_command" for name in ("eval", "reward", "sft", "train")),
    "ppolm.ppo_trainer",
)

for name in MODULES:
    import_module(name)
gc.collect()
gc.freeze()  # programs neither look through all this for garbage again, nor copy its pages for that
