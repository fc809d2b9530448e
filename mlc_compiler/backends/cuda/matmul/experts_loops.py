"""TVMScript macros of expert matmuls; ``k`` is ``experts.FewRowsOfExperts`` or ``experts.Runs``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T
from .few_rows_loops import multiply_rows


@T.macro
def multiply_first_run(k, row, block, warp, lane):
    """Multiply the run that begins at ``row``, if one does: at the first row of a tile, or of an expert in a tile."""
    ids = T.decl_buffer((k.tile_rows,), "int64", scope="local")
    before = T.decl_buffer((1,), "int64", scope="local")
    before[0] = k.found.expert_of(T.max(row - 1, 0))
    for i in T.unroll(k.tile_rows):
        ids[i] = k.found.expert_of(row + i)
    if row % k.tile_rows == 0 or before[0] != ids[0]:
        k.run[0] = row
        k.run[1] = T.int64(1)
        k.run[2] = ids[0]
        end = T.min(row // k.tile_rows * k.tile_rows + k.tile_rows, k.rows)
        for i in T.unroll(k.tile_rows - 1):
            if k.run[1] == i + 1 and row + i + 1 < end and ids[i + 1] == ids[0]:
                k.run[1] = i + T.int64(2)
        multiply_rows(k.of_run, block, T.int32(0), warp, lane)


@T.macro
def multiply_runs(k, row_block, column_block, thread, multiply):
    """``multiply`` the runs of a tile of rows, one after the other."""
    end = T.min((row_block + 1) * k.tile_rows, k.rows)
    k.run[0] = row_block * k.tile_rows
    while k.run[0] < end:
        k.run[1] = T.int64(1)
        k.run[2] = k.found.expert_of(k.run[0])
        while k.run[0] + k.run[1] < end and k.found.expert_of(k.run[0] + k.run[1]) == k.run[2]:
            k.run[1] = k.run[1] + 1
        multiply(k.of_run, T.int64(0), column_block, thread)
        if k.copies:
            k.of_run.wait(0)  # also for the tiles beyond the depth, which are loaded where the depth has few tiles
        T.tvm_storage_sync("shared")
        k.run[0] = k.run[0] + k.run[1]
