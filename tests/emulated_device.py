"""An emulated device: tensors that report cuda or mps as their device, hold CPU data, and cannot be mixed.

    with emulated("cuda:0"):
        PPOTrainer(PPOConfig(device="cuda:0", ...)).train(prompts)

It raises where a real device would: an operation on tensors of two devices, float64 on mps. It counts where the host
would have to wait for a real device. It says nothing about kernels, speed or rounding.

It uses private parts of torch and changes them permanently, so it needs a process of its own: never import it into the
one that runs pytest.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend
from transformers import modeling_utils

aten = torch.ops.aten
MOVES = (aten._to_copy.default, aten.copy_.default)
"""The only operations that accept tensors of two devices."""
INDEXING = (aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default)
"""Operations that also accept indices on the host, and copy them to the device."""
WAITS = ("_local_scalar_dense", "nonzero", "equal", "bincount", "masked_select", "_unique2", "repeat_interleave")
"""Operations whose result, or its size, the host must know before it can continue."""

MEMORY = 24 * 2**30
"""Bytes that the device claims to have."""
NO_KERNEL = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "_unsafe_view", "lift_fresh", "set_"))
"""Operations that neither are views nor write memory."""

waits: Counter[str] = Counter()
"""How often the host would have waited so far, by operation: see ``counted``."""
kernels: Counter[str] = Counter()
"""How many kernels the device would have run so far, by operation: see emulated_kernels.py."""


class _Backend(_DummyBackendModule):
    """What torch requires of a device's module."""

    def get_rng_state(self, device: Any = None) -> Tensor:  # noqa: ARG002 torch's signature
        """Random numbers of the device come from the CPU's generator, so that both give the same."""
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:  # noqa: ARG002 torch's signature
        """See ``get_rng_state``."""
        torch.set_rng_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """Gradient checkpointing asks whether mixed precision is on."""
        return [torch.bfloat16]

    def synchronize(self, device: Any = None) -> None:
        """Nothing to do: all operations are synchronous."""


# Autograd needs a device that it knows; PrivateUse1 is torch's slot for other backends.
_setup_privateuseone_for_python_backend("emulated", backend_module=_Backend())


class EmulatedTensor(Tensor):
    """CPU data that reports ``place`` as its device."""

    place = torch.device("cuda:0")
    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls: type[EmulatedTensor], held: Tensor, requires_grad: bool = False) -> EmulatedTensor:
        """Wrap a CPU tensor."""
        layout: dict[str, Any] = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        layout |= {"dtype": held.dtype, "device": torch.device("emulated:0"), "requires_grad": requires_grad}
        made: EmulatedTensor = Tensor._make_wrapper_subclass(cls, held.size(), **layout)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, operation: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Every operation on such a tensor below autograd is dispatched here."""
        return run(operation, args, kwargs or {})

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The emulated device."""
        return EmulatedTensor.place

    def tolist(self) -> Any:
        """torch reads whole tensors without dispatch, so waits are counted here."""
        waits["tolist"] += 1
        return self.held.tolist()

    def untyped_storage(self) -> Any:
        """safetensors compares it to find tensors that share memory."""
        return self.held.untyped_storage()

    def __deepcopy__(self, memo: Any) -> Any:
        """A copy, which is a parameter if the original is one."""
        new = EmulatedTensor(self.held.detach().clone(), self.requires_grad)
        return nn.Parameter(new, self.requires_grad) if isinstance(self, nn.Parameter) else new


class _Everywhere(TorchDispatchMode):
    """Also passes operations without emulated inputs to ``run``, such as torch.zeros(device="cuda")."""

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Every operation below autograd is dispatched here."""
        return run(operation, args, kwargs or {})


def run(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run on the CPU what was asked of the device, and refuse what the device would refuse."""
    kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}  # it only speeds up copies
    tensors = [*_tensors(args), *_tensors(list(kwargs.values()))]
    ours = [one for one in tensors if isinstance(one, EmulatedTensor)]
    target = kwargs.get("device")
    arrives = target is not None and torch.device(target).type in (EmulatedTensor.place.type, "emulated")
    leaves = target is not None and not arrives
    if not ours and not arrives:
        return operation(*args, **kwargs)
    indices = list(_tensors(args[1])) if operation in INDEXING and isinstance(args[0], EmulatedTensor) else []
    # A zero-dimensional host tensor counts as a number.
    host = [one for one in tensors if not isinstance(one, EmulatedTensor) and one.dim() and not _is_in(one, indices)]
    if ours and host and operation not in MOVES:
        raise RuntimeError(f"{operation}: tensors on {EmulatedTensor.place} and on cpu")
    stays = operation is aten._to_copy.default and arrives and bool(ours)
    if not (stays and kwargs.get("dtype", args[0].dtype) == args[0].dtype):  # to its own device: torch does nothing
        _count(operation, args, indices, leaves, arrives)
    given = {name: _held(value) for name, value in kwargs.items()}
    if target is not None:
        given["device"] = torch.device("cpu")
    out = operation(*_held(args), **given)
    if operation is aten.copy_.default and not isinstance(args[0], EmulatedTensor):
        return args[0]
    if leaves:
        return out
    if EmulatedTensor.place.type == "mps" and any(one.dtype == torch.float64 for one in _tensors(out)):
        raise TypeError(f"{operation}: Cannot make a float64 tensor on {EmulatedTensor.place}: mps has no float64")
    out = tree_map(lambda one: EmulatedTensor(one) if isinstance(one, Tensor) else one, out)
    return return_and_correct_aliasing(operation, tuple(args), kwargs, out) if ours else out


def _is_in(one: Tensor, others: Sequence[Any]) -> bool:
    return any(one is other for other in others)


def _held(given: Any) -> Any:
    """The CPU data of arguments; torch's own tree_map would dominate the time of a test."""
    if isinstance(given, (list, tuple)):
        return type(given)(map(_held, given))
    return given.held if isinstance(given, EmulatedTensor) else given


def _tensors(given: Any) -> Iterator[Tensor]:
    """The tensors among arguments or results."""
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, (list, tuple)):
        for one in given:
            yield from _tensors(one)


def _count(operation: Any, args: Sequence[Any], indices: Sequence[Any], leaves: bool, arrives: bool) -> None:
    """Count a kernel if the device would run one, and a wait if the host would have to wait."""
    name = operation.overloadpacket.__name__
    if not (operation.is_view or name in NO_KERNEL or name in WAITS[:1]):
        kernels[name] += 1
    if name in WAITS:
        waits[name] += 1
    if operation is aten._to_copy.default and (leaves or (arrives and not isinstance(args[0], EmulatedTensor))):
        waits["to_host" if leaves else "to_device"] += 1
    if operation is aten.copy_.default:
        to, source = (isinstance(one, EmulatedTensor) for one in args[:2])
        if to != source:
            waits["to_device" if to else "to_host"] += 1
    for index in indices:
        if isinstance(index, EmulatedTensor) and index.dtype == torch.bool:
            waits["nonzero"] += 1  # a mask is converted to indices by nonzero
        elif isinstance(index, Tensor) and not isinstance(index, EmulatedTensor):
            waits["to_device"] += 1


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """How often the host waits in the block; filled in when the block ends."""
    before, found = waits.copy(), Counter[str]()
    yield found
    found.update(waits - before)


@contextmanager
def emulated(name: str) -> Iterator[None]:
    """Emulate the device ``name`` (cuda:0 or mps:0) in the block."""
    EmulatedTensor.place = torch.device(name)
    module = {"cuda": torch.cuda, "mps": torch.backends.mps}[EmulatedTensor.place.type]
    states: dict[str, Callable[..., Any]] = {
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
    }
    torch.__future__.set_swap_module_params_on_conversion(True)  # model.to() keeps tied weights
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=) passes the mode
    try:
        with ExitStack() as stack:
            stack.enter_context(patch.object(module, "is_available", lambda: True))
            stack.enter_context(patch.object(torch.cuda, "_lazy_init", lambda: None))
            if module is torch.cuda:
                stack.enter_context(patch.object(torch.cuda, "device_count", lambda: 1))
                stack.enter_context(patch.object(torch.cuda, "current_device", lambda: 0))
                # Optimisers in torch before 2.13 ask the driver.
                stack.enter_context(patch.object(torch.cuda, "is_current_stream_capturing", lambda: False))
                properties = SimpleNamespace(total_memory=MEMORY)
                stack.enter_context(patch.object(torch.cuda, "get_device_properties", lambda *_: properties))
                states["get_rng_state_all"] = lambda: [torch.get_rng_state()]
                states["set_rng_state_all"] = lambda given: torch.set_rng_state(given[0])
            for function, stand_in in states.items():
                stack.enter_context(patch.object(torch.cuda if module is torch.cuda else torch.mps, function, stand_in))
            stack.enter_context(patch.object(torch.mps, "manual_seed", lambda _: None))
            stack.enter_context(patch.object(torch.mps, "recommended_max_memory", lambda: MEMORY))
            # transformers reads weights in threads, where no mode is active, and for mps with its driver.
            stack.enter_context(patch.dict(os.environ, HF_DEACTIVATE_ASYNC_LOAD="1"))
            stack.enter_context(patch.object(modeling_utils, "safe_open", lambda file, **_: safe_open(file, "pt")))
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            stack.enter_context(_Everywhere())
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(False)
        torch.__future__.set_swap_module_params_on_conversion(False)
