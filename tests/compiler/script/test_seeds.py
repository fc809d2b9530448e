"""TVMScript printed by old and new versions of Apache TVM: it parses, round-trips and gives the expected IR."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlc_compiler.ir.expr import IntImm
from mlc_compiler.ir.structural import first_difference, structural_equal
from mlc_compiler.relax.nodes import Call, ExternFunc, Op, TensorStructInfo, TupleGetItem
from mlc_compiler.script import ScriptError, parse, script
from tests.compiler.script.round_trip import check_round_trip

SEEDS = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "seeds").glob("*.txt"))}
PARAMETERS = [np.zeros(shape, "float32") for shape in ((128, 784), (128,), (10, 128), (10,))]


@pytest.mark.parametrize("name", SEEDS)
def test_parses_and_round_trips(name: str) -> None:
    check_round_trip(parse(SEEDS[name], PARAMETERS))


def test_axis_forms_and_omitted_regions_are_equal() -> None:
    assert first_difference(parse(SEEDS["mm_relu"]), parse(SEEDS["mm_relu_printed"])) is None


def test_a_different_schedule_is_a_different_function() -> None:
    assert not structural_equal(parse(SEEDS["mm_relu"]), parse(SEEDS["mm_relu_split"]))


def test_printed_like_apache_tvm() -> None:
    text, original = script(parse(SEEDS["mm_relu_printed"])), SEEDS["mm_relu_printed"]
    loops = "    for i, j, k in T.grid(128, 128, 128):"
    assert text[text.index(loops) :] == original[original.index(loops) :].replace("T.float32(0)", "T.float32(0.0)")
    assert '    Y = T.alloc_buffer((128, 128), "float32")\n' in text


def test_old_call_tir_by_name_is_a_call_of_a_registered_function() -> None:
    main = parse(SEEDS["mlp_mixture"])["main"]
    first, second, _ = (b.value for b in main.bindings)
    assert isinstance(first, Call) and isinstance(first.target, Op) and first.target.name == "call_tir"
    assert second.target.name == "call_dps_packed"
    assert isinstance(second.args[0], ExternFunc) and second.args[0].name == "env.relu"
    assert [s.value for s in second.out_info.shape] == [1, 128]


def test_only_outputs_are_visible_after_a_dataflow_block() -> None:
    main = parse(SEEDS["two_dataflow_blocks"])["main"]
    assert [b.dataflow for b in main.blocks] == [True, False, True]
    assert [[v.name for v in b.outputs] for b in main.blocks] == [["gv0"], [], ["out"]]
    text = SEEDS["two_dataflow_blocks"].replace('R.alloc_tensor((1, 128), dtype="float32")', "R.exp(lv0)")
    with pytest.raises(ScriptError, match="'lv0' is visible only inside its dataflow block"):
        parse(text)


def test_a_returned_variable_of_a_dataflow_block_is_one_of_its_outputs():
    main = parse(SEEDS["high_level"].replace("return gv", "return lv4"), PARAMETERS)["main"]
    assert [v.name for v in main.blocks[0].outputs] == ["lv4", "gv"]
    assert main.ret is main.blocks[0].outputs[0]


def test_constants_come_from_the_list_beside_the_text() -> None:
    main = parse(SEEDS["bound_parameters"], PARAMETERS)["main"]
    assert main.bindings[2].value.args[1].fields[1].data is PARAMETERS[2]
    with pytest.raises(ScriptError, match="constant 0 is not given; got 0 constants"):
        parse(SEEDS["bound_parameters"])


def test_newest_dialect() -> None:
    mod = parse(SEEDS["newest"])
    func, main = mod["matmul"], mod["forward"]
    assert func.attrs == {"tir.noalias": True}
    rows, columns = func.params[2].shape
    assert (rows.name, columns.name) == ("b", "v")
    assert func.params[0].shape[0] is rows and isinstance(func.params[0].shape[1], IntImm)
    assert main.params[0].struct_info.shape[0] is not rows
    assert main.attrs == {"global_symbol": "forward", "num_input": 1}


def test_packed_parameters() -> None:
    main = parse(SEEDS["packed_parameters"])["prefill"]
    seq_len = main.params[0].struct_info.shape[1]
    assert main.ret_info.fields[0].shape[1] is seq_len
    item = main.bindings[1].value
    assert isinstance(item, TupleGetItem) and item.index == 1
    assert isinstance(item.struct_info, TensorStructInfo) and item.struct_info.shape[0].value == 2560
