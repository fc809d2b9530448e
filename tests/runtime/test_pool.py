"""The pool of sequences against a reference that keeps a list of tokens per sequence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlc_errors import ResourceError, UsageError
from mlc_runtime.model_spec import ArraySpec, PagedKVSpec, RecurrentSpec
from mlc_runtime.pages import NO_PAGE, PagedState
from mlc_runtime.pool import SequencePool

SPEC = PagedKVSpec("", 2, 3, head_dim=5, v_head_dim=4, page_size=16, dtype="float16")
ONE = replace(SPEC, num_hidden_layers=1, num_key_value_heads=1, head_dim=1, v_head_dim=1, dtype="float32")
WINDOW = replace(ONE, prefix="local_", sliding_window=20, attention_sink_size=3, scale_dtype="float32")
RECURRENT = RecurrentSpec("ssm_", (ArraySpec("sum", (2,), "int64"),))
MAX_TOKENS, PAGES = 200, 30


def test_arrays_of_every_kind_of_state():
    latent = replace(SPEC, prefix="latent_", v_head_dim=None)
    pool = SequencePool([SPEC, latent, RECURRENT], max_tokens=40, num_tokens=96, rows=7)
    shapes = {name: (array.shape, str(array.dtype)) for name, array in pool.inputs.items()}
    assert shapes == {
        "k_pages": ((2, 6, 3, 5, 16), "float16"),
        "v_pages": ((2, 6, 3, 16, 4), "float16"),
        "page_table": ((7, 3), "int32"),
        "latent_k_pages": ((2, 6, 3, 5, 16), "float16"),
        "latent_page_table": ((7, 3), "int32"),
        "ssm_sum": ((7, 2), "int64"),
        "ssm_slots": ((7,), "int32"),
    }


def test_scales_of_pages():
    pool = SequencePool([replace(SPEC, dtype="int8", scale_dtype="float16")], max_tokens=40, num_tokens=96, rows=7)
    shapes = {name: (array.shape, str(array.dtype)) for name, array in pool.inputs.items()}
    assert shapes == {
        "k_pages": ((2, 6, 3, 5, 16), "int8"),
        "v_pages": ((2, 6, 3, 16, 4), "int8"),
        "k_scales": ((2, 6, 3, 16), "float16"),
        "v_scales": ((2, 6, 3, 16), "float16"),
        "page_table": ((7, 3), "int32"),
    }


def test_pages_are_taken_as_sequences_grow():
    pool = SequencePool([SPEC], max_tokens=40, num_tokens=96, rows=3)
    a, b = pool.add(), pool.add()
    assert (pool.extend(a, 17), pool.extend(b, 1), pool.extend(a, 2)) == (0, 0, 17)
    assert pool.inputs["page_table"][[a, b]].tolist() == [[0, 1, NO_PAGE], [2, NO_PAGE, NO_PAGE]]
    pool.remove(a)
    assert pool.inputs["page_table"][a].tolist() == [NO_PAGE] * 3
    assert pool.add() == a


def test_limits_are_errors_that_change_nothing():
    pool = SequencePool([SPEC, replace(SPEC, prefix="small_", sliding_window=8)], 40, 64, rows=2)
    a, b = pool.add(), pool.add(20)
    with pytest.raises(ResourceError, match="the pool is full: 2 sequences"):
        pool.add()
    pool.extend(a, 40)
    with pytest.raises(ResourceError, match="context is full: 41 tokens; expected at most 40"):
        pool.extend(a, 1)
    with pytest.raises(ResourceError, match="context is full: 21 tokens; expected at most 20"):
        pool.extend(b, 21)
    with pytest.raises(ResourceError, match="1 of 4 pages are free; expected 2"):
        pool.extend(b, 17)
    assert [pool.lengths[row] for row in (a, b)] == [40, 0]
    assert pool.extend(b, 16) == 0


def test_pages_take_no_memory_before_they_are_written():
    spec = replace(SPEC, num_hidden_layers=4, num_key_value_heads=8, head_dim=128, v_head_dim=128)
    before = resident_bytes()
    pool = SequencePool([spec], max_tokens=131_072, num_tokens=131_072)
    pool.extend(pool.add(), 200)
    assert pool.inputs["k_pages"].nbytes == 1 << 30
    assert resident_bytes() - before < 8 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_a_shared_page_is_copied_on_write():
    pool = SequencePool([ONE], max_tokens=64, num_tokens=128, rows=4)
    table, keys = pool.inputs["page_table"], pool.inputs["k_pages"]
    a = pool.add()
    pool.extend(a, 20)
    keys[0, table[a, 1], 0, 0, :4] = [1, 2, 3, 4]
    b = pool.fork(a, 18)
    assert table[b].tolist() == table[a].tolist()
    pool.extend(b, 1)
    assert table[b, 0] == table[a, 0] and table[b, 1] != table[a, 1]
    assert keys[0, table[b, 1], 0, 0, :4].tolist() == [1, 2, 3, 4]
    before = table[a].tolist()
    pool.extend(a, 1)  # the page is not shared any more
    assert table[a].tolist() == before


def test_pages_before_a_sliding_window_are_reused():
    state = PagedState(WINDOW, rows=1, max_tokens=10_000, num_pages=4, rollback=0)
    state.begin(0)
    for position in range(10_000):
        state.reserve(0, position, position + 1)
        assert state.page_table[0, position // 16] != NO_PAGE and state.page_table[0, 0] != NO_PAGE
    assert np.count_nonzero(state.page_table != NO_PAGE) == 4
    assert state.can_truncate(0, 9_999) and not state.can_truncate(0, 9_900)


def test_recurrent_states_are_copied_and_cannot_be_truncated():
    pool = SequencePool([RECURRENT], MAX_TOKENS, MAX_TOKENS, rows=3)
    sums, slots = pool.inputs["ssm_sum"], pool.inputs["ssm_slots"]
    a = pool.add()
    pool.extend(a, 5)
    sums[slots[a]] = 7
    b = pool.fork(a)
    sums[slots[b]] += 1
    assert (sums[slots[a], 0], sums[slots[b], 0]) == (7, 8)
    with pytest.raises(
        UsageError, match="cannot cut the sequence of 5 tokens to 4: its state of fewer tokens is gone"
    ) as e:
        pool.truncate(a, 4)
    assert list(e.value.where) == ["the state of ssm_sum, ssm_slots"]
    with pytest.raises(UsageError, match="cannot cut the sequence to 6 tokens: it has 5"):
        pool.truncate(a, 6)
    pool.truncate(a, 0)
    assert sums[slots[a]].tolist() == [0, 0] and pool.lengths[a] == 0
    pool.remove(b)
    assert slots.tolist().count(-1) == 2


class Checked:
    """A pool and the expected tokens of its sequences; tokens are written through its tables as a model does."""

    def __init__(self, states: list[PagedKVSpec | RecurrentSpec]):
        self.pool = SequencePool(states, MAX_TOKENS, PAGES * 16, rows=5, rollback=0)
        self.paged = [s for s in states if isinstance(s, PagedKVSpec)]
        self.recurrent = [s for s in states if isinstance(s, RecurrentSpec)]
        self.tokens: dict[int, list[int]] = {}
        self.next = 1

    def add(self) -> None:
        self.tokens[self.pool.add()] = []

    def fork(self, row: int, length: int) -> None:
        if self.pool.can_truncate(row, length):
            self.tokens[self.pool.fork(row, length)] = self.tokens[row][:length]

    def truncate(self, row: int, length: int) -> None:
        if self.pool.can_truncate(row, length):
            self.pool.truncate(row, length)
            del self.tokens[row][length:]

    def remove(self, row: int) -> None:
        self.pool.remove(row)
        del self.tokens[row]

    def extend(self, row: int, count: int) -> None:
        try:
            begin = self.pool.extend(row, count)
        except ResourceError:
            return
        assert begin == len(self.tokens[row])
        for position in range(begin, begin + count):
            for spec in self.paged:
                page, slot = self._place(spec, row, position)
                self._array(spec, "k_pages")[0, page, 0, 0, slot] = self.next
                self._array(spec, "v_pages")[0, page, 0, slot, 0] = -self.next
                for scales in self._scales(spec):
                    scales[0, page, 0, slot] = self.next
            for recurrent in self.recurrent:
                self._array(recurrent, "sum")[self._array(recurrent, "slots")[row]] += self.next
            self.tokens[row].append(self.next)
            self.next += 1

    def check(self) -> None:
        """Assert that every position that the next token attends to holds the sequence's own token."""
        assert [self.pool.lengths[row] for row in self.tokens] == [len(t) for t in self.tokens.values()]
        for row, tokens in self.tokens.items():
            for spec in self.paged:
                window, sinks = spec.sliding_window or MAX_TOKENS, spec.attention_sink_size
                seen = [p for p in range(len(tokens)) if p > len(tokens) - window or p < sinks]
                places = [self._place(spec, row, p) for p in seen]
                keys = [self._array(spec, "k_pages")[0, page, 0, 0, slot] for page, slot in places]
                values = [-self._array(spec, "v_pages")[0, page, 0, slot, 0] for page, slot in places]
                assert keys == values == [tokens[p] for p in seen]
                for scales in self._scales(spec):
                    assert [scales[0, page, 0, slot] for page, slot in places] == keys
            for recurrent in self.recurrent:
                slot = self._array(recurrent, "slots")[row]
                assert self._array(recurrent, "sum")[slot].tolist() == [sum(tokens)] * 2

    def _array(self, spec: PagedKVSpec | RecurrentSpec, name: str) -> np.ndarray:
        return self.pool.inputs[spec.prefix + name]

    def _scales(self, spec: PagedKVSpec) -> list[np.ndarray]:
        return [self._array(spec, name) for name in ("k_scales", "v_scales")] if spec.scale_dtype else []

    def _place(self, spec: PagedKVSpec, row: int, position: int) -> tuple[int, int]:
        page = int(self._array(spec, "page_table")[row, position // 16])
        assert 0 <= page < PAGES
        return page, position % 16


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "extend", "extend", "fork", "truncate", "remove"]),
        st.integers(0, 4),
        st.integers(0, 120),
    ),
    max_size=60,
)


@pytest.mark.parametrize("states", [[ONE], [ONE, WINDOW], [WINDOW, RECURRENT], [RECURRENT]], ids=str)
@given(operations=OPERATIONS)
def test_sequences_see_their_own_tokens(states, operations):
    checked = Checked(states)
    for name, which, number in operations:
        rows = list(checked.tokens)
        if name == "add" and len(rows) < 5:
            checked.add()
        elif rows and name != "add":
            row = rows[which % len(rows)]
            length = min(number, len(checked.tokens[row]))
            if name == "extend":
                checked.extend(row, number % 50 + 1)
            elif name == "truncate":
                checked.truncate(row, length)
            elif name == "remove":
                checked.remove(row)
            elif len(rows) < 5:
                checked.fork(row, length)
        checked.check()
    for row in list(checked.tokens):
        checked.remove(row)
    checked.add()
    if checked.paged:
        for _ in range(PAGES * 16 // MAX_TOKENS):  # all pages are free again
            checked.pool.extend(checked.pool.add(), MAX_TOKENS)
