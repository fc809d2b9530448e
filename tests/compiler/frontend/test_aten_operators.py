"""Every row of the table of ATen operators against PyTorch: many functions in one program, compiled once per family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mlc_compiler import build
from mlc_compiler.frontend.torch import from_exported_program, graph
from mlc_compiler.frontend.torch.aten import ROWS, keys_of
from mlc_compiler.frontend.torch.exported_program import decomposed
from mlc_compiler.frontend.torch.graph import operator_name
from tests.compiler.frontend.imports import compare, outputs

aten = torch.ops.aten
Cases = list[Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]]
"""Of x and y float32 [2, 4, 6], and i int64 [3, 4] from -2 to 3."""

ELEMENTWISE: Cases = [
    lambda x, y, i: (x.abs() + y, torch.add(x, y, alpha=2), i + 0.5, i + x[0, :3, :4], x - 2, torch.sub(i, i, alpha=3)),
    lambda x, y, i: (x / y, i / 2, torch.div(x, y, rounding_mode="floor"), torch.div(i, 3, rounding_mode="trunc")),
    lambda x, y, i: (torch.div(x, y, rounding_mode="trunc"), i // 2, 1 - x, 2 / (x * x + 1), torch.fmod(x, 0.7), i % 3),
    lambda x, y, i: (torch.fmod(i, 2), x**2, x**3, i**2, x.abs() ** 0.5, x.abs() ** 1.7, x.abs() ** y),
    lambda x, y, i: (x.clamp(-0.5, 0.5), x.clamp(min=0.1), i.clamp(max=1), torch.clamp(x, y, y + 1)),
    lambda x, y, i: (aten.clamp_max(x, 0.3), aten.clamp_min(x, 0.3), torch.maximum(x, y), torch.minimum(i, -i)),
    lambda x, y, i: (F.gelu(x), F.gelu(x, approximate="tanh"), F.elu(x, 0.7), F.selu(x), F.hardswish(3 * x)),
    lambda x, y, i: (F.hardsigmoid(3 * x), F.hardtanh(x), F.relu6(5 * x), F.leaky_relu(x), F.leaky_relu(x, 0.3)),
    lambda x, y, i: (
        F.mish(x),
        F.softplus(x),
        F.softplus(x, 2.0, 1.0),
        F.silu(x),
        F.relu(x),
        F.celu(x),
        F.logsigmoid(x),
    ),
    lambda x, y, i: (torch.exp(i), torch.log(x.abs()), torch.sqrt(x.abs()), torch.rsqrt(x.abs()), torch.tanh(x)),
    lambda x, y, i: (torch.sigmoid(i), torch.erf(x), torch.sin(x), torch.cos(x), torch.tan(x), torch.square(x), -i),
    lambda x, y, i: (torch.floor(x), torch.ceil(x), torch.round(x), torch.trunc(3 * x), torch.sign(i), x.reciprocal()),
    lambda x, y, i: (torch.expm1(x), torch.log1p(x.abs()), torch.log2(x.abs()), torch.log10(x.abs()), aten.relu6(x)),
    lambda x, y, i: (
        x == y,
        i != 1,
        x < y,
        i <= 0,
        x > 0.1,
        i >= i.T[:3, :3].sum(),
        torch.isnan(x.log()),
        (x / 0).isinf(),
    ),
    lambda x, y, i: ((x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), ~(x > 0), i & 3, i | 4, i ^ 5, ~i),
    lambda x, y, i: (
        torch.logical_and(i, i - 1),
        torch.logical_or(x, y),
        torch.logical_not(i),
        torch.logical_xor(i, i - 1),
    ),
    lambda x, y, i: (torch.where(x > 0, x, 0.0), torch.where(i > 0, i, 1.5), x.masked_fill(y > 0, -1.0)),
    lambda x, y, i: (
        torch.addcmul(x, x, y, value=0.5),
        i.to(torch.float32),
        x.to(torch.int32),
        x.bool(),
        F.dropout(x, 0.5, False),
    ),
    lambda x, y, i: (x.clone() + 1, x.detach() + 2, x.double().float(), x.contiguous() * 2, aten.alias(x) - 1),
    lambda x, y, i: (
        *(f(x / 9) for f in (torch.asin, torch.acos, torch.atan, torch.atanh)),
        *(f(x) for f in (torch.sinh, torch.cosh, torch.asinh)),
        *(torch.acosh(x.abs() + 1), torch.atan2(x, y), torch.atan2(i, i + 1), aten.copy(x, y[0])),
    ),
    lambda x, y, i: (
        *(torch.erfc(x), torch.exp2(i), torch.hypot(x, y), i << 2, i >> 1),
        *(torch.bitwise_left_shift(i, i % 4), torch.bitwise_right_shift(i, 1)),
        *(torch.fmax(x.sqrt(), y), torch.fmin(x.sqrt(), y.sqrt())),
    ),
    lambda x, y, i: (aten.remainder(x, 0.7), torch.floor_divide(x, 0.7), aten.rsub(x, y)),
]

REDUCTIONS: Cases = [
    lambda x, y, i: (
        x.sum(),
        x.sum(1),
        x.sum((0, 2), keepdim=True),
        i.sum(),
        (x > 0).sum(-1),
        x.mean(),
        x.mean((1, 2)),
    ),
    lambda x, y, i: (x.amax(1), x.amin((0, 1)), x.max(), x.min(), x.max(1), x.min(-1, keepdim=True), torch.max(x, y)),
    lambda x, y, i: (
        x.argmax(),
        x.argmax(1),
        x.argmin(-1, keepdim=True),
        (x > 1).any(),
        (x > 1).any(1),
        (i > -3).all(),
        i.all(1),
    ),
    lambda x, y, i: (x.var(1), x.var((0, 2), correction=0), x.std(-1, keepdim=True), x.prod(1), x.prod(), i.prod(0)),
    lambda x, y, i: (
        x.cumsum(1),
        i.cumsum(-1),
        x.cumprod(2),
        torch.logsumexp(x, 1),
        x.norm(dim=1),
        x.norm(3, 1),
        x.norm(torch.inf, 1),
    ),
    lambda x, y, i: (
        *(x.norm(0, 1), x.norm(1, 1), x.norm(-torch.inf, 1), torch.dist(x, y[0])),
        *(aten.var_mean(x, [1]), torch.logcumsumexp(9 * x, 1), x.cummax(1), i.cummin(0)),
        *(torch.cdist(x, y, 1.0), torch.cdist(x, y), torch.pdist(x[0])),
    ),
    lambda x, y, i: (
        *(x.median(), x.median(1), i.median(-1, keepdim=True), x.kthvalue(2, 1), x.kthvalue(3, -1, keepdim=True)),
        *(torch.bucketize(x, torch.linspace(-1, 1, 5)), torch.bucketize(i, i[0].sort()[0], right=True)),
        torch.searchsorted(x.sort()[0], y[..., :3], out_int32=True),
        torch.searchsorted(x, y, sorter=x.argsort()),
    ),
    lambda x, y, i: (x.topk(3), x.topk(2, 1, largest=False), x.sort(1), x.sort(-1, descending=True), x.argsort(1)),
]

SHAPES: Cases = [
    lambda x, y, i: (x.view(8, 6), x.reshape(2, -1), x.permute(2, 0, 1), x.transpose(0, -1), x[0].t(), x.flatten(1)),
    lambda x, y, i: (
        x.unsqueeze(1),
        x.unsqueeze(-1),
        x[:, :1].squeeze(),
        x[:1].squeeze(0),
        x[:1].squeeze(1),
        x[:1].expand(5, -1, 6),
    ),
    lambda x, y, i: (
        x[:, 1:3],
        x[..., -2:],
        x[:, :, ::2],
        x[:, 1:-1],
        x[:, 2],
        x[-1],
        x[:, :, -2],
        x.split(3, 2),
        x.split([1, 3], 1),
    ),
    lambda x, y, i: (
        x.chunk(2, -1),
        x.unbind(1),
        torch.cat([x, y], 1),
        torch.cat([i, x[0, :3]], 1),
        torch.stack([x, y], -1),
    ),
    lambda x, y, i: (
        x.repeat(2, 1, 3),
        x.repeat(2, 1, 1, 1),
        x.repeat_interleave(2, 1),
        x.flip(1),
        x.flip((0, -1)),
        x.roll(1, 1),
    ),
    lambda x, y, i: (F.pad(x, (1, 2)), F.pad(x, (1, 0, 0, 2), value=3.0), F.pad(x, (-1, 1, 0, -2))),
    lambda x, y, i: (
        x[:, i],
        x[i % 2, i],
        x[i % 2, :, i],
        x[0, :, i + 1],
        F.embedding(i % 4, x[0]),
        x.index_select(1, i[0] % 4),
    ),
    lambda x, y, i: (x.gather(1, i[None, :2, :3] % 4), torch.tril(x), x.triu(1), aten._unsafe_view(x, [4, 12])),
    lambda x, y, i: (torch.arange(5) + i[0, 0], torch.arange(1, 9, 2) * 1, torch.arange(0, 1, 0.25) + x[0, 0, :4]),
    lambda x, y, i: (torch.arange(9, -9, -4) * 1, torch.arange(3, 3)),
    lambda x, y, i: (
        torch.full((2, 3), 1.5) + 0,
        torch.full((2,), 3) + 0,
        torch.zeros(2, 3) + 1,
        torch.ones(3, dtype=torch.int64) + 1,
    ),
    lambda x, y, i: (
        torch.zeros_like(x) + 1,
        torch.ones_like(i) + x[0, 0, 0],
        torch.full_like(x, 2) + 1,
        x.new_zeros(3) + 1,
    ),
    lambda x, y, i: (
        x.new_full((2, 2), 4.0) + 1,
        x.new_ones(2) + 1,
        aten.scalar_tensor(2.0) + x,
        x.new_empty(2) * 0 + 1,
    ),
    lambda x, y, i: (
        F.interpolate(x[None], scale_factor=2.0, mode="nearest"),
        F.interpolate(x, 9, mode="nearest"),
        F.interpolate(x[None, None], (3, 3, 7), mode="nearest"),
        F.interpolate(x, 4, mode="nearest-exact"),
        F.interpolate(x[None], (3, 8), mode="nearest-exact"),
        F.interpolate(x[None, None], (3, 3, 7), mode="nearest-exact"),
    ),
    lambda x, y, i: (
        F.interpolate(x, 9, mode="linear"),
        F.interpolate(x[None], (7, 5), mode="bilinear"),
        F.interpolate(x[None], scale_factor=(1.7, 0.6), mode="bilinear"),
        F.interpolate(x[None], (7, 5), mode="bilinear", align_corners=True),
        F.interpolate(x[None, None], (3, 3, 7), mode="trilinear"),
        F.interpolate(x[None], (7, 5), mode="bicubic"),
        F.interpolate(x[None], (1, 8), mode="bicubic", align_corners=True),
        F.interpolate(x[None], (3, 9), mode="bilinear", antialias=True),
        F.interpolate(x[None], (2, 3), mode="bicubic", antialias=True),
    ),
    lambda x, y, i: (
        *(x.diagonal(0, 1, 2), x.diagonal(-1, 0, -1), i.diagonal(2), i.diagonal_scatter(i[0, :2], 2)),
        *(x.as_strided((3, 4), (5, 2), 1), x.unfold(1, 3, 1), x.unfold(-1, 2, 3)),
        *(torch.tril_indices(3, 4, 1) + 0, torch.triu_indices(4, 3) + 0),
        *(torch.einsum("bij,bkj->ikb", x, y), x.roll((1, 2), (1, 2)), F.pixel_shuffle(x[:, :, :2, None], 2)),
        *(F.pixel_unshuffle(x[None], 2), F.unfold(x[None], (2, 3), padding=1), F.fold(x.mT, (4, 6), (1, 6))),
        *(F.pad(x, (2, 1), "reflect"), F.pad(x[None], (1, 2, 2, 0), "replicate"), F.pad(x, (1, 2), "circular")),
        *(aten.new_empty_strided(x, [2], [1]) * 0 + 1, aten.empty_permuted([2, 3], [0, 1]) * 0 + 1),
        aten.empty_strided([2], [1]) * 0 + 1,
    ),
    lambda x, y, i: (
        *(aten.index_put(x, [None, i % 4], y[:, :3, :4, None]), aten.index_put(x, [i % 2, None, i], y[0, 0, :4])),
        aten.index_put(x, [None, None, torch.tensor([3, 1])], y[..., :2], accumulate=True),
        *(x.index_put((x > 0,), torch.tensor(2.0)), x.index_put((x[..., 0] > 0,), y[0, :1])),
        *(x.index_put((y[..., 0] > 0,), y[0, 0], accumulate=True), x.masked_scatter(y > 0, y * 2)),
        *(x.index_fill(2, i[0], 3.0), x.index_copy(1, torch.tensor([2, 0]), y[:, :2])),
    ),
    lambda x, y, i: (
        F.embedding_bag(i.flatten() % 4, x[0], torch.tensor([0, 3, 3, 7])),
        F.embedding_bag(i % 4, x[0], mode="sum", per_sample_weights=y[0, :3, :4]),
        F.embedding_bag(i.flatten() % 4, x[0], torch.tensor([0, 3, 3, 12]), mode="max", include_last_offset=True),
        F.embedding_bag(i % 4, x[0], padding_idx=1),
        aten._embedding_bag(x[0], i[0] % 4, torch.tensor([0, 1]))[0],
    ),
    lambda x, y, i: (
        *(x.scatter_reduce(1, i[None] % 4, y, how, include_self=False) for how in ("sum", "prod", "amax", "amin")),
        *(x.scatter_reduce(1, i[None] % 4, y, "mean", include_self=s) for s in (True, False)),
        aten.scatter.reduce(x, 1, i[None] % 4, y, reduce="multiply"),
    ),
    lambda x, y, i: (
        x.scatter(1, i[None] % 4, y[:, :3]),
        x.scatter(2, i[None, :2] % 6, 1.5),
        x.scatter(2, i[None] % 6, 1.5, reduce="add"),
        x.scatter_add(1, i[None] % 4, y),
        x.scatter_reduce(1, i[None] % 4, y, "amax"),
        x.scatter_reduce(0, i[None] % 2, y, "prod"),
        x.index_add(1, i[0] % 4, y, alpha=2),
        x.index_add(0, i[0] % 2, y[:1].expand(i.shape[1], -1, -1)),
        x.index_put((i[0, :2] % 2, i[1, :2] % 4), y[0, :2]),
        x.index_put((i % 2,), y[0, 0], accumulate=True),
        x.slice_scatter(y[:, :2], 1, 1, 3),
        x.select_scatter(y[:, 0], 1, 2),
    ),
]

LAYERS: Cases = [
    lambda x, y, i: (
        F.linear(x, y[0]),
        F.linear(x, y[0], x[0, :, 0]),
        x @ y.mT,
        x[0] @ y.mT,
        x[0] @ y[0, 0],
        torch.mm(x[0], y[1].T),
    ),
    lambda x, y, i: (
        torch.bmm(x, y.mT),
        torch.addmm(x[0, :, :4], x[0], y[0].T, beta=2, alpha=0.5),
        torch.baddbmm(x[:, :, :4], x, y.mT),
        torch.addbmm(x[0, :, :4], x, y.mT, beta=0.5, alpha=2),
        torch.addmv(x[0, :, 0], x[0], y[0, 0]),
    ),
    lambda x, y, i: (
        F.layer_norm(x, (6,)),
        F.layer_norm(x, (4, 6), y[0], x[1]),
        F.rms_norm(x, (6,), y[0, 0]),
        F.rms_norm(x, (6,), eps=0.1),
    ),
    lambda x, y, i: (F.group_norm(x, 2), F.group_norm(x, 4, y[0, :, 0], y[0, :, 1]), F.instance_norm(x)),
    lambda x, y, i: (
        aten.native_group_norm(x, y[0, 0, :4].clone(), y[0, 1, :4].clone(), 2, 4, 6, 2, 1e-5)[0],
        aten.max_pool2d_with_indices(x[None], [2, 3], [1, 2], [1, 1])[0],
        aten._adaptive_avg_pool2d(x[None], [2, 3]),
    ),
    lambda x, y, i: (
        F.grid_sample(x[None], y[:, :3, :4].reshape(1, 4, 3, 2), align_corners=False),
        F.grid_sample(x[None], y[:, :3, :4].reshape(1, 4, 3, 2) * 2, "nearest", align_corners=True),
        F.grid_sample(x[None], y[:, :3, :4].reshape(1, 4, 3, 2) * 2, "bilinear", "border", align_corners=True),
    ),
    lambda x, y, i: F.batch_norm(x, y[0, :, 0], y[0, :, 1].abs(), y[1, :, 0], y[1, :, 1]),
    lambda x, y, i: (F.softmax(x, 1), F.softmax(x, -1, torch.float32), F.log_softmax(x, 1), aten._softmax(x, 2, False)),
    lambda x, y, i: (aten._log_softmax(x, 2, False), aten.native_layer_norm(x, [6], None, None, 1e-5)[0]),
    lambda x, y, i: (
        F.conv1d(x, y[:, :, :3], x[0, :2, 0], 2, 1),
        F.conv1d(x, y[:, :, :4], padding="same"),
        F.conv1d(x, y[:, :2, :3], groups=2),
    ),
    lambda x, y, i: (
        F.conv2d(x[None], y[:, :2, :3, None], padding="valid", dilation=(1, 2)),
        F.conv3d(x[None, None], y[None, None, :, :2, :3]),
    ),
    lambda x, y, i: (
        F.conv_transpose1d(x, y[0, :, None, :3].expand(4, 2, 3), x[0, :2, 0], stride=2, padding=1, output_padding=1),
        F.conv_transpose2d(x[None], y[:, :, :3, None], stride=(2, 1), dilation=(1, 2)),
        F.conv_transpose2d(x[:1, :, :, None], y[0, :, :3, None, None], padding=(1, 0), groups=2),
        F.conv_transpose3d(x[None, None], y[None, None, :, :2, :3], stride=(1, 2, 3)),
    ),
    lambda x, y, i: aten.convolution(x, y[:, :, :2], None, [1], [0], [1], False, [0], 1),
    lambda x, y, i: (
        F.max_pool1d(x, 2),
        F.max_pool2d(x[None], 2, 1, padding=1),
        F.max_pool2d(x[None], (2, 3), ceil_mode=True),
    ),
    lambda x, y, i: (
        F.avg_pool1d(x, 3, padding=1),
        F.avg_pool2d(x[None], 2, 1, padding=1),
        F.avg_pool2d(x[None], 2, padding=1, count_include_pad=False),
    ),
    lambda x, y, i: (
        *(F.max_pool2d(x, 2, return_indices=True), F.max_pool3d(x[None], (1, 2, 3), stride=1, return_indices=True)),
        *(F.max_pool3d(x[None, None], 2, padding=1), F.avg_pool3d(x[None, None], 2), F.avg_pool1d(x[0], 2)),
        *(F.avg_pool2d(x[None], 2, divisor_override=3), F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)),
        F.max_unpool3d(*F.max_pool3d(x[None], (1, 2, 2), return_indices=True), (1, 2, 2)),
    ),
    lambda x, y, i: (
        *(F.adaptive_avg_pool1d(x, 4), F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_avg_pool3d(x[None], (1, 3, None))),
        *(F.adaptive_avg_pool3d(x[None, None], (1, 2, 4)), aten._adaptive_avg_pool3d(x[None], [2, 1, 1])),
        *(F.adaptive_max_pool1d(x, 4), F.adaptive_max_pool2d(x, (3, 4)), F.adaptive_max_pool3d(x[None], (1, 3, None))),
        F.dropout(x, 0.3, training=False),
        aten.native_dropout(x, 0.3, False)[0],
    ),
    lambda x, y, i: (
        F.adaptive_avg_pool2d(x[None], 1),
        F.adaptive_avg_pool2d(x[None], (2, 3)),
        F.adaptive_avg_pool2d(x[None], (None, 2)),
    ),
    lambda x, y, i: (
        F.scaled_dot_product_attention(x, y, y),
        F.scaled_dot_product_attention(x, y, x, is_causal=True, scale=0.3),
    ),
    lambda x, y, i: F.scaled_dot_product_attention(
        x, y, y, attn_mask=torch.ones(4, 4, dtype=torch.bool).tril() & (x[0, :, :4] < 9)
    ),
    lambda x, y, i: F.scaled_dot_product_attention(x, y, y, attn_mask=x[:, :, :4]),
    lambda x, y, i: (  # the first query may look nowhere
        F.scaled_dot_product_attention(x, y, y, attn_mask=torch.ones(4, 4, dtype=torch.bool).tril(-1)),
        F.scaled_dot_product_attention(x, y, y, attn_mask=torch.full((4, 4), -torch.inf).triu()),
    ),
    lambda x, y, i: F.scaled_dot_product_attention(
        x.view(1, 4, 2, 6), y.view(1, 2, 4, 6)[..., :2, :], y.view(1, 2, 4, 6)[:, :, :2], enable_gqa=True
    ),
]

FAMILIES = {"elementwise": ELEMENTWISE, "reductions": REDUCTIONS, "shapes": SHAPES, "layers": LAYERS}


class Family(torch.nn.Module):
    """One model with all cases of a family."""

    def __init__(self, name: str):
        super().__init__()
        self.cases = FAMILIES[name]

    def forward(self, x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        return outputs([case(x, y, i) for case in self.cases])


def inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(3)
    return torch.randn(2, 4, 6), torch.randn(2, 4, 6), torch.randint(-2, 4, (3, 4))


@pytest.fixture(scope="module")
def programs() -> dict[str, torch.export.ExportedProgram]:
    return {name: decomposed(torch.export.export(Family(name), inputs())) for name in FAMILIES}


@pytest.mark.parametrize("name", FAMILIES)
def test_family(programs: dict[str, torch.export.ExportedProgram], name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(graph, "MOST_KNOWN", -1)  # so that rows without inputs are met
    got = build(from_exported_program(programs[name]).mod, num_threads=1)["main"](*inputs())
    compare(got, Family(name)(*inputs()), 1e-5)


SIZES = {name for name in ROWS if name.startswith(("operator.", "sym_"))}
"""Met in models of symbolic sizes."""


def test_every_row_is_met(programs: dict[str, torch.export.ExportedProgram]):
    nodes = [node for program in programs.values() for node in program.graph.nodes if node.op == "call_function"]
    met = {key for node in nodes for key in keys_of(operator_name(node))}
    assert set(ROWS) - met - SIZES == set()
