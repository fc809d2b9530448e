"""The notes of the course on machine learning compilation: the code runs as printed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mlc_compiler import build, parse
from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.ir.visitor import walk
from mlc_compiler.relax.nodes import Constant
from mlc_runtime.arrays import tvm_ffi
from tests.seeds.notebook import Ran, run

SHOWN = SimpleNamespace(display=SimpleNamespace(Code=lambda text, language: text, HTML=lambda text: text))
HEADER = "from tvm.script import tir as T, relax as R\n"
BOUND = ("bind", "run bound")
STEPS = ("split", "reorder", "reverse compute at", "decompose reduction")
FUNCTIONS = ("matmul function", "fused function", "function with the intermediate value")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    folder = tmp_path_factory.mktemp("tune")
    few = {"trials_global=64": "trials_global=2", "trials_per_iter=64": "trials_per_iter=2", "./tune_tmp": str(folder)}
    yield run("mlc_course", given={"IPython": SHOWN}, replaced=few)
    for name in ("env.linear", "env.relu"):
        tvm_ffi.remove_global_func(name)


def expected(ran: Ran) -> np.ndarray:
    """The perceptron's result for the data, computed by torch."""
    x = torch.from_numpy(ran.after["arrays"]["img"].reshape(1, 784))
    return ran.after["weights of the torch mlp"]["mlp_model"](x).detach().numpy()


def constants(mod: IRModule) -> list[np.ndarray]:
    """The constants of a module's graph functions, in order."""
    return [node.data for node in walk(mod["main"].blocks) if isinstance(node, Constant)]


def shown(ran: Ran, title: str, arrays: list[np.ndarray]) -> IRModule:
    """The module that the document shows under a title."""
    return parse(HEADER + ran.shown(f"{title} shown"), arrays)


def test_all_cells_run_but_fragments(ran: Ran):
    assert ran.counts() == {"run": 46, "fragment": 7, "tabulate": 1}


def test_numpy_defines_mm_relu(ran: Ran):
    names = ran.after["run mm_relu"]
    small = np.empty((128, 128), np.float32)
    ran.after["numpy mm_relu"]["lnumpy_mm_relu"](names["a_np"], names["b_np"], small)
    np.testing.assert_allclose(small, names["c_nd"], rtol=1e-4)


def test_both_spellings_of_the_axes_are_one_module(ran: Ran):
    assert first_difference(ran.after["mm_relu"]["MyModule"], ran.after["original module"]["Module"]) is None


@pytest.mark.parametrize("title", STEPS)
def test_schedule_steps_give_the_printed_modules(title: str):
    ran = run("mlc_course", up_to=title)
    assert first_difference(ran.after[title]["sch"].mod, shown(ran, title, [])) is None


def test_times_are_printed(ran: Ran):
    before, after = ran.output["time"].splitlines()
    assert 0 < float(before.removeprefix("Time cost of MyModule ").removesuffix(" sec")) < 1
    assert 0 < float(after.removeprefix("Time cost of transformed sch.mod ").removesuffix(" sec")) < 1


def test_tensor_expressions_give_the_printed_module(ran: Ran):
    made = ran.after["module of tensor expressions"]["MyModuleFromTE"]
    assert first_difference(without_outputs(made), shown(ran, "module of tensor expressions", [])) is None


@pytest.mark.parametrize("title", FUNCTIONS)
def test_tensor_functions_print_as_shown(ran: Ran, title: str):
    printed, document = parse(ran.output[title])["main"], shown(ran, title, [])["main"]
    assert "import" in ran.output[title].splitlines()[0]
    assert first_difference(printed.body, document.body) is None
    assert [b.name for b in printed.buffers] == [b.name for b in document.buffers]


@pytest.mark.parametrize("title", ["run mlp", "run extern", "run bound"])
def test_the_perceptron_computes_what_torch_does(ran: Ran, title: str):
    np.testing.assert_allclose(ran.after[title]["nd_res"], expected(ran), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("title", "name"), [("run extern", "MyModuleWithExternCall"), ("run bound", "MyModuleWithParams")]
)
def test_predictions_are_printed(ran: Ran, title: str, name: str):
    best = ran.after["data set"]["class_names"][int(expected(ran).argmax())]
    assert ran.output[title] == f"{name} Prediction: {best}\n"


def test_binding_parameters_gives_the_printed_module(ran: Ran):
    bound = ran.after["bind"]["MyModuleWithParams"]
    arrays = [ran.after["arrays"]["mlp_params"][name] for name in ("w0", "b0", "w1", "b1")]
    document = shown(ran, "bind", arrays)
    for part in ("params", "blocks", "ret"):
        assert first_difference(getattr(bound["main"], part), getattr(document["main"], part)) is None
    assert first_difference(bound["linear0"], document["linear0"]) is None


def test_a_search_prints_each_attempt_and_keeps_one(ran: Ran):
    attempts = ran.output["random search"].split("=====Attempt ")[1:]
    assert [attempt.partition(",")[0] for attempt in attempts] == list("01234")
    traces = [attempt.partition("====\n")[2] for attempt in attempts]
    assert all("sch.sample_perfect_tile(l2, n=2, decision=[" in trace for trace in traces)
    assert f"{ran.after['random search']['sch'].trace}\n" in traces


@pytest.mark.parametrize(("title", "name"), [("tune", "sch_tuned"), ("tune by itself", "sch_tuned")])
def test_a_searched_schedule_computes_the_product(ran: Ran, title: str, name: str):
    sch, names = ran.after[title][name], ran.after["random search"]
    a, b, c = names["a_nd"], names["b_nd"], np.zeros((128, 128), np.float32)
    build(sch.mod)["main"](a, b, c)
    np.testing.assert_allclose(c, a.numpy() @ b.numpy(), rtol=1e-4)
    assert len(sch.trace.decisions) > 0


def test_a_function_is_replaced_in_place(ran: Ran):
    changed = ran.after["replace linear0"]["MyModuleWithParams2"]
    assert first_difference(changed["linear0"].body, ran.after["mixture"]["MyModuleMixture"]["linear0"].body)
    data = ran.after["arrays"]["data_nd"]
    np.testing.assert_allclose(build(changed)["main"](data), expected(ran), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("title", ["block builder", "translate functions", "translate to operators"])
def test_built_modules_are_the_printed_ones(ran: Ran, title: str):
    names = {"translate to operators": "MLPModuleHighLevel"}
    built = ran.after[title][names.get(title, "MyModule")]
    document = shown(ran, title, constants(built))
    assert sorted(built) == sorted(document)
    for part in ("params", "blocks", "ret"):
        assert first_difference(getattr(built["main"], part), getattr(document["main"], part)) is None
    for name in set(built) - {"main"}:
        assert first_difference(built[name].body, document[name].body) is None


def test_translated_functions_compute_what_torch_does(ran: Ran):
    names = ran.after["translate functions"]
    x = np.random.default_rng(5).normal(0, 1, (1, 128)).astype(np.float32)
    reference = names["model"](torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(build(names["MyModule"])["main"](x), reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["MLPModule", "MLPModuleHighLevel"])
def test_translated_modules_compute_what_torch_does(ran: Ran, name: str):
    data = ran.after["arrays"]["data_nd"]
    got = build(ran.after["translate to operators"][name])["main"](data)
    np.testing.assert_allclose(got, expected(ran), rtol=1e-4, atol=1e-5)


def without_outputs(mod: IRModule) -> IRModule:
    """The module without an attribute that this compiler adds to tensor functions."""
    return mod.with_functions({name: f.without_attr("num_outputs") for name, f in mod.functions.items()})
