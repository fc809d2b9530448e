import numpy as np
import pytest

from mlc_compiler.interp import run_function
from mlc_compiler.ir.expr import Var as Symbol
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.passes.legalize import Legalize
from mlc_compiler.relax import ops
from mlc_compiler.relax.builder import BlockBuilder, BuilderError, tensor_var
from mlc_compiler.relax.info import StructInfoError, get_item, make_tuple, prim_value, shape_of, tensor_info
from mlc_compiler.relax.nodes import Call, TupleStructInfo, Var, constant
from mlc_compiler.script import parse, script
from mlc_compiler.tir import te
from mlc_compiler.tir.nodes import PrimFunc
from mlc_errors import MLCError


def build(params, body):
    """A module whose ``main`` returns ``body(builder, *params)``."""
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(builder, *params))
        builder.emit_func_output(result)
    mod = builder.get()
    assert first_difference(parse(script(mod)), mod) is None
    return mod


def tensor(name, *shape, dtype="float32"):
    return Var(name, tensor_info(shape, dtype))


def test_nested_calls_get_bindings_of_their_own():
    mod = build([tensor("x", 3)], lambda _, x: ops.add(ops.exp(x), ops.multiply(x, 2.0)))
    values = [b.value for b in mod["main"].bindings]
    assert [v.target.name for v in values if isinstance(v, Call)] == ["exp", "multiply", "add"]
    assert np.allclose(run_function(mod, "main", np.ones(3, np.float32)), np.e + 2)


def test_names_are_unique_within_a_function():
    def body(b, x):
        for _ in range(3):
            x = b.emit(ops.negative(x), "x")
        return x

    names = [b.var.name for b in build([tensor("x", 3)], body)["main"].bindings]
    assert names == ["x1", "x2", "x3", "gv"]


def test_output_is_needed():
    builder = BlockBuilder()
    with pytest.raises(BuilderError, match="function main: no output"), builder.function("main", []):
        pass
    with pytest.raises(BuilderError, match="no function is being built"):
        BlockBuilder.current()


def doubled(x):
    return te.compute(x.shape, lambda *i: x[i] * 2.0, name="doubled")


def test_emit_te_shares_equal_functions():
    def body(b, x, y):
        return ops.add(b.emit_te(doubled, x), b.emit_te(doubled, b.emit_te(doubled, y)))

    n = Symbol("n")
    mod = build([tensor("x", n, 3), tensor("y", n, 3)], body)
    assert list(mod.of_type(PrimFunc)) == ["doubled"]
    x, y = np.ones((2, 3), np.float32), np.full((2, 3), 3, np.float32)
    assert np.array_equal(run_function(mod, "main", x, y), 2 * x + 4 * y)


def test_emit_te_has_symbolic_sizes_of_its_own():
    n = Symbol("n")
    mod = build([tensor("x", n, 3)], lambda b, x: b.emit_te(doubled, x))
    (func,) = mod.of_type(PrimFunc).values()
    assert func.buffers[0].shape[0].name == "n"
    assert func.buffers[0].shape[0] is not n
    assert shape_of(mod["main"].ret)[0] is n


def test_emit_te_passes_scalars_that_are_no_sizes():
    def shifted(x, by):
        return te.compute(x.shape, lambda i: x[i] + te.f32(by), name="shifted")

    offset = Symbol("offset")
    size = Var("offset", prim_value(offset).struct_info)
    mod = build([tensor("x", 3), size], lambda b, x, _: b.emit_te(shifted, x, offset * 2))
    (func,) = mod.of_type(PrimFunc).values()
    assert [getattr(p, "name", "") for p in func.params] == ["x", "shifted", "offset"]
    assert np.array_equal(run_function(mod, "main", np.zeros(3, np.float32), 4), np.full(3, 8))


def test_emit_te_with_several_results():
    def both(x):
        negated = te.compute(x.shape, lambda *i: -x[i], name="negated")
        return doubled(x), negated

    def body(b, x):
        return make_tuple(b.split_tuple(b.emit_te(both, x)))

    mod = build([tensor("x", 2)], body)
    got = run_function(mod, "main", np.array([1, 2], np.float32))
    assert [list(a) for a in got] == [[2, 4], [-1, -2]]


def test_concat_of_a_tuple_parameter():
    info = TupleStructInfo((tensor_info((2,), "float32"), tensor_info((3,), "float32")))
    mod = Legalize().run(build([Var("pair", info)], lambda _, pair: ops.concat(pair)))
    a, b = np.arange(2, dtype=np.float32), np.arange(3, dtype=np.float32)
    assert np.array_equal(run_function(mod, "main", (a, b)), np.concatenate([a, b]))


def test_legalize_shares_functions_between_calls_and_functions():
    builder = BlockBuilder()
    for name in ("first", "second"):
        x = tensor("x", Symbol("n"), 4)
        with builder.function(name, [x]):
            with builder.dataflow():
                y = builder.emit(ops.silu(builder.emit(ops.silu(x))))
                out = builder.emit_output(ops.permute_dims(y))
            builder.emit_func_output(out)
    mod = Legalize().run(builder.get())
    assert list(mod.of_type(PrimFunc)) == ["silu", "permute_dims"]
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert np.array_equal(run_function(mod, "first", x), run_function(mod, "second", x))


def test_legalize_keeps_views():
    mod = Legalize().run(build([tensor("x", 2, 6)], lambda _, x: ops.reshape(x, (3, 4))))
    assert [b.value.target.name for b in mod["main"].bindings if isinstance(b.value, Call)] == ["reshape"]


def test_legalize_leaves_no_other_operators():
    def body(b, x):
        parts = b.split_tuple(b.emit(ops.split(x, indices_or_sections=2, axis=-1), "split"))
        return ops.concat(list(parts), axis=0)

    mod = Legalize().run(build([tensor("x", 2, 6)], body))
    targets = {b.value.target.name for b in mod["main"].bindings if isinstance(b.value, Call)}
    assert targets == {"call_tir"}
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert np.array_equal(run_function(mod, "main", x), np.concatenate([x[:, :3], x[:, 3:]]))


def test_item_of_a_tuple():
    pair = make_tuple([tensor("a", 2), tensor("b", 3)])
    assert get_item(pair, 1) is pair.fields[1]
    with pytest.raises(StructInfoError, match="expected a tuple"):
        get_item(tensor("a", 2), 0)


def test_invalid_tensor_descriptions():
    with pytest.raises(StructInfoError, match="unknown dtype 'floaty'"):
        tensor_var("x", (2, 3), "floaty")
    with pytest.raises(StructInfoError, match="expected a scalar expression or number, got str: 'n'"):
        tensor_var("x", ("n", 3))
    n = te.var("n")
    assert shape_of(tensor_var("x", (n, 3)))[0] is n
    with pytest.raises(MLCError, match="constant: got list; expected a numpy array of a known dtype"):
        constant([1.0, 2.0])
    with pytest.raises(MLCError, match="constant: got <U3"):
        constant(np.array(["abc"]))
