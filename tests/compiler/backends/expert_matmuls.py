"""Expert layers with weights of any scheme, their operands and their results in numpy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mlc_compiler import Library, nn
from mlc_compiler.api import build_prepared
from mlc_compiler.ir.dtype import to_numpy
from mlc_compiler.ir.module import IRModule
from mlc_compiler.nn import spec
from mlc_compiler.pipeline import methods, run_passes
from quantization import group
from quantization.codecs import codec
from quantization.rewrite import WeightFormat, quantize_model, quantized_names
from quantization.schemes import Scheme, get_scheme


class Layer(nn.Module):
    """An experts layer with one expert for each row, followed by SwiGLU if ``gated``."""

    def __init__(self, case: Case):
        self.experts = nn.Experts(case.experts, case.depth, case.columns * (1 + case.gated), case.bias)
        self.gated = case.gated

    def main(self, x: nn.Tensor, ids: nn.Tensor, rows: nn.Tensor) -> nn.Tensor:
        y = self.experts(x, ids, rows)
        return nn.swiglu(y) if self.gated else y


@dataclass(frozen=True)
class Case:
    """A matmul of ``len(ids)`` rows, each with the matrix of its expert in ``ids``; x has ``tokens`` rows.

    symbolic: whether the number of rows is symbolic. columns: of the result.
    """

    ids: tuple[int, ...]
    experts: int
    columns: int
    depth: int
    scheme: str = "q0f16"
    dtype: str = "float16"
    gated: bool = False
    bias: bool = False
    symbolic: bool = True
    tokens: int = 3

    def module(self) -> tuple[IRModule, list[np.ndarray], list[np.ndarray], np.ndarray]:
        """The module, the arguments of ``main`` without its tuple of parameters, the parameters, and the expected
        result."""
        model, scheme, rng = Layer(self), get_scheme(self.scheme), np.random.default_rng(len(self.ids))
        plain = {n: self._random(rng, p.shape) for n, p in model.named_parameters()}
        formats = quantize_model(model, scheme)
        stored, decoded = stored_and_decoded(plain, scheme, formats)
        count: Any = "n" if self.symbolic else len(self.ids)
        index = spec.Tensor([count], "int32")
        inputs = {"x": spec.Tensor([self.tokens, self.depth], self.dtype), "ids": index, "rows": index}
        functions = spec.ModuleSpec.from_raw({"main": inputs}, model).with_packed_weights()
        mod, names = model.export(functions)
        x = rng.standard_normal((self.tokens, self.depth), "f4").astype(to_numpy(self.dtype))
        rows = rng.integers(0, self.tokens, len(self.ids)).astype("int32")
        arguments = [x, np.array(self.ids, "int32"), rows]
        return mod, arguments, [stored[n] for n in names], self._expected(x, rows, decoded)

    def _random(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return (rng.standard_normal(shape, "f4") / np.sqrt(self.depth)).astype("f4")

    def _expected(self, x: np.ndarray, rows: np.ndarray, p: dict[str, np.ndarray]) -> np.ndarray:
        ids = list(self.ids)
        y = np.einsum("rk,rnk->rn", x[rows].astype("f4"), p["experts.weight"][ids])
        y = y + p["experts.bias"][ids] if self.bias else y
        if self.gated:
            gate, up = np.split(y, 2, axis=-1)
            y = gate / (1 + np.exp(-gate)) * up
        return y


def stored_and_decoded(
    plain: dict[str, np.ndarray], scheme: Scheme, formats: dict[str, WeightFormat]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Parameters encoded by a scheme, and the float32 values that they encode."""
    stored, decoded = {}, {}
    for name, array in plain.items():
        if name not in formats:
            stored[name] = array.astype(to_numpy(scheme.model_dtype))
            decoded[name] = stored[name].astype("f4")
            continue
        made = codec(scheme).encode_rows(lambda: [array], array.shape, scheme, formats[name].layout)  # noqa: B023
        path = quantized_names(name)[0].removesuffix("q_weight")
        stored |= {path + part: value for part, value in made.items()}
        decoded[name] = decode(made, scheme, array.shape, formats[name].layout)
    return stored, decoded


def decode(made: dict[str, np.ndarray], scheme: Scheme, shape: tuple[int, ...], layout: str) -> np.ndarray:
    """Dequantize in float32, without rounding to the scheme's model dtype."""
    scale = made.get("q_scale", np.ones(1))
    if scheme.kind == "fp8":
        return made["q_weight"].astype("f4") * scale.astype("f4")
    wide = replace(scheme, model_dtype="float32")
    return group.decode({"q_weight": made["q_weight"], "q_scale": scale}, wide, shape[-1], layout)


@st.composite
def expert_ids(draw: st.DrawFn, most: int) -> tuple[tuple[int, ...], int]:
    """Expert ids of up to ``most`` rows, sorted in half of the cases, and the number of experts, some of which may have
    no rows."""
    experts = draw(st.integers(1, 6))
    used = draw(st.lists(st.integers(0, experts - 1), min_size=1, max_size=3))
    ids = draw(st.lists(st.sampled_from(used), min_size=1, max_size=most))
    return tuple(ids if draw(st.booleans()) else sorted(ids)), experts


def compiled(mod: IRModule, target: str, opt: str = "O3") -> tuple[Library, dict[str, str]]:
    """The library of a module, and the names of the packing functions by parameter index."""
    library, lowered = build_prepared(run_passes(mod, methods()), target, num_threads=2, opt=opt)
    return library, dict(lowered.attrs.get("packed", {}))


def call(library: Library, arguments: list[np.ndarray], parameters: list[np.ndarray], packing: dict[str, str]) -> Any:
    """The result of ``main``."""
    memory, placed = library.memory, []
    for number, array in enumerate(parameters):
        tensor, pack = memory.tensor(memory.loaded(array)), packing.get(str(number))
        placed.append(tensor if pack is None else memory.tensor(library[pack](tensor)))
    return library["main"](*arguments, np.array([tensor.data_ptr() for tensor in placed], np.int64))
