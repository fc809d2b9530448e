"""FasterTransformer's layout against the bytes of its own preprocessor; weights that fall back to another layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlc_compiler import build, nn
from mlc_compiler.ir.module import IRModule
from mlc_compiler.nn import spec
from mlc_compiler.sim.driver import SimulatedDriver
from quantization import faster_transformer as ft
from quantization import group
from quantization.rewrite import quantize_model
from quantization.schemes import get_scheme
from tests.gpu.executors import SIMULATED, Executor

SCHEME = get_scheme("q4f16_ft")
N, K = 64, 128
STORED = Path(__file__).parents[1] / "data" / "faster_transformer_sm80.bin"
"""What ``preprocess_weights`` (cutlass_preprocessors.cc of cutlass_fpA_intB_gemm, arch 80) makes of ``levels()``."""


def levels() -> np.ndarray:
    """Codes [N, K] that look random: the upper bits of a multiple of the index."""
    places = np.arange(N * K, dtype=np.uint32).reshape(N, K)
    return ((places * np.uint32(2654435761) >> np.uint32(20)) % 16).astype(np.int8) - np.int8(8)


def test_bytes_are_those_of_the_preprocessor() -> None:
    assert ft.in_tiles(ft.packed(levels())).tobytes() == STORED.read_bytes()


def test_bytes_of_the_preprocessor_are_read() -> None:
    stored = np.frombuffer(STORED.read_bytes(), np.int8).reshape(K, N // 2)
    np.testing.assert_array_equal(ft.unpacked(ft.out_of_tiles(stored)), levels())


def test_a_row_has_one_scale_and_levels_down_to_minus_eight() -> None:
    rows = np.zeros((3, K), np.float32)
    rows[0, :4] = [3.5, -3.5, 1.25, 0.75]  # scale 0.5: 7, -7, 2.5 to even, 1.5 to even
    rows[1, :2] = [6e-8, -6e-8]  # scale 0
    made, scales = ft.quantized(rows)
    assert made[0, :5].tolist() == [7, -7, 2, 2, 0]
    assert made[1, :3].tolist() == [7, -8, 0] and not made[2].any()
    assert scales.tolist() == [0.5, 0, 0]


def test_decoded_weights_are_within_half_a_step() -> None:
    weight = np.random.default_rng(0).standard_normal((N, K)).astype(np.float32)
    made = ft.encode_rows(lambda: (weight[:24], weight[24:]), (N, K), SCHEME, "FT")
    assert {name: (part.shape, part.dtype.name) for name, part in made.items()} == ft.tensors((N, K), SCHEME, "FT")
    back = np.concatenate(list(ft.decode_rows(made, SCHEME, (N, K), "FT")))
    steps = made["q_scale"][0].astype(np.float32)[:, None]
    assert (np.abs(back - weight) <= 0.505 * steps).all()


def test_other_layouts_are_groups_as_in_q4f16_1() -> None:
    weight = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float16)
    made = ft.encode_rows(lambda: [weight], weight.shape, SCHEME, "NK")
    expected = group.encode(weight, get_scheme("q4f16_1"))
    assert {name: part.tobytes() for name, part in made.items()} == {n: p.tobytes() for n, p in expected.items()}
    decoded = np.concatenate(list(ft.decode_rows(made, SCHEME, weight.shape, "NK")))
    assert decoded.tobytes() == group.decode(expected, get_scheme("q4f16_1"), 40).tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e5])
def test_what_float16_cannot_hold_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="float16 cannot hold"):
        ft.quantized(np.array([[1.0, value]]))


class Layers(nn.Module):
    def __init__(self) -> None:
        self.table = nn.Embedding(64, 64)
        self.tiled, self.odd = nn.Linear(64, 128), nn.Linear(64, 72)
        self.experts = nn.Experts(2, 64, 64)
        self.lm_head = nn.Linear(64, 64, bias=False)


def test_tables_heads_and_odd_sizes_are_groups_and_experts_stay() -> None:
    model = Layers()
    layouts = {name: made.layout for name, made in quantize_model(model, SCHEME).items()}
    assert layouts == {"table.weight": "NK", "tiled.weight": "FT", "odd.weight": "NK", "lm_head.weight": "NK"}
    parameters = dict(model.named_parameters())
    assert parameters["experts.weight"].dtype == "float16"
    assert [p.dtype for name, p in parameters.items() if name.endswith("q_weight")].count("int8") == 1


class One(nn.Module):
    def __init__(self) -> None:
        self.layer = nn.Linear(128, 192)

    def main(self, x: nn.Tensor) -> nn.Tensor:
        return self.layer(x)


def test_products_are_those_of_the_decoded_weight() -> None:
    mod, arguments, expected = product("float32")
    np.testing.assert_allclose(build(mod)["main"](*arguments), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_simulated_gpu_computes_the_same() -> None:
    mod, arguments, expected = product("float16")
    with SimulatedDriver(SIMULATED) as driver, Executor(f"cuda:{SIMULATED}", driver).built(mod) as library:
        got = np.asarray(library["main"](*arguments)).astype(np.float32)
        assert driver.fault is None, driver.fault
    np.testing.assert_allclose(got, expected, rtol=0, atol=5e-3 * np.abs(expected).max())


def product(dtype: str) -> tuple[IRModule, list[np.ndarray], np.ndarray]:
    """A layer as a module, its arguments with activations of ``dtype``, and the expected result."""
    model, rng = One(), np.random.default_rng(0)
    quantize_model(model, SCHEME)
    inputs = {"x": spec.Tensor([5, 128], dtype)}
    mod, _ = model.export(spec.ModuleSpec({"main": spec.Function(model.main, inputs, "plain", {})}))
    bias = rng.standard_normal(192).astype(np.float16)
    x, weight = rng.standard_normal((5, 128)).astype(dtype), rng.standard_normal((192, 128)).astype(np.float16)
    stored = ft.encode_rows(lambda: [weight], weight.shape, SCHEME, "FT")
    decoded = ft.unpacked(ft.out_of_tiles(stored["q_weight"])) * stored["q_scale"].T.astype(np.float32)
    made = {"layer.bias": bias, **{f"layer.{kind}": part for kind, part in stored.items()}}
    arguments = [x, *(made[name] for name, _ in model.named_parameters())]
    return mod, arguments, x.astype(np.float32) @ decoded.T + bias
