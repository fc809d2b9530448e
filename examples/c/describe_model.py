"""Write what chat.c reads of a model folder: python describe_model.py DIR > model.txt

Numbers and names, with spaces and newlines between them:

- sizes of the vocabulary, the context and a call, in tokens; the number of tokens that end an answer, and their ids;
- an embedding, the page size, the pages of keys, the pages of values;
- the number of weights; for each its file, offset and tensor, and ``-`` or the function that packs it and the packed
  tensor.

A tensor is the code and bits of its DLPack data type, the number of dimensions, and the dimensions.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from mlc_errors import UnsupportedError
from mlc_runtime import LLM
from mlc_runtime.dtypes import dtype_of
from mlc_runtime.model_spec import PagedKVSpec
from mlc_runtime.weights import TensorCache

CODES = {"i": 0, "u": 1, "f": 2}
BFLOAT16 = 4


def tensor(shape: Sequence[int | str], dtype: str) -> str:
    found = dtype_of(dtype)
    code = BFLOAT16 if dtype == "bfloat16" else CODES[found.kind]
    return " ".join(map(str, (code, 8 * found.itemsize, len(shape), *shape)))


def describe(folder: Path) -> list[str]:
    """The lines of model.txt. Raises UnsupportedError for a model with states that chat.c has not."""
    weights = TensorCache(folder)
    with LLM(folder) as llm:
        spec, stops = llm.model.spec, sorted(llm.sampling().eos_ids)
        (state, *more) = spec.states
        if more or not isinstance(state, PagedKVSpec) or state.scale_dtype or state.v_head_dim is None:
            raise UnsupportedError(f"{spec.model_type}: chat.c has one array of keys and one of values, without scales")
        embedding = llm.library["embed"].spec.outputs[0]
    pages = (state.num_hidden_layers, 0, state.num_key_value_heads)
    lines = [
        f"{spec.vocab_size} {spec.context_window_size} {spec.prefill_chunk_size}",
        " ".join(map(str, (len(stops), *stops))),
        tensor(embedding.shape[1:], embedding.dtype),
        str(state.page_size),
        tensor((*pages, state.head_dim, state.page_size), state.dtype),
        tensor((*pages, state.page_size, state.v_head_dim), state.dtype),
        str(len(spec.params)),
    ]
    for param in spec.params:
        record = weights.records[param.name]
        if record.stored != record.dtype:
            raise UnsupportedError(f"{param.name} is {record.dtype}, stored as {record.stored}")
        packed = f"{param.packed.function} {tensor(param.packed.shape, param.packed.dtype)}" if param.packed else "-"
        lines.append(f"{record.shard} {record.offset} {tensor(param.shape, param.dtype)} {packed}")
    return lines


if __name__ == "__main__":
    print("\n".join(describe(Path(sys.argv[1]))))
