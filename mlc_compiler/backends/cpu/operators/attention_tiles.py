"""Problem sizes of attention, and its tile sizes on a CPU."""

from __future__ import annotations

from dataclasses import dataclass

from ..machine import Cpu
from ..quantized.plan import power_of_two

ROW_TILES = 16  # per converted block of keys and values: converting it costs about as much as one row tile
CONVERSIONS = 2  # with at most this many row tiles, a block is converted on each load instead of copied
PARTIAL_SHARE = 16  # minimum ratio of a piece's keys and values to its partial results, in bytes
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Sizes:
    """key, value: elements of a key and a value; page: slots of a page; group: query heads of one key/value head."""

    kv_heads: int
    group: int
    key: int
    value: int
    page: int
    kv_bytes: int


@dataclass(frozen=True)
class Tiles:
    """Tile sizes. A row is one query head of one token.

    lanes: elements of a SIMD register. tokens: per tile. rows: per tile, padded to whole row tiles. Registers hold the
    sums of ``row_tile`` rows x ``key_vectors * lanes`` keys, then of ``value_rows`` rows x ``value_vectors * lanes``
    elements of the values. block: keys per step of the online softmax. piece: keys per work item when decoding.
    staged: whether blocks are copied to scratch buffers before use.
    """

    lanes: int
    tokens: int
    rows: int
    row_tile: int
    key_vectors: int
    value_rows: int
    value_vectors: int
    value_tiles: int
    block: int
    piece: int
    staged: bool

    @staticmethod
    def of(sizes: Sizes, cpu: Cpu, single_query: bool, readable: bool, staged_bytes: int = FLOAT_BYTES) -> Tiles:
        """single_query: tiles of one token. readable: keys and values may be read without staging. staged_bytes: of
        an element of a staged block."""
        lanes, registers = cpu.lanes(32), cpu.vector_registers
        in_l1 = cpu.l1_bytes // (staged_bytes * (sizes.key + sizes.value))
        block = max(power_of_two(in_l1), 4 * lanes, sizes.page)
        max_rows = sizes.group if single_query else ROW_TILES * registers
        row_tile, key_vectors = register_tile(max_rows, block // lanes, registers)
        tokens = 1 if single_query else max(1, ROW_TILES * row_tile // sizes.group)
        row_tiles = -(-tokens * sizes.group // row_tile)
        value_rows, value_vectors, value_tiles = _value_tile(row_tile, -(-sizes.value // lanes), registers)
        whole = sizes.value % (value_vectors * lanes) == 0 and sizes.page % lanes == 0
        partial = sizes.group * (sizes.value + 2) * FLOAT_BYTES
        piece = -(-PARTIAL_SHARE * partial // ((sizes.key + sizes.value) * sizes.kv_bytes * block)) * block
        return Tiles(
            lanes,
            tokens,
            row_tiles * row_tile,
            row_tile,
            key_vectors,
            value_rows,
            value_vectors,
            value_tiles,
            block,
            max(piece, 2 * block),
            not (single_query and readable and whole and row_tiles <= CONVERSIONS),
        )


def register_tile(rows: int, vectors: int, registers: int) -> tuple[int, int]:
    """Rows and vectors of a tile of sums, to cover ``rows`` x ``vectors`` with few multiply-adds and loads.

    A step of the reduction multiplies one broadcast factor per row with each vector; the sums, vectors and a factor are
    in registers. The vectors of a tile divide ``vectors``.
    """
    fitting = [
        (r, v)
        for v in range(1, vectors + 1)
        for r in range(1, rows + 1)
        if vectors % v == 0 and r * v + v + 1 <= registers
    ]
    return min(fitting, key=lambda tile: _cost(rows, vectors, *tile))


def _value_tile(rows: int, vectors: int, registers: int) -> tuple[int, int, int]:
    """As ``register_tile``, but the rows of a tile divide ``rows``, and the last tile may be padded."""
    fitting = [
        (r, v)
        for v in range(1, vectors + 1)
        for r in range(1, rows + 1)
        if rows % r == 0 and r * v + v + 1 <= registers
    ]
    r, v = min(fitting, key=lambda tile: _cost(rows, vectors, *tile))
    return r, v, -(-vectors // v)


def _cost(rows: int, vectors: int, r: int, v: int) -> float:
    """Estimated cycles of a step: one per multiply-add, half a cycle per load (two loads issue at once)."""
    return -(-rows // r) * -(-vectors // v) * (r * v + (r + v) / 2)
