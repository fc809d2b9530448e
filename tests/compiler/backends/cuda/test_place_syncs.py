"""Barriers are placed between dependent accesses of different threads, and nowhere else."""

from __future__ import annotations

import pytest

from mlc_compiler.backends.cuda.passes.place_syncs import PlaceSyncs
from mlc_compiler.script import parse, script
from mlc_errors import MLCError
from tests.compiler.backends.cuda.kernels import kernel, main, module, syncs

CASES = {
    "written by another thread": ("s[t] = x[t]\ny[t] = s[63 - t]", 1),
    "written by the same thread": ("s[t] = x[t]\ny[t] = s[t]", 0),
    "other elements": ("s[t] = x[t]\ny[t] = s[t + 64]", 0),
    "other buffers": ("s[t] = x[t]\ny[t] = r[63 - t]", 0),
    "read, then overwritten": ("y[t] = s[63 - t]\ns[t] = x[t]", 1),
    "only read": ("y[t] = s[63 - t]\ny[t + 64] = s[62 - t]", 0),
    "a barrier is there": ("s[t] = x[t]\nT.tvm_storage_sync('shared')\ny[t] = s[63 - t]", 1),
    "a warp barrier is not enough": ("s[t] = x[t]\nT.tvm_storage_sync('warp')\ny[t] = s[63 - t]", 1),
    "one barrier for two buffers": ("s[t] = x[t]\nr[t] = x[t]\ny[t] = s[63 - t] + r[63 - t]", 1),
    "the same four elements": (
        "for i in range(4):\n    s[t * 4 + i] = x[t]\nfor i in range(4):\n    y[t] = s[t * 4 + i]",
        0,
    ),
    "four elements of others": (
        "for i in range(4):\n    s[i * 64 + t] = x[t]\nfor i in range(4):\n    y[t] = s[t * 4 + i]",
        1,
    ),
    "carried by a loop": ("for i in range(4):\n    s[t] = x[t]\n    y[t] = s[63 - t]", 2),
    "carried, with a barrier at the end": (
        "for i in range(4):\n    s[t] = x[t]\n    y[t] = s[63 - t]\n    T.tvm_storage_sync('shared')",
        2,
    ),
    "carried to the same thread": ("for i in range(4):\n    s[t] = s[t] + x[t]", 0),
    "carried through other elements": (
        "for i in range(3):\n    s[i * 64 + t] = x[t]\n    y[t] = s[i * 64 + 63 - t]",
        1,
    ),
    "two buffers in turns": ("for i in range(4):\n    s[i % 2 * 64 + t] = x[t]\n    y[t] = s[i % 2 * 64 + 63 - t]", 1),
    "a loop that may be empty": (
        "s[t] = x[t]\nfor i in range(T.Cast('int64', x[0])):\n    r[t] = x[t]\ny[t] = s[63 - t]",
        1,
    ),
    "a uniform condition": ("s[t] = x[t]\nif x[0] > 0.0:\n    y[t] = s[63 - t]", 1),
    "both branches": ("if b > 0:\n    s[t] = x[t]\nelse:\n    s[t] = x[t + 64]\ny[t] = s[63 - t]", 1),
    "a condition on shared memory": ("s[t] = x[t]\nif s[0] > 0.0:\n    y[t] = x[t]", 1),
    "a thread alone": ("if t < 1:\n    s[0] = x[0]\ny[t] = s[0]", 1),
    "a value in a variable": ("v = s[63 - t]\ns[t] = v", 1),
    "an index from memory": ("i = T.Cast('int64', x[t])\ns[i] = x[t]\ny[t] = s[i]", 1),
}


@pytest.mark.parametrize("case", CASES)
def test_number_of_barriers(case: str) -> None:
    body, expected = CASES[case]
    mod = PlaceSyncs().run(kernel(body))
    assert syncs(mod) == expected
    assert script(PlaceSyncs().run(mod)) == script(mod)
    assert script(parse(script(mod))) == script(mod)


def test_a_barrier_goes_before_the_conflicting_statement() -> None:
    mod = PlaceSyncs().run(kernel("for i in range(4):\n    r[t] = x[t]\n    s[t] = r[t]\n    y[t] = s[63 - t]"))
    lines = [line.strip() for line in script(mod).splitlines()]
    barrier = 'T.evaluate(T.tvm_storage_sync("shared"))'
    assert lines[lines.index("r[t] = x[t]") :] == ["r[t] = x[t]", barrier, "s[t] = r[t]", barrier, "y[t] = s[63 - t]"]


def test_sibling_loops_are_the_same_threads() -> None:
    text = """
    @T.prim_func
    def main(x: T.Buffer((4, 16), "float32"), y: T.Buffer((4, 16), "float32")):
        for b in T.thread_binding(1, thread="blockIdx.x"):
            s = T.decl_buffer((4, 16), "float32", scope="shared")
            for ty in T.thread_binding(4, thread="threadIdx.y"):
                for tx in T.thread_binding(16, thread="threadIdx.x"):
                    s[ty, tx] = x[ty, tx]
            for uy in T.thread_binding(4, thread="threadIdx.y"):
                for ux in T.thread_binding(16, thread="threadIdx.x"):
                    y[uy, ux] = s[INDEX]
    """
    assert syncs(PlaceSyncs().run(module(text.replace("INDEX", "uy, ux")))) == 0
    assert syncs(PlaceSyncs().run(module(text.replace("INDEX", "ux // 4, ux % 4 * 4 + uy")))) == 1


def test_threads_without_a_loop_over_an_axis_all_run() -> None:
    """Both rows of threads write ``s``, so a thread reads what others may still write."""
    text = """
    @T.prim_func
    def main(x: T.Buffer((2, 16), "float32"), y: T.Buffer((2, 16), "float32")):
        for b in T.thread_binding(1, thread="blockIdx.x"):
            s = T.decl_buffer((16,), "float32", scope="shared")
            for tx in T.thread_binding(16, thread="threadIdx.x"):
                s[tx] = x[0, tx]
                for ty in T.thread_binding(2, thread="threadIdx.y"):
                    y[ty, tx] = s[tx]
    """
    assert syncs(PlaceSyncs().run(module(text))) == 1


@pytest.mark.parametrize(
    "body",
    [
        "if t < 32:\n    s[t] = x[t]\n    y[t] = s[31 - t]",
        "for i in range(t):\n    s[t] = x[i]\n    y[t] = s[63 - t]",
        (
            "a = T.decl_buffer((1,), 'float32', scope='local')\na[0] = x[t]\n"
            "while a[0] > 0.0:\n    s[t] = a[0]\n    a[0] = s[63 - t]"
        ),
        "for u in T.thread_binding(32, thread='threadIdx.x'):\n    s[u] = x[u]\n    y[u] = s[31 - u]",
        "if t < 32:\n    T.tvm_storage_sync('shared')",
    ],
)
def test_divergent_barriers_are_refused(body: str) -> None:
    with pytest.raises(MLCError, match="divergent barrier: .*not all threads"):
        PlaceSyncs().run(kernel(body))


def test_a_loop_over_a_uniform_local_value_may_hold_a_barrier() -> None:
    body = """
    n = T.decl_buffer((1,), "int64", scope="local")
    n[0] = 0
    while n[0] < 4:
        s[t] = x[t]
        y[t] = s[63 - t]
        n[0] = n[0] + 1
    """
    assert syncs(PlaceSyncs().run(kernel(body))) == 2


def test_explicit_functions_are_left_alone() -> None:
    mod = kernel("s[t] = x[t]\ny[t] = s[63 - t]")
    mod = mod.with_function("main", main(mod).with_attr("cuda.explicit_sync", True))
    assert syncs(PlaceSyncs().run(mod)) == 0
