"""Invalid modules: the parser or the verifier raises an error that names the function and the statement."""

from __future__ import annotations

import pytest

from mlc_compiler import build
from mlc_compiler.codegen.arithmetic import CodegenError
from mlc_compiler.script import ScriptError, parse
from mlc_compiler.verifier import VerifyError, verify

KERNEL = """
@T.prim_func
def kernel(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), n: T.int64):
"""
BLOCK = """
    for i in range(8):
        with T.block("copy"):
            v = T.axis.spatial(8, i)
"""
INSIDE = {
    "A[n]": None,
    "A[T.min(n, 9)]": None,
    "A[8]": "axis 0 of 'A' ends before its size; got an index of 8",
    "A[n - n - 1]": "axis 0 of 'A' starts at 0; got an index of -1",
    "A[T.int64(A[9])]": "axis 0 of 'A' ends before its size; got an index of 9",
    "T.if_then_else(n < 8, A[n + 8 - n], T.float32(0))": None,
    "T.Select(A[8] < T.float32(0), A[0], A[1])": "axis 0 of 'A' ends before its size; got an index of 8",
}
LOOPS = {
    "for i in range(8):\n        B[i] = A[7 - i]": None,
    "for i in range(8):\n        B[i] = A[i + 1]": "axis 0 of 'A' ends before its size; got an index of 8",
    "for i in range(8):\n        B[i] = A[6 - i]": "axis 0 of 'A' starts at 0; got an index of -1",
    "for i, j in T.grid(3, 3):\n        B[i * 3 + j] = A[0]": "'B' ends before its size; got an index of 8",
    "for i, j in T.grid(n, 9):\n        B[j] = A[0]": "axis 0 of 'B' ends before its size; got an index of 8",
    "for i in range(9):\n        if i < 8:\n            B[i] = A[i]": None,
    "for i in range(0):\n        B[9] = A[9]": None,
    "for i in range(n):\n        B[i] = A[i]": None,
    "for i in range(24):\n        B[i // 3 * 3 + i % 3 - 16] = A[0]": "'B' starts at 0; got an index of -16",
    "for i in range(24):\n        B[i // 3] = A[i // 3 * 3 + i % 3]": "'A' ends before its size; got an index of 23",
    "for i in range(64):\n        B[i // 8] = A[i % 8]": None,
    "for i in range(T.max(n, 1)):\n        B[i - 1] = A[0]": "axis 0 of 'B' starts at 0; got an index of -1",
    "with T.LetStmt(T.int64(A[0])) as k:\n        B[k] = A[k + 9]": None,
    "with T.LetStmt(T.int64(A[0])) as k:\n        B[k - k + 8] = A[k]": "'B' ends before its size; got an index of 8",
    "with T.LetStmt(T.int64(A[0])) as k:\n        for i in range(k):\n            B[i - 1] = 0.0": "index of -1",
    "with T.LetStmt(n + 8) as k:\n        B[k - n] = A[0]": "axis 0 of 'B' ends before its size; got an index of 8",
    "C = T.alloc_buffer((n,))\n    for i in range(n):\n        C[i + 1] = A[0]": "got an index of its size or more",
}
BLOCKS = {
    "T.reads(A[v])\n            T.writes(B[v])\n            B[v] = A[v]": None,
    "T.reads(A[0:8])\n            T.writes(B[v])\n            B[v] = A[v]": None,
    "T.reads(A[0:4], A[4:8])\n            T.writes(B[v])\n            B[v] = A[v]": None,
    "T.reads()\n            T.writes(B[v])\n            B[v] = A[v]": "block 'copy' reads more of 'A' than its T.reads",
    "T.reads(A[v])\n            T.writes(A[v])\n            B[v] = A[v]": "block 'copy' writes more of 'B'",
    "T.reads(A[0])\n            T.writes(B[v])\n            B[v] = A[v]": "block 'copy' reads more of 'A'",
    "T.reads(A[v])\n            T.writes(B[0:7])\n            B[v] = A[v]": "block 'copy' writes more of 'B'",
    "T.reads(A[v])\n            T.writes(B[v])\n            B[v] = A[(v + 1) % 8]": None,
    "T.reads(A[v])\n            T.writes(B[v])\n            if v < 7:\n                B[v] = A[v + 1]": None,
    "w = T.axis.spatial(4, i)\n            B[v] = A[w]": "block variable 'w' ends before its size; got an index of 7",
    "w = T.axis.spatial(4, i)\n            T.where(i < 4)\n            B[v] = A[w]": None,
}
KERNELS = {KERNEL + f"    B[0] = {value}\n": message for value, message in INSIDE.items()}
KERNELS |= {KERNEL + f"    {loop}\n": message for loop, message in LOOPS.items()}
KERNELS |= {KERNEL + BLOCK + f"            {body}\n": message for body, message in BLOCKS.items()}


@pytest.mark.parametrize("text", KERNELS, ids=lambda text: text.removeprefix(KERNEL).strip())
def test_accesses(text: str) -> None:
    message = KERNELS[text]
    if message is None:
        verify(parse(text))
        return
    with pytest.raises(VerifyError) as caught:
        verify(parse(text))
    assert message in caught.value.message
    assert caught.value.where[0] == "function kernel"
    assert ("block copy" in caught.value.where) == ("T.block" in text)


MODULE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def kernel(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        T.func_attr({KERNEL_ATTRS})
        for i in range(8):
            B[i] = A[i]

    @R.function
    def main(x: R.Tensor((8,), "float32"), y: R.Tensor((4,), "float32")):
        R.func_attr({MAIN_ATTRS})
        with R.dataflow():
            z = R.call_tir(Module.kernel, (x,), out_sinfo=R.Tensor((8,), "float32"))
            R.output(z)
        return z
"""
KERNEL_ATTRIBUTES = {
    '{"layouts": {"0": T.index_map(lambda i: (i % 8,))}}': None,
    '{"layouts": {"a": 3}}': "attribute 'layouts' is {'a': 3}; expected {parameter: index map}",
    '{"layouts": 5}': "attribute 'layouts' is 5",
    '{"layouts": {"7": T.index_map(lambda i: (i,))}}': "attribute 'layouts' is {'7': T.index_map(",
    '{"layouts": {"0": T.index_map(lambda i, j: (i, j))}}': "attribute 'layouts' is {'0': T.index_map(",
    '{"num_scratch": "x"}': "attribute 'num_scratch' is 'x'; expected a number of parameters",
    '{"num_outputs": 3}': "attribute 'num_outputs' is 3; expected a number of parameters",
    '{"op_pattern": None}': "attribute 'op_pattern' is None; expected a pattern's name",
}
MAIN_ATTRIBUTES = {
    '{"num_input": 1, "tir_var_upper_bound": {"n": 4}, "tir_non_negative_var": ["n"]}': None,
    '{"num_input": 3}': "attribute 'num_input' is 3; expected a number of parameters",
    '{"tir_var_upper_bound": 3}': "attribute 'tir_var_upper_bound' is 3; expected numbers by the names of sizes",
    '{"tir_var_upper_bound": {"n": "q"}}': "attribute 'tir_var_upper_bound' is {'n': 'q'}",
    '{"tir_non_negative_var": "n"}': "attribute 'tir_non_negative_var' is 'n'; expected a list of the names",
}


def module(kernel: str = "{}", main: str = "{}") -> str:
    return MODULE.replace("{KERNEL_ATTRS}", kernel).replace("{MAIN_ATTRS}", main)


CASES = {module(kernel=attrs): ("kernel", message) for attrs, message in KERNEL_ATTRIBUTES.items()}
CASES |= {module(main=attrs): ("main", message) for attrs, message in MAIN_ATTRIBUTES.items()}


@pytest.mark.parametrize("text", CASES, ids=[*KERNEL_ATTRIBUTES, *MAIN_ATTRIBUTES])
def test_attributes(text: str) -> None:
    name, message = CASES[text]
    if message is None:
        verify(parse(text))
        return
    with pytest.raises(VerifyError) as caught:
        verify(parse(text))
    assert caught.value.message.startswith(message) and caught.value.where == (f"function {name}",)


TEXTS = {
    KERNEL + "    B[0] = T.float32(1) if A else T.float32(2)\n": ("the buffer A; index it", 4),
    KERNEL + "    if A:\n        B[0] = A[0]\n": ("the buffer A; index it", 4),
    KERNEL + "    if not A:\n        B[0] = A[0]\n": ("the buffer A; index it", 4),
    KERNEL + "    if A and n < 3:\n        B[0] = A[0]\n": ("the buffer A; index it", 4),
    KERNEL + "    B[0] = T.abs(A)\n": ("the buffer A; index it", 4),
    KERNEL + "    B[0] = -A\n": ("the buffer A; index it", 4),
    KERNEL + "    B[0] = A + T.float32(1)\n": ("the buffer A; index it", 4),
    KERNEL + '    C = T.alloc_buffer((8,), "float33")\n': ("buffer 'C': expected a dtype such as", 4),
    KERNEL + "    B[0] = C[0]\n": ("unknown name 'C'", 4),
    KERNEL + "    B[0] = T.Cast(T.int32, A[0])\n": ('expected a dtype such as "float32"', 4),
    KERNEL + '    T.func_attr({"global_symbol": 3})\n': ("global_symbol is 3; expected a name", 4),
    KERNEL + '    with T.block("b"):\n        v = T.axis.spatial(8, True)\n': ("expected an integer, got a bool", 5),
    module().replace("(x,)", "(x, 1 if x else 2)"): ("expected a scalar expression", 14),
    module().replace("Module.kernel", "Module.kernal"): ("the module has no function 'kernal'", 14),
    module().replace("return z", "return z[2]"): ("cannot take item 2", 16),
    module().replace("R.output(z)", "R.output(x)"): ("no binding of this dataflow block", 13),
    module()
    .replace("R.output(z)", "w = R.exp(z)\n            R.output(z)")
    .replace("return z", "return R.add(w, z)"): (
        "'w' is visible only inside its dataflow block",
        17,
    ),
    module().replace("def kernel", "def main"): ("the module defines 'main' twice", 11),
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: TEXTS[text][0])
def test_texts(text: str) -> None:
    message, line = TEXTS[text]
    with pytest.raises(ScriptError) as caught:
        parse(text)
    assert message in caught.value.message
    assert f", line {line}," in caught.value.where[0] and "^" in caught.value.where[2]


BINDINGS = {
    'z = R.call_tir(Module.kernel, (x, x), out_sinfo=R.Tensor((8,), "float32"))': "kernel takes 2 tensors; got 3",
    'z = R.call_tir(Module.kernel, (y,), out_sinfo=R.Tensor((8,), "float32"))': "has size 4 on axis 0; expected 8",
    'z = R.call_tir(Module.kernel, (x,), out_sinfo=R.Tensor((8,), "int32"))': "has dtype int32; expected float32",
    'z: R.Tensor((8,), "float16") = R.exp(x)': "the value of 'z' has dtype float32; expected float16",
    'z: R.Tensor((8, 1), "float32") = x': "the value of 'z' has rank 1; expected 2",
}


@pytest.mark.parametrize("binding", BINDINGS)
def test_bindings(binding: str) -> None:
    before = next(line for line in module().splitlines() if "call_tir" in line)
    with pytest.raises(VerifyError) as caught:
        verify(parse(module().replace(before, before.split("z =")[0] + binding)))
    assert BINDINGS[binding] in caught.value.message
    assert caught.value.where[0] == "function main" and caught.value.where[1].startswith("z")


def test_the_result_matches_the_declared_structure_info() -> None:
    text = module().replace('"float32")):\n        R.', '"float32")) -> R.Tensor((4,), "float32"):\n        R.')
    with pytest.raises(VerifyError, match="the result has size 8 on axis 0; expected 4"):
        verify(parse(text))


def test_loops_over_threads_have_no_code_on_a_cpu() -> None:
    text = KERNEL + '    for i in T.thread_binding(8, thread="threadIdx.x"):\n        B[i] = A[i]\n'
    with pytest.raises(CodegenError, match="loop 'i' is bound to threadIdx.x; a CPU has no such threads") as caught:
        build(parse(text))
    assert "kernel" in caught.value.where[0]


DESCRIPTIONS = {
    "y: R.Tensor(ndim='a') = x": "expected a number of axes, got 'a'",
    "y: R.Tensor(ndim=-5) = x": "expected a number of axes, got -5",
    "y: R.Tensor((8.5,)) = x": "a size is a float32 expression; expected an integer",
    "y: R.Tensor((8,), R.Shape) = x": 'expected a dtype such as "float32"',
    'y: R.Prim("foo") = x': "expected a dtype such as \"float32\", got 'foo'",
    'y = R.call_tir("f", (x,), (8,), dtype="")': "expected a dtype such as \"float32\", got ''",
    'y = R.call_tir("f", (x,), (8,), dtype=True)': 'expected a dtype such as "float32", got True',
    'y = R.const(None, "float32")': "expected numbers, got None",
    "y = R.sum(x, axis=R.Shape)": "R.Shape is no value of an attribute",
    "R.func_attr({1.5: 2})": "expected a dictionary of attributes by name",
    "R.func_attr({[1]: 2})": "unhashable",
    'R.func_attr({"global_symbol": "a b"})': "global_symbol is 'a b'; expected a name",
}


@pytest.mark.parametrize("statement", DESCRIPTIONS)
def test_invalid_annotations_and_attributes(statement: str) -> None:
    text = f'@R.function\ndef main(x: R.Tensor((8,), "float32")):\n    {statement}\n    return x\n'
    with pytest.raises(ScriptError) as caught:
        parse(text)
    assert DESCRIPTIONS[statement] in caught.value.message
    assert ", line 3," in caught.value.where[0]
