"""GGUF files as llama.cpp's converter writes them, made from small random models of the table of architectures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

from mlc_toolchain.conversion_plan import describe_model
from mlc_toolchain.gguf_checkpoint import GGUFCheckpoint
from model_zoo import registry
from quantization.schemes import get_scheme
from tests.model_zoo import encoder_cases
from tests.model_zoo.architecture_cases import CASES

SCHEME = get_scheme("q0f32")
Tensors = dict[str, np.ndarray]
Change = Callable[[dict[str, Any], Tensors], Tensors]


@dataclass(frozen=True)
class Form:
    """How the converter writes one model.

    arch: ``general.architecture``. case, options: ``name`` or ``name/variant`` in the table of architectures, and
    further options of its config. metadata: keys under the architecture's prefix; a text value may name the config
    key that has the value. change: converts the tensors; names in the gguf package's table are mapped to the file's
    afterwards. lost: config fields that the file lacks or has with another value. exact: whether parameters are
    bit-identical.
    """

    arch: str
    case: str
    metadata: Mapping[str, Any]
    change: Change
    options: Mapping[str, Any] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    exact: bool = True

    @property
    def id(self) -> str:
        return f"{self.arch}-{self.case.replace('/', '-')}"

    def model(self, folder: Path) -> tuple[dict[str, Any], Tensors]:
        """Config and tensors in the checkpoint's form; transformers saves the model in ``folder``."""
        name, _, variant = self.case.partition("/")
        cases = (*CASES, *encoder_cases.CASES, *encoder_cases.ENCODER_DECODERS)
        case = next(c for c in cases if (c.name, c.variant) == (name, variant))
        model = replace(case, options={**case.options, **self.options}).model()
        if case.to_checkpoint:
            raw, state = case.to_checkpoint(model.config.to_dict(), model.state_dict())
            return raw, {n: t.numpy() for n, t in state.items()}
        model.save_pretrained(folder)
        return json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")

    def write(self, path: Path, raw: dict[str, Any], tensors: Tensors) -> Path:
        values = {
            key: raw.get(value, value) if isinstance(value, str) else value for key, value in self.metadata.items()
        }
        arch = next(a for a, text in gguf.MODEL_ARCH_NAMES.items() if text == self.arch)
        names = gguf.get_tensor_name_map(arch, max(values["block_count"], values.get("decoder_block_count", 0)))
        suffixes = (".weight", ".bias")
        stored = self.change(raw, dict(tensors))
        known = {names.get_name(name, suffixes) or name: tensor for name, tensor in stored.items()}
        return write(path, self.arch, values, known)


def write(path: Path, arch: str, values: Mapping[str, Any], tensors: Tensors) -> Path:
    """A file with this metadata, keys under the architecture's prefix, and these tensors under the file's names."""
    writer = gguf.GGUFWriter(path, arch)
    add: dict[type, Callable[[str, Any], None]] = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    for key, value in values.items():
        add[type(value)](f"{arch}.{key}", value)
    for name, tensor in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def changed(*rules: Callable[[dict[str, Any], str, np.ndarray], tuple[str, np.ndarray]]) -> Change:
    """A change that applies all rules, in order, to each tensor: config, name and tensor -> name and tensor."""

    def change(raw: dict[str, Any], tensors: Tensors) -> Tensors:
        for rule in rules:
            tensors = dict(rule(raw, name, tensor) for name, tensor in tensors.items())
        return tensors

    return change


def in_turn(*changes: Change) -> Change:
    def change(raw: dict[str, Any], tensors: Tensors) -> Tensors:
        for step in changes:
            tensors = step(raw, tensors)
        return tensors

    return change


EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(.*)")


def experts_stacked(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    """Stack the tensors of a layer's experts into one, under an expert's name without its number."""
    made: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if found := EXPERT.fullmatch(name):
            made.setdefault(f"{found[1]}.{found[3]}", {})[int(found[2])] = tensor
        else:
            made[name] = tensor
    return {n: np.stack([t[i] for i in range(len(t))]) if isinstance(t, dict) else t for n, t in made.items()}


def correction(raw: dict[str, Any], name: str, tensor: np.ndarray) -> tuple[str, np.ndarray]:
    """Rename the score correction bias of a router to the file's name."""
    is_one = name.endswith("e_score_correction_bias")
    return f"blk.{name.split('.')[2]}.exp_probs_b.bias" if is_one else name, tensor


def longrope(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    """Add the factors of LongRoPE as tensors; checkpoints have them in config.json."""
    factors = {name: np.array(raw["rope_parameters"][f"{name}_factor"], np.float32) for name in ("long", "short")}
    return tensors | {f"rope_factors_{name}.weight": values for name, values in factors.items()}


def permuted_heads(raw: dict[str, Any], name: str, tensor: np.ndarray) -> tuple[str, np.ndarray]:
    """Permute rows of queries and keys from rotate-half order to interleaved pairs, in each head."""
    part = name.split(".")[-2]
    if part not in ("q_proj", "k_proj"):
        return name, tensor
    heads = raw["num_attention_heads" if part == "q_proj" else "num_key_value_heads"]
    return name, tensor.reshape(heads, 2, -1, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def assert_same_config(form: Form, raw: dict[str, Any], config: dict[str, Any]) -> None:
    """Assert that the file's config equals the checkpoint's, except for ``form.lost``."""
    name, wanted = registry.name_of(config), registry.name_of(raw)
    assert name == wanted is not None
    ours, theirs = (vars(registry.get(wanted).config.from_hf(c)) for c in (config, raw))
    assert repr(ours.pop("rope", None)) == repr(theirs.pop("rope", None))
    different = {key for key, value in ours.items() if value != theirs[key]}
    assert not different - form.lost - {"context_window_size", "prefill_chunk_size"}, different


def parameters(raw: Mapping[str, Any], read: Callable[[str], np.ndarray], shapes: Mapping[str, Any]) -> Tensors:
    """The model parameters that the weight map makes from a checkpoint."""
    described = describe_model(dict(raw), "auto", SCHEME)
    plan = described.weight_map.resolve(described.parameters, shapes)
    return {p.name: p.value.evaluate(read) for p in plan.productions}


def of_checkpoint(checkpoint: GGUFCheckpoint) -> Tensors:
    shapes = {name: checkpoint.info(name).shape for name in checkpoint.names()}
    for name, shape in shapes.items():
        assert checkpoint.read(name).shape == shape
        assert checkpoint.read(name).dtype == checkpoint.info(name).dtype
    return parameters(checkpoint.config(), checkpoint.read, shapes)


def of_tensors(raw: Mapping[str, Any], tensors: Tensors) -> Tensors:
    return parameters(raw, tensors.__getitem__, {name: tensor.shape for name, tensor in tensors.items()})


def parameters_of_both(
    form: Form, path: Path, raw: dict[str, Any], tensors: Tensors
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name and value of each parameter by the file, which is written to ``path``, and by the checkpoint.

    Asserts that both give the same configuration and names.
    """
    checkpoint = GGUFCheckpoint(form.write(path, raw, tensors))
    assert_same_config(form, raw, checkpoint.config())
    made, wanted = of_checkpoint(checkpoint), of_tensors(raw, tensors)
    assert set(made) == set(wanted)
    for name, value in made.items():
        yield name, value, wanted[name]
