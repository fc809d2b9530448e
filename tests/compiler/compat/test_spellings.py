"""Apache TVM's names: their behaviour here, and unsupported uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlc_compiler.compat as tvm
from mlc_compiler import parse
from mlc_compiler.compat import dlight, nn, relax, te, topi
from mlc_errors import MLCError, UnsupportedError

MODULE = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), w: R.Tensor((5, 4), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, R.permute_dims(w)))
            R.output(y)
        return y
"""
X, W = (np.random.default_rng(0).normal(0, 1, s).astype(np.float32) for s in ((3, 4), (5, 4)))
EXPECTED = np.maximum(X @ W.T, 0)


def check(mod: tvm.IRModule, **options: Any) -> None:
    """Assert that the module, built with ``options``, gives the expected result."""
    result = relax.VirtualMachine(relax.build(mod, "llvm", **options), tvm.cpu())["main"](tvm.nd.array(X), W)
    assert type(result.numpy()) is np.ndarray
    np.testing.assert_allclose(result.numpy(), EXPECTED, rtol=1e-5, atol=1e-6)


def test_arrays():
    array = tvm.nd.array([[1, 2], [3, 4]], tvm.cpu())
    copy = array.numpy()
    copy[0, 0] = 9
    assert array.numpy().tolist() == [[1, 2], [3, 4]]
    assert tvm.nd.empty((2, 3), "float16").dtype == np.float16


def test_devices():
    assert tvm.device("cuda:1") == tvm.cuda(1) and tvm.device("llvm", 0) == tvm.cpu()
    assert tvm.target.Target.from_device(tvm.cpu()).kind == "cpu"
    lib = tvm.build(parse(MODULE), "llvm --num-cores=1")
    assert lib.library.default_num_threads == 1
    assert lib.time_evaluator("main", tvm.cpu(), number=2, repeat=3)(X, W).results[2] > 0
    for use in (lambda: relax.VirtualMachine(lib.library, tvm.cuda()), lambda: lib.time_evaluator("main", tvm.cuda())):
        with pytest.raises(UnsupportedError, match="device: got cuda:0; the library runs on cpu:0"):
            use()


def test_modes_of_rotation_are_numbers():
    assert [int(mode) for mode in (nn.RopeMode.NONE, nn.RopeMode.NORMAL, nn.RopeMode.INLINE)] == [0, 1, 2]
    sizes = dict.fromkeys(
        ("max_batch_size", "max_total_seq_len", "prefill_chunk_size", "page_size"), te.const(16, "int64")
    )
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    rope = {
        "rope_scale": 1,
        "rope_theta": 1e4,
        "rope_scaling": {},
        "rope_ext_factors": relax.PrimValue(0),
        "rotary_dim": 8,
    }
    others = {
        "support_sliding_window": 0,
        "layer_partition": relax.ShapeExpr([0, 2]),
        "dtype": "float32",
        "target": None,
    }
    with pytest.raises(UnsupportedError, match="TIRPagedKVCache: rope_mode is 3; expected 0, 1 or 2"):
        nn.TIRPagedKVCache(**sizes, **heads, **rope, **others, rope_mode=3)


def test_a_class_becomes_passes_with_its_arguments() -> None:
    @tvm.transform.module_pass(opt_level=0, name="Tag")
    class Tag:
        def __init__(self, value: str):
            self.value = value

        def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
            return mod.with_attr("tag", self.value)

    assert Tag("one").info.name == "Tag"
    tagged = tvm.transform.Sequential([Tag("one"), Tag(value="two")])(parse(MODULE))
    assert tagged.attrs["tag"] == "two"


@pytest.mark.parametrize(
    "name", ["FuseTransposeMatmul", "EliminateCommonSubexpr", "LegalizeOps", "DeadCodeElimination"]
)
def test_passes_of_the_compiler(name: str):
    mod = getattr(relax.transform, name)()(parse(MODULE))
    assert ("R.linear" in mod.script()) == (name == "FuseTransposeMatmul")
    assert ("T.prim_func" in mod.script()) == (name == "LegalizeOps")
    check(mod)


def test_the_default_pipeline_fuses_and_the_module_still_builds():
    mod = relax.get_pipeline()(parse(MODULE))
    assert mod["main"].script().count("R.call_tir") == len(mod["main"].bindings) > 0
    check(mod)
    check(parse(MODULE), pipeline=relax.get_pipeline("zero"))


def test_contexts_choose_and_observe_passes():
    ran: list[tuple[str, bool]] = []

    class Observer:
        def run_before_pass(self, mod: tvm.IRModule, info: Any) -> None:
            ran.append((info.name, "T.prim_func" in mod.script()))

    @tvm.transform.module_pass(opt_level=3, name="costly")
    def costly(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        return mod

    seq = tvm.transform.Sequential([relax.transform.LegalizeOps(), costly, relax.transform.FoldConstant()])
    with tvm.transform.PassContext(opt_level=2, instruments=[Observer()], disabled_pass=["FoldConstant"]):
        seq(parse(MODULE))
    assert ran == [("sequential", False), ("LegalizeOps", False)]
    ran.clear()
    with tvm.transform.PassContext(opt_level=3, instruments=[Observer()]):
        seq(parse(MODULE))
    assert [name for name, _ in ran] == ["sequential", "LegalizeOps", "costly", "FoldConstant"] and ran[-1][1]


def test_passes_of_a_virtual_machine_leave_the_module():
    mod = parse(MODULE)
    rules = dlight.ApplyDefaultSchedule(dlight.gpu.Matmul(), dlight.cpu.GEMV())
    for step in (relax.transform.VMShapeLower(), tvm.tir.transform.DefaultGPUSchedule(), rules):
        assert step(mod) is mod


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: relax.get_pipeline("none"), "no pipeline 'none'; there are zero"),
        (lambda: relax.register_pipeline("zero")(lambda: None), "'zero' is registered already"),
        (lambda: tvm.transform.module_pass(lambda mod, _: None, name="bad")(parse(MODULE)), "pass bad: got a NoneType"),
        (lambda: relax.transform.AttachExternModules([object()]), "got object; expected nn.ExternModule"),
        (lambda: nn.ObjectModule({}, "f.so"), "the object file is f.so; expected a name that ends in .o"),
        (lambda: nn.RMSNorm(8, 0), "axes is 0; expected -1"),
        (lambda: relax.Var("x", (1, 2), relax.DynTensorType(3)), "variable x: got 2 sizes; its type has 3 axes"),
        (lambda: tvm.get_global_func("no.such.function"), "no function 'no.such.function' is registered"),
    ],
)
def test_refusals(use: Any, message: str):
    with pytest.raises(MLCError, match=message):
        use()


def test_unknown_names():
    assert tvm.get_global_func("no.such.function", allow_missing=True) is None
    with pytest.raises(AttributeError, match="has no pass 'NoSuchPass'"):
        relax.transform.NoSuchPass()


def test_norms_with_a_bias():
    class Net(nn.Module):
        def __init__(self):
            self.norm = nn.RMSNorm(4, -1, 1e-6)

        def forward(self, x):
            return self.norm(x)

    mod, named_params = Net().export_tvm({"forward": {"x": nn.spec.Tensor([3, 4]), "$": {"param_mode": "plain"}}})
    assert [name for name, _ in named_params] == ["norm.weight", "norm.bias"]
    weight, bias = W[:2].copy()
    expected = X / np.sqrt((X**2).mean(1, keepdims=True) + 1e-6) * weight + bias
    np.testing.assert_allclose(tvm.build(mod)["forward"](X, weight, bias), expected, rtol=1e-5, atol=1e-6)


def test_expressions_of_operators():
    x, w = (relax.Var(n, a.shape) for n, a in (("x", X), ("w", W)))
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w]):
        bb.emit_func_output(bb.emit_te(topi.nn.relu, bb.emit_te(topi.nn.dense, x, w)))
    check(bb.get())
