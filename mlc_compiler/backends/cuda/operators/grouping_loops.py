"""TVMScript macro that sorts routing choices by expert; ``k`` is ``grouping._Grouping``."""

# The bodies are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from ....script import T


@T.macro
def place_choices(k, expert, thread):
    """Store the sorted positions of one expert's choices, and the expert and token at each of these positions."""
    first = thread * k.share
    last = T.min(first + k.share, k.total)
    k.counted[0] = T.int32(0)
    k.counted[1] = T.int32(0)
    for i in range(T.max(last - first, 0)):
        k.counted[0] = k.counted[0] + k.one_if(k.chosen(first + i) == expert)
        k.counted[1] = k.counted[1] + k.one_if(k.chosen(first + i) < expert)
    k.equal[thread] = k.counted[0]
    k.smaller[thread] = k.counted[1]
    T.tvm_storage_sync("shared")
    k.place[0] = T.int32(0)
    for other in range(k.threads):
        k.place[0] = k.place[0] + k.smaller[other] + k.one_if(other < thread) * k.equal[other]
    for i in range(T.max(last - first, 0)):
        if k.chosen(first + i) == expert:
            k.places[k.token(first + i), (first + i) % k.choices] = k.place[0]
            k.ids[T.Cast("int64", k.place[0])] = T.Cast("int32", expert)
            k.rows[T.Cast("int64", k.place[0])] = T.Cast("int32", k.token(first + i))
            k.place[0] = k.place[0] + 1
