"""Description of the model in a library's metadata: sizes, weights, and the states that the runtime allocates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from mlc_errors import MLCError
from mlc_runtime.dtypes import dtype_of
from mlc_runtime.metadata import parsed

NO_LIMIT = -1  # a size that does not apply


@dataclass(frozen=True)
class PackedLayout:
    """The layout in which kernels read a weight, and the library's function that packs it."""

    shape: tuple[int, ...]
    dtype: str
    function: str

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * dtype_of(self.dtype).itemsize


@dataclass(frozen=True)
class ParamSpec:
    name: str
    shape: tuple[int, ...]
    dtype: str
    packed: PackedLayout | None


@dataclass(frozen=True)
class PagedKVSpec:
    """Keys and values of a group of layers, in pages of ``page_size`` positions.

    v_head_dim: None if values are a part of the keys (latent attention) and there is only one array of pages.
    sliding_window: number of positions that a token attends to, None for all; the first ``attention_sink_size``
    positions are always included. scale_dtype: dtype of the scales of keys and values, one per position and head; None
    without scales. after_source: sequences begin with a source, whose length is an input.
    """

    prefix: str
    num_hidden_layers: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int | None
    page_size: int
    dtype: str
    sliding_window: int | None = None
    attention_sink_size: int = 0
    scale_dtype: str | None = None
    after_source: bool = False


@dataclass(frozen=True)
class ArraySpec:
    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class RecurrentSpec:
    """Arrays of a fixed size for each sequence, initially zero."""

    prefix: str
    arrays: tuple[ArraySpec, ...]


StateSpec = PagedKVSpec | RecurrentSpec


@dataclass(frozen=True)
class ImageSpec:
    """The model's image input: an image becomes ``tokens`` tokens of a prompt, or at most that many.

    shape: of the pixels, [1, C, H, W], or [-1, patches per token, elements per patch] for images of any size.
    placeholder_id: the token that chat templates write for an image. expansion: texts and token ids that replace it;
    ``token_id`` in it represents all tokens of the image. sees_itself: attention within an image is bidirectional, in
    calls of ``prefill_image``. tile: expansion of a tile, with ``{row}`` and ``{column}``; () for models without tiles.
    separators: texts between the tiles of a row, after each row, and after all rows; opening: a text before all.
    row_tokens: tokens per row of a tile, if rows of tokens run through adjacent tiles; else 0. row_ends: the texts
    after each row of an image's tokens and after its last row; () for none.
    """

    shape: tuple[int, ...]
    tokens: int
    token_id: int
    placeholder_id: int
    expansion: tuple[str | int, ...]
    sees_itself: bool
    tile: tuple[str | int, ...]
    row_tokens: int
    row_ends: tuple[str, ...] = ()
    separators: tuple[str, ...] = ("", "\n", "\n")
    opening: str = ""


@dataclass(frozen=True)
class ModelSpec:
    """A model. context_window_size, prefill_chunk_size: in tokens; max_batch_size: sequences per call.

    memory_usage: bytes of workspace by function. images: None without image input. decoder_start: for
    encoder-decoders, the token that follows a source; else None.
    """

    model_type: str
    quantization: str
    task: str
    vocab_size: int
    context_window_size: int
    prefill_chunk_size: int
    max_batch_size: int
    params: tuple[ParamSpec, ...]
    states: tuple[StateSpec, ...]
    memory_usage: Mapping[str, int]
    images: ImageSpec | None = None
    decoder_start: int | None = None


def model_spec(metadata: dict) -> ModelSpec:
    """The model's description. Raises MLCError when the library holds no model, or the metadata is malformed."""
    if "params" not in metadata:
        raise MLCError("the library holds no model: its metadata has no params")
    return parsed(lambda: _model(metadata))


def _model(metadata: dict) -> ModelSpec:
    for name in ("tensor_parallel_shards", "pipeline_parallel_stages"):
        if metadata[name] != 1:
            raise ValueError(f"{name} is {metadata[name]!r}; this runtime runs 1")
    return ModelSpec(
        model_type=str(metadata["model_type"]),
        quantization=str(metadata["quantization"]),
        task=str(metadata["task"]),
        vocab_size=_positive(metadata, "vocab_size"),
        context_window_size=_positive(metadata, "context_window_size"),
        prefill_chunk_size=_positive(metadata, "prefill_chunk_size"),
        max_batch_size=_positive(metadata, "max_batch_size"),
        params=tuple(_param(p) for p in metadata["params"]),
        states=tuple(_state(s) for s in metadata["states"]),
        memory_usage={str(name): int(size) for name, size in metadata["memory_usage"].items()},
        images=_images(metadata["image_input"]) if metadata.get("image_input") else None,
        decoder_start=metadata.get("decoder_start_token_id"),
    )


def _param(entry: dict) -> ParamSpec:
    packed = entry.get("packed")
    layout = packed and PackedLayout(_shape(packed["shape"]), packed["dtype"], packed["function"])
    return ParamSpec(entry["name"], _shape(entry["shape"]), entry["dtype"], layout)


def _state(entry: dict) -> StateSpec:
    if entry["kind"] not in _KINDS:
        raise ValueError(f"a state has kind {entry['kind']!r}; expected one of {', '.join(_KINDS)}")
    return _KINDS[entry["kind"]](entry)


def _paged(entry: dict) -> PagedKVSpec:
    names = ("num_hidden_layers", "num_key_value_heads", "head_dim", "page_size")
    window, sinks = int(entry["sliding_window_size"]), int(entry["attention_sink_size"])
    return PagedKVSpec(
        prefix=str(entry["prefix"]),
        **{name: _positive(entry, name) for name in names},
        v_head_dim=_positive(entry, "v_head_dim") if entry["kind"] == "paged_kv" else None,
        dtype=str(entry["dtype"]),
        sliding_window=None if window == NO_LIMIT else _positive(entry, "sliding_window_size"),
        attention_sink_size=max(sinks, 0),
        scale_dtype=entry.get("scale_dtype"),
        after_source=bool(entry.get("after_source", False)),
    )


def _recurrent(entry: dict) -> RecurrentSpec:
    arrays = tuple(ArraySpec(str(a["name"]), _shape(a["shape"]), str(a["dtype"])) for a in entry["arrays"])
    return RecurrentSpec(str(entry["prefix"]), arrays)


_KINDS: Mapping[str, Callable[[dict], StateSpec]] = {
    "paged_kv": _paged,
    "latent_kv": _paged,
    "recurrent": _recurrent,
}


def _images(entry: dict) -> ImageSpec:
    return ImageSpec(
        _shape(entry["shape"]),
        _positive(entry, "tokens"),
        token_id=int(entry["token_id"]),
        placeholder_id=int(entry["placeholder_id"]),
        expansion=tuple(entry["expansion"]),
        sees_itself=bool(entry["sees_itself"]),
        tile=tuple(entry["tile"]),
        row_tokens=int(entry["row_tokens"]),
        row_ends=tuple(map(str, entry.get("row_ends", ()))),
        separators=tuple(map(str, entry.get("separators", ("", "\n", "\n")))),
        opening=str(entry.get("opening", "")),
    )


def _shape(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(d) for d in shape)


def _positive(entry: Mapping[str, Any], name: str) -> int:
    value = entry[name]
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"{name} is {value!r}; expected a positive number")
    return value
