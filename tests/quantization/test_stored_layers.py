"""Layers in the formats of quantized checkpoints, against matmuls with dequantized weights."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch

from mlc_compiler import build, nn
from mlc_compiler.backends.cuda.images import find_assembler, llvm_modules
from mlc_compiler.codegen.native import assemble_modules
from mlc_compiler.ir.dtype import to_numpy
from mlc_compiler.ir.module import IRModule
from mlc_compiler.nn import spec
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.sim.driver import SimulatedDriver
from mlc_compiler.target import Target
from mlc_errors import UnsupportedError
from quantization.codecs import codec
from quantization.rewrite import quantize_model
from quantization.schemes import get_scheme
from quantization.stored_layers import StoredLinear
from tests.gpu.executors import SIMULATED, Executor

NAMES = ["fp8_e4m3fn_bf16_block_scale", "q4f16_autoawq"]
K, N, EXPERTS, ROWS = 256, 136, 3, 5
SHAPES = {"first": (N, K), "experts": (EXPERTS, N, K)}


class Two(nn.Module):
    """The sum of a linear layer and of each row's expert, then an output head, which is not quantized."""

    def __init__(self) -> None:
        self.first = nn.Linear(K, N, bias=True)
        self.experts = nn.Experts(EXPERTS, K, N)
        self.lm_head = nn.Linear(N, 7, bias=False)

    def main(self, x: nn.Tensor, chosen: nn.Tensor) -> nn.Tensor:
        return self.lm_head(self.first(x) + self.experts(x, chosen))


def exported(name: str, dtype: str) -> tuple[IRModule, dict[str, nn.Parameter]]:
    model = Two()
    assert list(quantize_model(model, get_scheme(name))) == ["first.weight", "experts.weight"]
    inputs = {"x": spec.Tensor([ROWS, K], dtype), "chosen": spec.Tensor([ROWS], "int32")}
    mod, _ = model.export(spec.ModuleSpec({"main": spec.Function(model.main, inputs, "plain", {})}))
    return mod, dict(model.named_parameters())


@pytest.mark.parametrize("name", NAMES)
def test_products_are_those_of_the_decoded_weights(name: str) -> None:
    mod, parameters = exported(name, "float32")
    arguments, expected = operands(name, parameters)
    got = build(mod)["main"](*arguments)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", NAMES)
def test_a_simulated_gpu_computes_the_same(name: str) -> None:
    dtype = get_scheme(name).model_dtype
    mod, parameters = exported(name, dtype)
    (x, *others), expected = operands(name, parameters)
    with SimulatedDriver(SIMULATED) as driver, Executor(f"cuda:{SIMULATED}", driver).built(mod) as library:
        got = np.asarray(library["main"](x.astype(to_numpy(dtype)), *others)).astype(np.float32)
        assert driver.fault is None, driver.fault
    np.testing.assert_allclose(got, expected, rtol=0, atol=0.02 * np.abs(expected).max())


def operands(name: str, parameters: dict[str, nn.Parameter]) -> tuple[list[np.ndarray], np.ndarray]:
    """The arguments of ``main``, and its expected result in float32."""
    scheme, rng = replace(get_scheme(name), model_dtype="float32"), np.random.default_rng(0)
    stored = {parameter: random(rng, info.shape, info.dtype) for parameter, info in parameters.items()}
    x, chosen = rng.standard_normal((ROWS, K)).astype(np.float32), np.array([2, 0, 1, 1, 2], np.int32)
    decoded = {}
    for layer, shape in SHAPES.items():
        made = {kind: stored[f"{layer}.{kind}"] for kind in codec(scheme).tensors(shape, scheme, scheme.layout)}
        decoded[layer] = np.concatenate(list(codec(scheme).decode_rows(made, scheme, shape, scheme.layout)))
    hidden = x @ decoded["first"].T + stored["first.bias"].astype(np.float32)
    hidden += np.einsum("tk,tnk->tn", x, decoded["experts"].reshape(SHAPES["experts"])[chosen])
    expected = hidden @ stored["lm_head.weight"].astype(np.float32).T
    return [x, chosen, *stored.values()], expected


@pytest.mark.parametrize("name", NAMES)
def test_hopper_computes_with_weights_in_registers(name: str) -> None:
    target, kernels = Target("cuda:sm_90a"), {}
    mod, _ = exported(name, get_scheme(name).model_dtype)
    texts = assemble_modules(llvm_modules(run_passes(mod, pipeline(target)), target, kernels), target)
    assert len(kernels) == 3
    assemble = find_assembler()
    for text in texts if assemble is not None else ():
        assert all(r.stack_bytes == r.spill_bytes == 0 for r in assemble(text, "sm_90a").resources.values())


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "uint32":
        return rng.integers(0, 1 << 32, shape, "uint32")
    return rng.standard_normal(shape).astype(to_numpy(dtype))


STATIC = "fp8_e4m3fn_bf16_block_scale_static_activation"


def test_inputs_are_rounded_with_stored_scales() -> None:
    """As torch's float8 rounds and saturates them; every block of inputs has its scale, the last one is short."""
    inputs, rng = 200, np.random.default_rng(3)
    layer = StoredLinear(nn.Linear(inputs, N, bias=False), get_scheme(STATIC))
    given = {"x": spec.Tensor([ROWS, inputs], "float32")}
    mod, parameters = layer.export(spec.ModuleSpec({"main": spec.Function(layer.forward, given, "plain", {})}))
    x = (rng.standard_normal((ROWS, inputs)) * 3).astype(np.float32)
    weight = (rng.standard_normal((N, inputs)) * 50).astype(ml_dtypes.float8_e4m3fn)
    scales = rng.uniform(0.001, 0.003, (2, 2)).astype(np.float32)
    input_scales = np.array([0.004, 0.1], np.float32)
    assert (np.abs(x[:, :128]) > 448 * input_scales[0]).sum() > 100
    stored = {"weight": weight, "weight_scale_inv": scales, "activation_scale": input_scales}
    got = build(mod)["main"](x, *(stored[name] for name in parameters))

    expected = np.zeros((ROWS, N), np.float32)
    for block, scale in enumerate(input_scales):
        columns = slice(128 * block, min(128 * (block + 1), inputs))
        codes = (torch.from_numpy(x[:, columns]) / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        of_rows = np.repeat(scales[:, block], 128)[:N]
        expected += codes.float().numpy() @ weight[:, columns].astype(np.float32).T * scale * of_rows
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_experts_have_no_form_with_scales_of_inputs() -> None:
    with pytest.raises(UnsupportedError, match="has no form for layers of experts"):
        quantize_model(Two(), get_scheme(STATIC))
