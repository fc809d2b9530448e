"""MLC LLM's names for the models of the zoo: ``gpt2_model.GPT2LMHeadModel(gpt2_model.GPT2Config.from_dict(…))``.

``ExternMapping`` is a weight map, which a loader returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlc_compiler.ir.module import IRModule
from mlc_compiler.nn import Parameter, spec
from model_zoo import registry
from model_zoo.architecture import Architecture
from model_zoo.weight_map import WeightMap

CONFIG, MODEL = "Config", ("ForCausalLM", "ForCasualLM", "LMHeadModel")


class ExternMapping(WeightMap):
    """A weight map from functions of numpy arrays: parameter -> checkpoint tensors and function."""

    def add_mapping(self, map_from: str, map_to: Sequence[str], func: Callable[..., np.ndarray]) -> None:
        """Compute parameter ``map_from`` as ``func`` of the checkpoint tensors ``map_to``, in their stored dtypes."""
        self.computed(map_from, map_to, func)

    def add_unused(self, name: str) -> None:
        """Declare a checkpoint tensor that the model does not need."""
        self.unused(name)


class Model:
    """A model that exports its architecture's functions. Weights and KV caches are float32."""

    def __init__(self, architecture: Architecture, config: Any):
        self.architecture, self.config, self.module = architecture, config, architecture.model(config)

    def get_default_spec(self) -> spec.ModuleSpec:
        """The specification of the architecture's functions."""
        architecture = self.architecture
        states = architecture.states(self.config, "float32")
        return spec.ModuleSpec(dict(architecture.entry_points(self.module, self.config, states, "float32")))

    def export_tvm(self, spec: spec.ModuleSpec, debug: bool = False) -> tuple[IRModule, list[tuple[str, Parameter]]]:
        """The traced functions and the named parameters; see ``nn.Module.export``."""
        mod, parameters = self.module.export(spec, debug)
        return mod, list(parameters.items())


class _Config:
    """The configuration class of an architecture."""

    def __init__(self, architecture: Architecture):
        self._class = architecture.config

    def __call__(self, **keys: Any) -> Any:
        """A configuration from keys of Hugging Face's config.json."""
        return self.from_dict(keys)

    def from_dict(self, raw: Mapping[str, Any]) -> Any:
        """A configuration from the contents of Hugging Face's config.json."""
        return self._class.from_hf(raw)


class ModelModule:
    """A module of MLC LLM, such as ``mlc_llm.model.gpt2.gpt2_model``: an architecture's configuration and model."""

    def __init__(self, name: str):
        self.name = name

    def __getattr__(self, name: str) -> Any:
        architecture = registry.get(self.name)
        if name.endswith(CONFIG):
            return _Config(architecture)
        if name.endswith(MODEL):
            return lambda config: Model(architecture, config)
        raise AttributeError(f"{self.name}_model has no {name}; it has a configuration and a model")


gpt2_model, llama_model, mistral_model = map(ModelModule, ("gpt2", "llama", "mistral"))
