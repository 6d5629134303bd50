"""A base in shards (FSDP2): every process holds a part of each block, and all of a block only while it is computed.

The first process reads the model into its host's memory and sends it on block by block, so that no device ever holds
more than its shards, one whole block, and what is outside the blocks: embeddings, the last norm, the output matrix.
Those stay whole, because they are used outside the blocks, and tied embeddings would come apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from transformers import AutoModelForCausalLM, PreTrainedModel

from ppolm.base_setup.device import memory_size
from ppolm.base_setup.load_model import (
    blaming,
    find_blocks,
    find_transformer,
    load_causal_config,
    load_causal_lm,
)
from ppolm.errors import ModelError
from ppolm.kernels.fused_block import blocks_agree
from ppolm.kernels.whole_weights import shard_of
from ppolm.ranks import Ranks


@dataclass(frozen=True)
class Read:
    """What the first process says about the model that it has read."""

    shapes: dict[str, tuple[torch.Size, torch.dtype]]
    """Of every tensor, by name."""
    attention: str
    generation_config: Any


class ShardedBlocks:
    """The blocks of a base whose weights are dealt out over the processes."""

    def __init__(self, blocks: nn.ModuleList, fusable: bool) -> None:
        self.blocks = [block for block in blocks if isinstance(block, FSDPModule)]
        self.sizes = [sum(weight.nbytes for weight in block.parameters()) for block in blocks]
        """Bytes of each whole block."""
        self.fusable = fusable
        """Whether our fused block gives the numbers of the first block, compared while that was whole."""
        self.are_whole = False
        """Whether every process has all weights at the moment."""
        for below, block in zip([self.blocks[0], *self.blocks], self.blocks, strict=False):
            # Without being told, FSDP fetches what ran before in any pass, also one without gradients; the lowest
            # block would fetch the highest one for nothing.
            block.set_modules_to_backward_prefetch([below])

    @contextmanager
    def whole(self) -> Iterator[None]:
        """All weights on every process inside a ``with``: then the processes may run different numbers of passes.

        To be entered by all of them.
        """
        if self.are_whole:
            yield
            return
        try:
            for block in self.blocks:
                block.set_reshard_after_forward(False)
                block.unshard()
            self.are_whole = True
            yield
        finally:
            self.are_whole = False
            for block in self.blocks:
                block.set_reshard_after_forward(True)
                block.reshard()

    @property
    def largest(self) -> int:
        """Bytes of the largest whole block."""
        return max(self.sizes)

    def check_fits(self, device: torch.device) -> None:
        """Raise if a device has no room for all blocks, which sampling on it needs."""
        memory, needed = memory_size(device), sum(self.sizes)
        if memory is not None and needed > memory:
            raise ModelError(
                f"The blocks of the base take {needed / 2**30:.1f} GiB and {device} has {memory / 2**30:.1f}: they can "
                "be trained in shards, but sampling here needs all of them. Set engine: vllm with engine_url, so that "
                "servers sample (docs/engines-vllm.md)."
            )


def load_sharded(
    name: str, dtype: torch.dtype, trust_remote_code: bool, device: torch.device, ranks: Ranks
) -> tuple[PreTrainedModel, ShardedBlocks]:
    """A causal language model whose blocks are dealt out over the processes; to be called by all of them."""
    sources: list[PreTrainedModel] = []

    def read() -> Read:
        model = load_causal_lm(name, dtype, trust_remote_code, torch.device("cpu"))
        sources.append(model)
        shapes = {key: (value.shape, value.dtype) for key, (_, _, value) in named_tensors(model).items()}
        return Read(shapes, str(model.config._attn_implementation), model.generation_config)

    about = ranks.once(read)
    config = load_causal_config(name, trust_remote_code)
    with blaming(name), torch.device("meta"):
        options = {"attn_implementation": about.attention, "dtype": dtype, "trust_remote_code": trust_remote_code}
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, **options)
    model.generation_config = about.generation_config
    _check(name, model, about)
    filling = Filling(model, about, device, ranks, named_tensors(sources[0]) if sources else {})
    return model.eval().requires_grad_(False), filling.shard()


def named_tensors(model: nn.Module) -> dict[str, tuple[nn.Module, str, Tensor]]:
    """Every tensor of a model by its full name, with the module that holds it and its name there; tied ones often.

    Also those that are neither parameters nor buffers, such as a rotary embedding's first frequencies.
    """
    found = {}
    for path, module in model.named_modules():
        plain = {key: value for key, value in vars(module).items() if isinstance(value, Tensor)}
        for key, value in {**plain, **module._buffers, **module._parameters}.items():
            if value is not None:
                found[f"{path}.{key}"] = (module, key, value)
    return found


def _check(name: str, model: PreTrainedModel, about: Read) -> None:
    """Raise if a model as its configuration describes it has not the tensors of the model that was read."""
    given = {key: value.shape for key, (_, _, value) in named_tensors(model).items()}
    read = {key: shape for key, (shape, _) in about.shapes.items()}
    wrong = sorted(key for key in given.keys() | read.keys() if given.get(key) != read.get(key))
    if wrong:
        raise ModelError(
            f"Model {name} cannot be sharded: {wrong[0]} is there when it is read, and not when it is built from its "
            "configuration, or has another shape. Leave shard_base out."
        )
    blocks = find_blocks(model)[1]
    inside = {id(module) for block in blocks for module in block.modules()}
    owners = {id(value): -1 for module, _, value in named_tensors(model).values() if id(module) not in inside}
    for number, block in enumerate(blocks):
        if any(owners.setdefault(id(weight), number) != number for weight in block.parameters()):
            raise ModelError(f"Model {name} cannot be sharded: its blocks share weights. Leave shard_base out.")


class Filling:
    """Filling an empty model with the numbers that the first process has read, and sharding each block at once."""

    def __init__(
        self,
        model: PreTrainedModel,
        about: Read,
        device: torch.device,
        ranks: Ranks,
        source: dict[str, tuple[nn.Module, str, Tensor]],
    ) -> None:
        self.model, self.about, self.device, self.ranks, self.source = model, about, device, ranks, source
        self.tensors = named_tensors(model)

    def shard(self) -> ShardedBlocks:
        """Fill everything."""
        mesh = init_device_mesh(self.device.type, (self.ranks.size,))
        blocks = find_blocks(self.model)[1]
        inside = {id(module): number for number, block in enumerate(blocks) for module in block.modules()}
        self._fill([name for name, (module, _, _) in self.tensors.items() if id(module) not in inside])
        fusable = False
        for number, block in enumerate(blocks):
            self._fill([name for name, (module, _, _) in self.tensors.items() if inside.get(id(module)) == number])
            fusable = blocks_agree(block) if number == 0 else fusable
            scalars = {weight for weight in block.parameters() if weight.dim() == 0}  # FSDP takes none
            fully_shard(block, mesh=mesh, reshard_after_forward=True, ignored_params=scalars)
        # Without a parent every block would count as the outermost module, which stays whole after a pass.
        transformer = find_transformer(self.model)
        outside = {weight for weight in transformer.parameters() if shard_of(weight) is weight}
        fully_shard(transformer, mesh=mesh, ignored_params=outside)
        return ShardedBlocks(blocks, fusable)

    def _fill(self, names: Sequence[str]) -> None:
        """Fill the tensors of these names. Nothing else keeps them: once a block is sharded, its whole is gone."""
        made: dict[int, Tensor] = {}  # for each empty one, so that tied ones stay tied
        for name in names:
            module, key, empty = self.tensors[name]
            if id(empty) not in made:
                made[id(empty)] = self._received(name, isinstance(empty, nn.Parameter))
            setattr(module, key, made[id(empty)])

    def _received(self, name: str, is_parameter: bool) -> Tensor:
        shape, dtype = self.about.shapes[name]
        numbers = torch.empty(shape, dtype=dtype, device=self.device)
        if self.source:
            numbers.copy_(self.source[name][2])
            self.source[name][2].data = torch.empty(0, dtype=dtype)  # the host's memory is given back
        self.ranks.send(numbers)
        return nn.Parameter(numbers, requires_grad=False) if is_parameter else numbers
