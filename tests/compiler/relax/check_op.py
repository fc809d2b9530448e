"""Runs one operator on arrays: the module is printed, parsed, legalized and interpreted."""

import numpy as np

from mlc_compiler.interp import run_function
from mlc_compiler.ir.expr import Var as Symbol
from mlc_compiler.ir.structural import first_difference
from mlc_compiler.passes.legalize import Legalize
from mlc_compiler.relax.builder import BlockBuilder
from mlc_compiler.relax.info import tensor_info
from mlc_compiler.relax.nodes import Var
from mlc_compiler.relax.ops import get_operator
from mlc_compiler.script import parse, script


def graph_of(name, args, attrs=None, symbolic=()):
    """A module whose ``main`` applies an operator to its parameters; arguments other than arrays are constants.

    symbolic: sizes that become symbolic wherever an array has them.
    """
    sizes = {size: Symbol(f"n{size}") for size in symbolic}

    def parameter(array):
        shape = [sizes.get(s, s) for s in array.shape]
        params.append(Var(f"x{len(params)}", tensor_info(shape, str(array.dtype))))
        return params[-1]

    def value(arg):
        if isinstance(arg, np.ndarray):
            return parameter(arg)
        return [value(a) for a in arg] if isinstance(arg, list) else arg

    params = []
    call = get_operator(name)(*map(value, args), **(attrs or {}))
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return builder.get()


def arrays_in(args):
    """Copies of the arrays among arguments: operators may write in place."""
    given = [a for arg in args for a in (arg if isinstance(arg, list) else [arg])]
    return [a.copy() for a in given if isinstance(a, np.ndarray)]


def run_op(name, *args, symbolic=(), **attrs):
    """The result of an operator for arrays, lists of arrays, numbers, and shapes as tuples."""
    mod = Legalize().run(graph_of(name, args, attrs, symbolic))
    assert first_difference(parse(script(mod)), mod) is None
    return run_function(mod, "main", *(a.copy() for a in arrays_in(args)))


def check_op(name, *args, reference, tolerance=1e-6, symbolic=(), **attrs):
    """Assert that the operator gives ``reference(*args)``: shape, dtype, and values within a relative tolerance."""
    got = run_op(name, *args, symbolic=symbolic, **attrs)
    wanted = reference(*args)
    got, wanted = (x if isinstance(x, tuple) else (x,) for x in (got, wanted))
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=tolerance, atol=tolerance)
