from mlc_compiler.ir.module import IRModule
from mlc_compiler.ir.structural import structural_equal
from mlc_compiler.pipeline import pipeline, run_passes
from mlc_compiler.script import parse
from mlc_compiler.target import Target
from tests.model_zoo.lowered_once import lowered_once

MODULE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def {name}(x: T.Buffer(({size},), "float32"), y: T.Buffer(({size},), "float32")):
        for i in range({size}):
            with T.block("y"):
                v = T.axis.spatial({size}, i)
                y[v] = x[v] + T.float32({term})
"""


def lowered(name: str, size: int, term: float) -> IRModule:
    return run_passes(parse(MODULE.format(name=name, size=size, term=term)), pipeline(Target("cpu")))


def test_equal_functions_are_lowered_once_and_others_by_themselves():
    plain = lowered("f", 100, 1.0), lowered("g", 100, 2.0)
    with lowered_once():
        first, same, other = lowered("f", 100, 1.0), lowered("g", 100, 1.0), lowered("g", 100, 2.0)
    assert same.functions["g"] is first.functions["f"]
    assert structural_equal(first, plain[0])
    assert structural_equal(other, plain[1])
