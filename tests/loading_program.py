"""How much of a model is in host memory at once while it is loaded to an emulated device: a program.

    python -m tests.loading_program cuda:0

prints, as JSON, the bytes of all weights, of the largest, and of those that were on the host at the same time: as ppolm
loads a model, and for comparison as a model that is loaded first and then moved.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, PreTrainedModel

from ppolm.base_setup.load_model import load_causal_lm
from ppolm.embedded import model_path
from ppolm.names import EMBEDDED
from tests.emulated_device import MOVES, EmulatedTensor, emulated

SMALL = 1000
"""Numbers in a tensor that is not worth looking at: looking takes a while."""


class HostTensors(TorchDispatchMode):
    """Looks for host tensors whenever something is copied to the device."""

    most = 0
    """The most bytes that were found."""

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Every operation below autograd is dispatched here."""
        if operation in MOVES and any(isinstance(one, Tensor) and one.numel() > SMALL for one in args):
            self.most = max(self.most, host_bytes())
        return operation(*args, **(kwargs or {}))


def host_bytes() -> int:
    """Bytes of all tensors on the host, without those that hold the numbers of emulated tensors."""
    found = [one for one in gc.get_objects() if isinstance(one, Tensor)]
    theirs = {one.held.untyped_storage().data_ptr() for one in found if isinstance(one, EmulatedTensor)}
    host = [one.untyped_storage() for one in found if not isinstance(one, EmulatedTensor) and not one.is_meta]
    sizes = {storage.data_ptr(): storage.nbytes() for storage in host}
    return sum(size for place, size in sizes.items() if place not in theirs)


def on_host(load: Callable[[], PreTrainedModel]) -> tuple[int, PreTrainedModel]:
    """The most bytes of weights that were on the host at once while a model was loaded."""
    before = host_bytes()
    with HostTensors() as found:
        model = load()
    return found.most - before, model


def main(name: str) -> None:
    """Load the embedded model in both ways, and print the sizes."""
    transformers.utils.logging.disable_progress_bar()
    device, source = torch.device(name), model_path(EMBEDDED)
    gc.freeze()  # what is here already is neither of these models: no need to look at it each time
    with emulated(name):
        ours, model = on_host(lambda: load_causal_lm(source, torch.float32, False, device))
        moved, _ = on_host(lambda: AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).to(device))
        sizes = [weight.nbytes for weight in model.parameters()]
        everywhere = {str(one.device) for one in (*model.parameters(), *model.buffers())}
        tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    found = {"all": sum(sizes), "largest": max(sizes), "ours": ours, "moved": moved}
    print(json.dumps(found | {"devices": sorted(everywhere), "tied": tied}))


if __name__ == "__main__":
    main(sys.argv[1])
