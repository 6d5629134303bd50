"""LoRA adapters on the shared base: creating, loading, copying, switching and listing them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from peft import (
    LoraConfig,
    PeftModel,
    get_peft_model,
    get_peft_model_state_dict,
    load_peft_weights,
    set_peft_model_state_dict,
)
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from ppolm.base_setup.adapter_forms import (
    adding_lora,
    has_transposed_weights,
    own_tensors,
    read_adapter_config,
    shape_of,
)
from ppolm.base_setup.base_setup import BaseModelSetup
from ppolm.base_setup.capabilities import trying
from ppolm.base_setup.load_model import find_blocks
from ppolm.base_setup.trunk import Trunk, make_trunk
from ppolm.config.paths import absolute
from ppolm.errors import ModelError
from ppolm.kernels.lora_linear import fuse_adapters
from ppolm.kernels.whole_weights import shard_of
from ppolm.messages import reason

log = logging.getLogger(__name__)


class AdapterSet:
    """The adapters of one base by name. ``active`` switches them and sets exactly what requires gradients."""

    def __init__(self, setup: BaseModelSetup) -> None:
        self.setup = setup
        self.heads: dict[str, nn.Module] = {}
        """Scalar heads by the adapter they belong to; they train with it."""
        self.trunk: Trunk | None = None
        """The blocks below every trainable adapter, if there are any."""
        self.packs_prompts = setup.capabilities.has("packed_prompts")
        """Whether sequences may share a row, so that a prompt is computed once for all its answers."""
        self._inner: dict[str, str] = {}
        """What PEFT calls each adapter."""
        self._model: PeftModel | None = None
        self._layers: list[BaseTunerLayer] = []
        """The layers that have adapters."""
        self._active: tuple[str | None, bool] | None = (None, False)
        """The adapter that the base runs through, and whether it is trainable; None while that is being changed."""

    @property
    def model(self) -> PeftModel:
        """The PEFT model around the base."""
        if self._model is None:
            raise ModelError("No adapter has been added to the base yet.")
        return self._model

    @property
    def names(self) -> list[str]:
        """Names of the adapters added so far."""
        return list(self._inner)

    def _name(self, name: str) -> str:
        """A name for PEFT, which finds an adapter's weights by it: no module of the base may have the same name."""
        parts = {part for path, _ in self.setup.causal_lm.named_modules() for part in path.split(".")}
        self._inner[name] = f"{name}_adapter" if name in parts else name
        return self._inner[name]

    def create(self, name: str, lora: LoraConfig) -> None:
        """A new adapter that changes nothing yet (LoRA B is zero)."""
        lora.fan_in_fan_out = has_transposed_weights(self.setup.causal_lm)
        before, inner = self._fingerprint(), self._name(name)
        with adding_lora(self.setup.name):
            if self._model is None:
                self._model = get_peft_model(self.setup.causal_lm, lora, adapter_name=inner)
            else:
                self._model.add_adapter(inner, lora)
        self._added(name, before)

    def load(self, name: str, folder: str | Path) -> None:
        """An adapter from a PEFT folder."""
        trained_on = read_adapter_config(folder).base_model_name_or_path
        # On another base the shapes may still fit, but the weights mean nothing.
        if trained_on and absolute(trained_on) != self.setup.name:
            log.warning("Adapter %s was trained on %s and is used on %s.", folder, trained_on, self.setup.name)
        before, inner = self._fingerprint(), self._name(name)
        try:
            if self._model is None:
                self._model = PeftModel.from_pretrained(self.setup.causal_lm, str(folder), adapter_name=inner)
            else:
                self._model.load_adapter(str(folder), adapter_name=inner)
        except Exception as error:  # PEFT does not check its files, so bad ones may raise anything
            raise ModelError(f"Adapter {folder} does not load on model {self.setup.name}: {reason(error)}") from error
        self._added(name, before)
        self.load_weights(name, folder)  # PEFT accepts missing layers; this does not

    def _fingerprint(self) -> dict[int, Tensor]:
        """The first few numbers of what is here of every base weight, by the weight's identity."""
        weights = [weight for weight in self.setup.causal_lm.parameters() if not weight.requires_grad]
        return {id(weight): shard_of(weight.detach()).flatten()[:8].clone() for weight in weights}

    def _added(self, name: str, before: dict[int, Tensor]) -> None:
        after = self._fingerprint()
        if not all(torch.equal(numbers, after[key]) for key, numbers in before.items() if key in after):
            raise ModelError(
                f"Adding adapter {name!r} changed weights of {self.setup.name} itself, which all roles share."
            )
        self._check_round_trip(name)
        self.model.eval()  # PPO uses no dropout, LoRA's included
        if self.setup.capabilities.has("fused_adapters"):
            refusal = trying(self.setup, "fused_adapters", lambda: fuse_adapters(self.model, self._inner[name]))
            if refusal is not None:
                self.setup.capabilities = self.setup.capabilities.with_path("fused_adapters", refusal)
                log.warning("%s adds its adapters as PEFT does: %s.", self.setup.name, refusal)
        self._layers = [module for module in self.model.modules() if isinstance(module, BaseTunerLayer)]
        self._active = None  # PEFT has switched to the new one
        self.activate(None)

    def _check_round_trip(self, name: str) -> None:
        """Refuse an adapter that PEFT saves in a form it cannot load again: the run could not be resumed."""
        inner = self._inner[name]
        # Without embeddings: otherwise PEFT asks the Hub whether the base has new ones.
        saved = get_peft_model_state_dict(self.model, adapter_name=inner, save_embedding_layers=False)
        report = set_peft_model_state_dict(self.model, saved, inner)
        lost = sorted(set(report.missing_keys) & self.parameters(name).keys())
        if lost:
            raise ModelError(
                f"PEFT cannot load what it saves of an adapter on {self.setup.name} ({lost[0]}). "
                "Name the modules to adapt in lora_target_modules, without that one."
            )

    def lora_config(self, name: str) -> LoraConfig:
        """A config for another adapter of the same shape."""
        return shape_of(self.model.peft_config[self._inner[name]])

    def activate(self, name: str | None, trainable: bool = False) -> None:
        """Run the base through adapter ``name`` (None: the bare base) from now on; frozen unless ``trainable``."""
        if self._active == (name, trainable) or (name is None and self._model is None):
            return
        self._active = None  # if this is interrupted, it must not count as done
        self._switch([] if name is None else [self._inner[name]], trainable)
        for owner, head in self.heads.items():
            head.requires_grad_(trainable and owner == name)
        self._active = (name, trainable)

    @contextmanager
    def active(self, name: str | None, trainable: bool | None = None) -> Iterator[None]:
        """Run the base through adapter ``name`` inside a ``with``; afterwards, also after an error, as before.

        ``trainable`` says whether its parameters require gradients; if so, the backward pass belongs inside, too.
        None: trainable only if the adapter is already active and trainable.
        """
        before = self._active or (None, False)
        if trainable is None:
            trainable = before == (name, True)
        try:
            self.activate(name, trainable)
            yield
        finally:
            self.activate(*before)

    def _switch(self, inner: list[str], trainable: bool) -> None:
        """Tell every layer which adapter to use, if any. PEFT's own switch walks the whole model several times."""
        for layer in self._layers:
            # PEFT makes the active adapter trainable unless told otherwise: a reference would accumulate gradients.
            layer.set_adapter(inner, inference_mode=not trainable)

    def parameters(self, name: str) -> dict[str, Tensor]:
        """Parameters of adapter ``name`` by their full names, whatever kinds of layers PEFT keeps them in."""
        found = {}
        for path, module in self.model.named_modules():
            for inner, held in own_tensors(module, self._inner[name]):
                if isinstance(held, nn.Parameter):
                    found[f"{path}.{inner}"] = held
                else:
                    found |= {f"{path}.{inner}.{key}": value for key, value in held.named_parameters()}
        # A wrapper and the layer inside it may both list the same tensor.
        first = {id(value): key for key, value in reversed(found.items())}
        return {key: value for key, value in found.items() if first[id(value)] == key}

    def packs(self, longest: int) -> bool:
        """Whether sequences of up to ``longest`` tokens may share a row."""
        return self.packs_prompts and self.setup.capabilities.masks("packed_prompts", longest)

    def share_trunk(self, trained: Sequence[str], mib: int) -> None:
        """Compute the blocks below all trained adapters once for all roles and epochs, if there are such blocks."""
        depth, allowed = min(map(self.first_block, trained)), self.setup.capabilities.has("shared_trunk")
        self.trunk = make_trunk(self.setup, depth, mib * 2**20) if depth and allowed else None

    def forget_states(self) -> None:
        """Clear the trunk's cache, which serves a single PPO step or a single supervised training."""
        if self.trunk is not None:
            self.trunk.forget()

    def first_block(self, name: str | None) -> int:
        """Index of the lowest block that adapter ``name`` changes; the number of blocks if it changes none."""
        _, blocks = find_blocks(self.setup.causal_lm)
        own = set() if name is None else {id(value) for value in self.parameters(name).values()}
        inside = [own & {id(value) for value in block.parameters()} for block in blocks]
        if own - set().union(*inside):
            return 0  # such as the embeddings, which come before every block
        return next((number for number, found in enumerate(inside) if found), len(blocks))

    def copy(self, source: str, target: str) -> None:
        """Overwrite adapter ``target`` with the weights of ``source`` (same shape)."""
        pairs = zip(self.parameters(source).items(), self.parameters(target).items(), strict=True)
        with torch.no_grad():
            for (_, numbers), (_, parameter) in pairs:  # both in the order of the layers
                parameter.copy_(numbers)

    def clear(self, name: str) -> None:
        """Make adapter ``name`` change nothing: LoRA's B is zero, as in a new adapter."""
        with torch.no_grad():
            for path, parameter in self.parameters(name).items():
                if "lora_B" in path or "lora_embedding_B" in path:
                    parameter.zero_()

    def load_weights(self, name: str, folder: str | Path) -> None:
        """Overwrite adapter ``name`` with the weights of a saved one of the same shape."""
        read_adapter_config(folder)
        try:
            weights = load_peft_weights(str(folder), device=str(self.setup.device))
            report = set_peft_model_state_dict(self.model, weights, adapter_name=self._inner[name])
        except Exception as error:  # as above
            raise ModelError(f"Adapter {folder} cannot be read into {name!r}: {reason(error)}") from error
        own = self.parameters(name)
        broken = [key for key, value in weights.items() if not torch.isfinite(value).all()]
        if broken:
            raise ModelError(
                f"Adapter {folder} holds numbers that are not finite ({broken[0]}). Download or copy it again."
            )
        missing = [key for key in report.missing_keys if key in own]
        if missing or report.unexpected_keys:
            key = (missing or report.unexpected_keys)[0]
            raise ModelError(f"Adapter {folder} does not have the layers of adapter {name!r} ({key}).")

    def save(self, name: str, folder: str | Path) -> None:
        """Write adapter ``name`` as a plain PEFT folder, loadable with ``PeftModel.from_pretrained``."""
        folder = Path(folder)
        # PEFT's model card is empty, and takes longer to write than a small adapter.
        self.model.create_or_update_model_card = lambda _: None
        self.model.save_pretrained(str(folder), selected_adapters=[self._inner[name]], save_embedding_layers=False)
        nested = folder / self._inner[name]  # PEFT puts a named adapter into a folder of that name
        if nested.is_dir():
            for file in nested.iterdir():
                file.replace(folder / file.name)
            nested.rmdir()
