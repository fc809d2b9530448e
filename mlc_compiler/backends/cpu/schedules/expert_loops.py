"""TVMScript macros of expert matmuls; ``k`` is an ``expert_runs.Runs``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T


@T.macro
def multiply_runs(k, multiply):
    """Compute a tile of columns for all rows: ``multiply`` one run of rows after the other."""
    k.run[0] = T.int64(0)
    while k.run[0] < k.rows:
        k.run[1] = T.int64(1)
        k.run[2] = k.expert_of(k.run[0])
        while k.run[1] < k.longest(k.run[0]) and k.expert_of(k.run[0] + k.run[1]) == k.run[2]:
            k.run[1] = k.run[1] + 1
        multiply(k)
        k.run[0] = k.run[0] + k.run[1]


@T.macro
def multiply_floats(k):
    for part in range(k.run[1] // k.height):
        sum_products(k, k.run[0] + part * k.height, k.height)
    for row in range(k.run[1] % k.height):
        sum_products(k, k.run[0] + k.run[1] // k.height * k.height + row, 1)


@T.macro
def sum_products(k, first, height):
    """Compute ``height`` rows from ``first`` on, with the sums in registers."""
    acc = T.decl_buffer((height, k.tile_columns), "float32", scope="local")
    for r in T.unroll(height):
        for c in T.vectorized(k.tile_columns):
            acc[r, c] = T.float32(0)
    for step in range(k.depth // k.unrolled):
        for part in T.unroll(k.unrolled):
            for r in T.unroll(height):
                for c in T.vectorized(k.tile_columns):
                    position = step * k.unrolled + part
                    acc[r, c] = acc[r, c] + k.activation(first + r, position) * k.weight(c, position)
    for r in T.unroll(height):
        store_row(k, first + r, acc, r)


@T.macro
def store_row(k, row, acc, r):
    for c in T.vectorized(k.tile_columns):
        if k.is_column(c):
            k.out[k.place(row, c)] = k.value(row, c, acc[r, c])


@T.macro
def multiply_digits(k):
    """For each group: unpack its weights into registers, then add integer dot products for a few rows at a time."""
    acc = T.decl_buffer((k.max_rows, k.tile_columns), "float32", scope="local")
    for r in range(k.run[1]):
        for c in T.vectorized(k.tile_columns):
            acc[r, c] = T.float32(0)
    following = T.decl_buffer((1,), "int64", scope="local")
    following[0] = k.expert_of(k.run[0] + k.run[1])
    for g in range(k.groups):
        for line in T.unroll(k.lines):
            k.prefetch(g, line, following[0])
        words = T.decl_buffer((k.tile_columns // k.lanes, k.steps, k.lanes), "uint32", scope="local")
        for step in T.unroll(k.steps):
            for side in T.unroll(k.tile_columns // k.lanes):
                for c in T.vectorized(k.lanes):
                    words[side, step, c] = k.word(g, step, side * k.lanes + c)
        for part in range(k.run[1] // k.height):
            add_dots(k, g, words, acc, part * k.height, k.height)
        for r in range(k.run[1] % k.height):
            add_dots(k, g, words, acc, k.run[1] // k.height * k.height + r, 1)
    for r in range(k.run[1]):
        store_row(k, k.run[0] + r, acc, r)


@T.macro
def add_dots(k, g, words, acc, first, height):
    """Add the sums over a group, of ``height`` rows of the run from ``first`` on, to those of the groups before."""
    dots = T.decl_buffer((height, k.digits_of_one, k.tile_columns), "int32", scope="local")
    for r in T.unroll(height):
        for which in T.unroll(k.digits_of_one):
            for c in T.vectorized(k.tile_columns):
                dots[r, which, c] = k.start(k.run[0] + first + r, g, which)
    for part in T.unroll(k.steps // k.steps_of_dot):
        for r in T.unroll(height):
            for which in T.unroll(k.digits_of_one):
                for side in T.unroll(k.tile_columns // k.lanes):
                    k.add_dot(dots, words, k.run[0] + first + r, r, g, which, part * k.steps_of_dot, side)
    for r in T.unroll(height):
        for c in T.vectorized(k.tile_columns):
            acc[first + r, c] = acc[first + r, c] + k.group_sum(g, k.run[0] + first + r, dots, r, c)
