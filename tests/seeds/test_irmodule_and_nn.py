"""The document on IRModule and nn modules: its code runs as printed, on the CPU instead of its GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_compiler import build, parse
from mlc_compiler.ir.structural import first_difference
from tests.seeds.notebook import Ran, run

CPU = {'"cuda"': '"cpu"', "tvm.cuda()": "tvm.cpu()"}
RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def ran() -> Ran:
    return run("irmodule_and_nn", replaced=CPU)


def test_every_cell_but_two_fragments_runs(ran: Ran):
    assert ran.counts() == {"run": 15, "fragment": 2}


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


def test_module_of_one_operator(ran: Ran):
    a, b = normal(3, 4), normal(4, 5)
    np.testing.assert_allclose(build(ran.after["matmul module"]["Module"])["main"](a, b), a @ b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("title", ["mlp module", "both levels"])
def test_modules_compute_what_torch_does(ran: Ran, title: str):
    torch_model = ran.after[title]["MLP"]()
    x = normal(1, 784)
    w1, b1, w2, b2 = (p.detach().numpy() for p in torch_model.parameters())
    got = build(ran.after[title]["Module"])["main"](x, w1, b1[None], w2, b2[None])
    np.testing.assert_allclose(got, torch_model(torch.from_numpy(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("title", ["build relax", "emit te"])
def test_built_modules_are_the_printed_ones(ran: Ran, title: str):
    shown = {"build relax": "relax mlp shown", "emit te": "emit te shown"}[title]
    expected = parse("from tvm.script import tir as T, relax as R, ir as I\n" + ran.shown(shown))
    built = parse(ran.output[title])
    for name in expected:
        assert first_difference(without_outputs(built[name]), expected[name]) is None
    parameters = [p.name for p in built["main"].params]
    assert parameters == ["input", "linear_weight", "linear_bias", "linear_weight_1", "linear_bias_1"]


def without_outputs(func):
    """The function without an attribute that this compiler adds."""
    return func.without_attr("num_outputs") if "num_outputs" in func.attrs else func


@pytest.mark.parametrize("title", ["product", "product repeated"])
def test_products_print_as_shown(ran: Ran, title: str):
    assert ran.output[title] == ran.shown(f"{title} shown")
