"""Base classes of model configurations, which are read from Hugging Face's config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Self

from mlc_compiler.nn.states import SequenceArray
from mlc_errors import MLCError
from model_zoo.config_check import SIZE, SIZE_LIMIT, check_values
from model_zoo.config_forms import with_rope_keys, without_window
from model_zoo.config_keys import check_equal_layers, refuse_scaling, refuse_unsupported
from model_zoo.rope import RopeParameters

MAX_PREFILL_CHUNK = 2048
MAX_BATCH = 128
PARALLEL = {"tensor_parallel_shards": 1, "pipeline_parallel_stages": 1, "disaggregation": False}
COMMON_CHAT_KEYS = (
    "vocab_size",
    "tie_word_embeddings",
    "context_window_size",
    "prefill_chunk_size",
    "max_batch_size",
    "tensor_parallel_shards",
)
CHAT_KEYS = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "head_dim",
    *COMMON_CHAT_KEYS,
)
COMMON_KEYS = {"position_embedding_base": "rope_theta", "sliding_window_size": "sliding_window"}
COMMON_NAMES = {
    "context_window_size": ("max_sequence_length", "max_position_embeddings"),
    "sliding_window": ("sliding_window_size",),
    "rope_theta": ("position_embedding_base",),
}


@dataclass(frozen=True)
class AttentionKind:
    """Parameters of the attention of a group of layers; layers of equal kind share a KV cache.

    window: the number of positions that a token attends to, None for all. chunked: the window is the token's chunk of
    ``window`` positions instead of the last ``window`` positions. rope: None for a layer without RoPE.
    head_dim, heads, kv_heads: override the config's ``head_dim``, ``num_attention_heads`` and
    ``num_key_value_heads``. value_dim: elements of a value, if it differs from a key. latent: for latent attention
    (MLA), the number of leading elements of a cached vector that are the value of all heads.
    """

    name: str = ""
    window: int | None = None
    rope: RopeParameters | None = None
    head_dim: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    value_dim: int | None = None
    chunked: bool = False
    latent: int | None = None


@dataclass(frozen=True)
class RecurrentKind:
    """The recurrent state of a group of layers. arrays: those of one layer, without the layer axis."""

    arrays: tuple[SequenceArray, ...]
    name: str = ""


LayerKinds = tuple[AttentionKind | RecurrentKind, ...]
"""The states of a layer, in the order in which it takes them."""


@dataclass(frozen=True, kw_only=True)
class BaseConfig:
    """Sizes of a model that continues a sequence of tokens. Field names are Hugging Face's keys.

    context_window_size: maximum length of a sequence. prefill_chunk_size, max_batch_size: maximum numbers of tokens and
    of sequences in one call.

    Class variables of a subclass: ``names``, other keys for a field, of which the first found wins; ``ignored``, keys
    of its checkpoints without an effect; ``chat_keys``, the keys of mlc-chat-config.json's model_config, in order;
    ``neutral``, values without an effect, which override ``NEUTRAL``; ``scaling_keys``, keys of ``rope_scaling`` that
    only this model reads; ``is_causal``, whether a token attends to earlier ones only; ``has_window_switch``, whether
    ``sliding_window`` acts only if ``use_sliding_window`` is true.
    """

    model_type: ClassVar[str] = ""
    is_causal: ClassVar[bool] = True
    has_window_switch: ClassVar[bool] = False
    scaling_keys: ClassVar[frozenset[str]] = frozenset()
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    chat_keys: ClassVar[tuple[str, ...]] = ("hidden_size", "num_hidden_layers", *COMMON_CHAT_KEYS)
    ignored: ClassVar[frozenset[str]] = frozenset()

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    tie_word_embeddings: bool = False
    context_window_size: int = 2048
    prefill_chunk_size: int = 0
    max_batch_size: int = MAX_BATCH

    def __post_init__(self) -> None:
        self._fill("prefill_chunk_size", min(self.context_window_size, MAX_PREFILL_CHUNK))
        self._check_sizes()

    def _fill(self, name: str, value: Any) -> None:
        if not getattr(self, name):
            object.__setattr__(self, name, value)

    def _check_sizes(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.type == "int" and not (isinstance(value, int) and 0 < value < SIZE_LIMIT):
                raise MLCError(f"{f.name}: got {value!r}; expected {SIZE}", where=["config.json"])

    @property
    def embedding_size(self) -> int:
        """Elements of a token's embedding, the result of ``embed``."""
        return self.hidden_size

    @property
    def kv_layers(self) -> int:
        """The number of first layers with own states; later layers share those of the last such layer of their kind."""
        return self.num_hidden_layers

    @property
    def layer_kinds(self) -> tuple[LayerKinds, ...]:
        """The states of each layer."""
        raise NotImplementedError

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Parse a config.json of transformers 4 or 5, or the model_config of an mlc-chat-config.json.

        Raises UnsupportedError for a key that changes the computation in a way that this model does not implement and
        for a key with no known meaning, and MLCError for a missing or invalid size.
        """
        known = {f.name: f for f in fields(cls) if f.init}
        values = without_window(with_rope_keys(raw, "rope_local_base_freq" in known), cls.has_window_switch)
        given = {name: value for name in known if (value := _find(cls, values, name)) is not None}
        given |= {name: None for name, f in known.items() if name not in given and _is_null(cls, values, f)}
        neutral = {**cls.neutral, "is_causal": (None, cls.is_causal)}
        refuse_unsupported(cls.model_type, _unread(cls, values, known), neutral)
        for scaling in ("rope_scaling", "rope_local_scaling"):
            refuse_scaling(cls.model_type, values.get(scaling), cls.scaling_keys)
        if "layer_types" not in known:
            check_equal_layers(values)
        required = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
        missing = [n for n in required if n not in given]
        if missing:
            raise MLCError(f"missing key {', '.join(missing)}", where=["config.json"])
        check_values(given, {name: str(f.type) for name, f in known.items()})
        if given.get("sliding_window") == 0:
            given["sliding_window"] = None
        return cls(**given)

    def chat_model_config(self) -> dict[str, Any]:
        """The model_config of mlc-chat-config.json, from which ``from_hf`` makes an equal configuration.

        Keys other than ``chat_keys`` appear only if their values differ from the default.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        public = {**values, **PARALLEL, **self._public()}
        public |= {key: values[name] for name, keys in self.names.items() for key in keys}
        result = {key: public[key] for key in self.chat_keys}
        covered = {COMMON_KEYS.get(key, key) for key in self.chat_keys}
        covered |= {name for name, keys in self.names.items() if set(keys) & set(self.chat_keys)}
        changed = {f.name for f in fields(self) if values[f.name] != f.default}
        return result | {f.name: values[f.name] for f in fields(self) if f.name in changed - covered}

    def _public(self) -> dict[str, Any]:
        """Values of ``chat_keys`` that are not the names of fields."""
        return {}


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(BaseConfig):
    """Sizes of a decoder with attention.

    Optional fields: ``sliding_window``, the number of last positions that a token attends to; ``attention_sink_size``,
    the number of first positions that it attends to as well; ``partial_rotary_factor``, the rotated fraction of a head.
    interleaved_rotary: RoPE rotates pairs (2 d, 2 d + 1) instead of (d, d + R/2).
    """

    chat_keys: ClassVar[tuple[str, ...]] = CHAT_KEYS
    interleaved_rotary: ClassVar[bool] = False
    partial_rotary_factor: ClassVar[float] = 1.0
    sliding_window: ClassVar[int | None] = None
    attention_sink_size: ClassVar[int | None] = None

    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int = 0
    head_dim: int = 0
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        heads = self.num_attention_heads
        self._fill("num_key_value_heads", heads)
        self._fill("head_dim", self.hidden_size // heads if heads else 0)
        super().__post_init__()
        _ = self.rope

    def _check_sizes(self) -> None:
        super()._check_sizes()
        if self.num_attention_heads % self.num_key_value_heads:
            raise MLCError(
                f"num_key_value_heads: got {self.num_key_value_heads}; expected a divisor of num_attention_heads, "
                f"{self.num_attention_heads}",
                where=["config.json"],
            )

    def check_positions(self, count: int) -> None:
        """Raise MLCError if the context is longer than ``count``, the number of learned positions."""
        if self.context_window_size > count:
            raise MLCError(
                f"context_window_size: got {self.context_window_size}; expected at most the {count} learned positions",
                where=["config.json"],
            )

    @property
    def rotary_axes(self) -> tuple[int, ...]:
        """For each rotated pair, the axis of the positions that rotates it; () if positions have a single axis."""
        return ()

    @cached_property
    def rope(self) -> RopeParameters | None:
        """Parameters of the rotary embedding; None for a model without one."""
        return RopeParameters.from_hf(self.rotary_dim, self.rope_theta, self.rope_scaling, self.context_window_size)

    @property
    def rotary_dim(self) -> int:
        """Elements of a head that are rotated."""
        return int(self.head_dim * self.partial_rotary_factor)

    @property
    def attention_kinds(self) -> tuple[AttentionKind, ...]:
        """The kind of each layer's attention."""
        return (AttentionKind("", self.sliding_window, self.rope),) * self.num_hidden_layers

    @property
    def layer_kinds(self) -> tuple[LayerKinds, ...]:
        """The states of each layer: by default, one KV cache."""
        return tuple((kind,) for kind in self.attention_kinds)

    def _public(self) -> dict[str, Any]:
        return {"position_embedding_base": self.rope_theta, "sliding_window_size": self.sliding_window or -1}


def keys_of(cls: type[BaseConfig], name: str) -> tuple[str, ...]:
    """The keys of config.json for a field; the first found wins."""
    return (name, *cls.names.get(name, ()), *COMMON_NAMES.get(name, ()))


def _is_null(cls: type[BaseConfig], values: Mapping[str, Any], f: Any) -> bool:
    """Whether the value of a field that may be None is null in the file."""
    return str(f.type).endswith("| None") and any(key in values for key in keys_of(cls, f.name))


def _find(cls: type[BaseConfig], values: Mapping[str, Any], name: str) -> Any:
    for key in keys_of(cls, name):
        if values.get(key) is not None:
            return values[key]
    return None


def _unread(cls: type[BaseConfig], values: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that belong to no field and are not ignored."""
    read = {key for name in known for key in keys_of(cls, name)} | cls.ignored
    return {key: value for key, value in values.items() if key not in read}
