"""Routing against transformers' routers; mixtures of experts against numpy, interpreted and compiled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2TopkRouter
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
from transformers.models.ernie4_5_moe.modeling_ernie4_5_moe import Ernie4_5_MoeTopKRouter
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssTopKRouter
from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter
from transformers.models.phimoe.modeling_phimoe import PhimoeTopKRouter
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

from mlc_compiler import nn
from mlc_compiler.interp import run_function
from mlc_compiler.nn import op, spec
from mlc_compiler.relax.ops import OperatorError

E, D, TOKENS = 12, 8, 9
GROUPS = {"n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5}


def config(**keys: Any) -> SimpleNamespace:
    common = {"num_experts": E, "num_local_experts": E, "num_experts_per_tok": 3, "hidden_size": D}
    return SimpleNamespace(**{**common, **keys})


ROUTERS = {
    "mixtral": (MixtralTopKRouter(config()), nn.Routing(3, renormalize=True)),
    "qwen3_moe": (Qwen3MoeTopKRouter(config(norm_topk_prob=False)), nn.Routing(3)),
    "gpt_oss": (GptOssTopKRouter(config()), nn.Routing(3, renormalize=True)),
    "ernie4_5_moe": (Ernie4_5_MoeTopKRouter(config(moe_norm_min=1e-12)), nn.Routing(3, renormalize=True)),
    "phimoe": (
        PhimoeTopKRouter(config(num_experts_per_tok=2, router_jitter_noise=0.2, input_jitter_noise=0.0)).eval(),
        nn.Routing(2, "sparsemixer", margin=0.4),
    ),
    "deepseek_v2": (
        DeepseekV2TopkRouter(config(topk_method="group_limited_greedy", **GROUPS)),
        nn.Routing(3, scale=2.5, groups=4, kept_groups=2),
    ),
    "deepseek_v3": (
        DeepseekV3TopkRouter(config(norm_topk_prob=True, **GROUPS)),
        nn.Routing(3, "sigmoid", True, 2.5, groups=4, kept_groups=2, group_best=2),
    ),
}


class Router(nn.Module):
    def __init__(self, routing: nn.Routing, correction: np.ndarray | None):
        self.routing, self.correction = routing, correction is not None

    def forward(self, logits: nn.Tensor, correction: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        return tuple(self.routing(logits, correction if self.correction else None))  # type: ignore[return-value]


def correction_of(router: torch.nn.Module) -> torch.Tensor | None:
    if isinstance(router, Ernie4_5_MoeTopKRouter):
        return router.moe_statics.e_score_correction_bias
    return getattr(router, "e_score_correction_bias", None)


@pytest.mark.parametrize("name", ROUTERS)
def test_routing_is_that_of_transformers(name: str) -> None:
    router, routing = ROUTERS[name]
    torch.manual_seed(3)
    correction = correction_of(router)
    with torch.no_grad():
        router.weight.copy_(torch.randn(E, D))
        if correction is not None:
            correction.copy_(torch.rand(correction.shape))
        logits, weights, experts = router(torch.randn(TOKENS, D))
    given_correction = np.zeros(E, "f4") if correction is None else correction.detach().numpy().reshape(E)
    inputs = {"logits": spec.Tensor(["n", E]), "correction": spec.Tensor([E])}
    mod, _ = Router(routing, None if correction is None else given_correction).export({"forward": inputs})
    got_weights, got_experts = run_function(mod, "forward", logits.numpy(), given_correction, ())

    def by_expert(which: np.ndarray, values: np.ndarray) -> np.ndarray:
        dense = np.zeros((TOKENS, E), "f4")
        np.put_along_axis(dense, which.astype("int64"), values, 1)
        return dense

    wanted = by_expert(experts.numpy(), weights.numpy())
    np.testing.assert_allclose(by_expert(got_experts, got_weights), wanted, rtol=2e-6)


@pytest.mark.parametrize(
    ("routing", "message"),
    [
        (nn.Routing(2, "relu"), "score: got 'relu'; expected one of softmax, sigmoid, sparsemixer"),
        (nn.Routing(2, "sparsemixer", renormalize=True), "expected no correction, renormalization or groups"),
        (nn.Routing(2, groups=3, kept_groups=4), "got groups 3, kept_groups 4, group_best 1; expected groups"),
        (nn.Routing(2, groups=4, kept_groups=2), "expected groups that divide 6 experts"),
        (nn.Routing(7), "expected 1 <= k <= E"),
    ],
)
def test_routing_names_what_makes_no_sense(routing: nn.Routing, message: str) -> None:
    inputs = dict.fromkeys(("logits", "correction"), spec.Tensor(["n", 6]))
    with pytest.raises(OperatorError, match=message):
        Router(routing, None).export({"forward": inputs})


def clamped_swiglu(x: nn.Tensor) -> nn.Tensor:
    """The activation of gpt-oss; gates and inputs are not interleaved."""
    gate, up = op.split(x, 2, axis=-1)
    gate, up = op.minimum(gate, 0.7), op.clip(up, -0.7, 0.7)
    return (up + 1.0) * (gate * op.sigmoid(gate * 1.702))


class Mixture(nn.Module):
    def __init__(self, experts: int, d: int, inner: int, bias: bool, clamped: bool):
        self.up, self.down = nn.Experts(experts, d, 2 * inner, bias), nn.Experts(experts, inner, d, bias)
        self.activation = clamped_swiglu if clamped else nn.swiglu

    def forward(self, x: nn.Tensor, weights: nn.Tensor, experts: nn.Tensor) -> nn.Tensor:
        return nn.mixture(x, nn.Choice(weights, experts), self.up, self.down, self.activation)


def in_numpy(x: np.ndarray, weights: np.ndarray, ids: np.ndarray, p: dict[str, np.ndarray], clamped: bool) -> Any:
    total = np.zeros_like(x)
    for t, j in np.ndindex(*ids.shape):
        y = p["up.weight"][ids[t, j]] @ x[t] + (p["up.bias"][ids[t, j]] if "up.bias" in p else 0)
        gate, up = np.split(y, 2)
        if clamped:
            gate, up = np.minimum(gate, 0.7), np.clip(up, -0.7, 0.7) + 1
        h = up * gate / (1 + np.exp(-gate * (1.702 if clamped else 1)))
        y = p["down.weight"][ids[t, j]] @ h + (p["down.bias"][ids[t, j]] if "down.bias" in p else 0)
        total[t] += weights[t, j] * y
    return total


@st.composite
def problems(draw: st.DrawFn) -> tuple[int, ...]:
    """Numbers of tokens, experts, and choices per token; two sizes; how many experts occur among the choices."""
    experts = draw(st.integers(1, 9))
    used = draw(st.integers(1, experts))
    sizes = draw(st.integers(1, 24)), draw(st.integers(1, 17))
    return draw(st.integers(1, 20)), experts, draw(st.integers(1, used)), *sizes, used


@settings(max_examples=25)
@given(problems(), st.booleans(), st.booleans(), st.integers(0, 1 << 30))
def test_mixture_is_the_sum_over_chosen_experts(problem: tuple[int, ...], bias: bool, clamped: bool, seed: int) -> None:
    tokens, experts, k, d, inner, used = problem
    rng = np.random.default_rng(seed)
    model = Mixture(experts, d, inner, bias, clamped)
    p = {n: rng.standard_normal(a.shape, "f4") for n, a in model.named_parameters()}
    x, weights = rng.standard_normal((tokens, d), "f4"), rng.random((tokens, k), "f4")
    chosen = rng.permutation(experts)[:used]
    ids = np.array([rng.permutation(chosen)[:k] for _ in range(tokens)], "int32")
    wanted = in_numpy(x, weights, ids, p, clamped)
    for count in ("n", 1) if tokens == 1 else ("n",):
        inputs = {"x": spec.Tensor([count, d]), "weights": spec.Tensor([count, k])}
        functions = {"forward": inputs | {"experts": spec.Tensor([count, k], "int32")}}
        mod, names = model.export(functions)
        got = run_function(mod, "forward", x, weights, ids, tuple(p[n] for n in names))
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
