"""Reader and writer of mlc-chat-config.json, the configuration of a model for inference engines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeGuard

from mlc_errors import MLCError
from mlc_toolchain.conversation import Conversation
from mlc_toolchain.readers.bounded_json import read_json_object

FILE_NAME = "mlc-chat-config.json"
VERSION = "0.1.0"
FOR_OTHER_ENGINES = ("version", "tokenizer_info", "pad_token_id", "bos_token_id")
"""Keys that are written for other engines; this runtime takes their values from the tokenizer."""
OWN_KEYS = ("image_processor", "top_k", "min_p", "typical_p")
POSTPROC_METHODS = ("byte_level", "byte_fallback")


@dataclass(frozen=True)
class TokenizerInfo:
    """Conversion of token texts to output text. token_postproc_method: "byte_level" or "byte_fallback"."""

    token_postproc_method: str = "byte_fallback"
    prepend_space_in_encode: bool = False
    strip_space_in_decode: bool = False


@dataclass(frozen=True)
class ChatConfig:
    """The keys of mlc-chat-config.json, in the order in which mlc_llm writes them.

    Sizes are in tokens; -1 means "not used". model_config holds the architecture's own sizes. The last four keys are
    this tool's and omitted if None: image_processor has the settings of image preprocessing, the others are
    sampling filters from the checkpoint's generation_config.json.
    """

    model_type: str
    quantization: str
    model_config: Mapping[str, Any]
    vocab_size: int
    context_window_size: int
    sliding_window_size: int
    prefill_chunk_size: int
    attention_sink_size: int
    tensor_parallel_shards: int
    pipeline_parallel_stages: int
    active_vocab_size: int
    temperature: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    top_p: float
    tokenizer_files: tuple[str, ...]
    tokenizer_info: TokenizerInfo
    conv_template: Conversation
    pad_token_id: int
    bos_token_id: int
    eos_token_id: int | tuple[int, ...]
    model_task: str = "chat"
    embedding_metadata: Mapping[str, Any] | None = None
    image_processor: Mapping[str, Any] | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, with keys in mlc_llm's order."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["tokenizer_info"] = asdict(self.tokenizer_info)
        values["conv_template"] = self.conv_template.to_dict()
        for key in OWN_KEYS:
            if values[key] is None:
                del values[key]
        return json.loads(json.dumps({"version": VERSION, **values}))

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps(self.to_dict(), indent=2)


def read_chat_config(path: Path) -> ChatConfig:
    """Read mlc-chat-config.json, or the folder that holds it. MLCError names the first key that is missing or wrong."""
    if path.is_dir():
        path = path / FILE_NAME
    if not path.is_file():
        raise MLCError(f"{path} does not exist", hint="gen_config writes it")
    return parse_chat_config(read_json_object(path), where=str(path))


def unknown_keys(path: Path) -> list[str]:
    """The keys of a mlc-chat-config.json that are not read, such as keys of other mlc_llm versions."""
    return [key for key in read_json_object(path) if key != "version" and key not in _SCHEMA]


def parse_chat_config(data: Mapping[str, Any], *, where: str) -> ChatConfig:
    """The configuration in the JSON object `data`. Unknown keys are ignored."""
    values = {}
    for key, (expected, accepts) in _SCHEMA.items():
        if key not in data:
            if key in _OPTIONAL:
                continue
            raise MLCError(f"{key} is missing", where=[where], hint="run gen_config again")
        if not accepts(data[key]):
            raise MLCError(f"{key} is {json.dumps(data[key])[:120]}; expected {expected}", where=[where])
        values[key] = data[key]
    values["tokenizer_files"] = tuple(values["tokenizer_files"])
    values["tokenizer_info"] = _tokenizer_info(values["tokenizer_info"])
    values["conv_template"] = Conversation.from_dict(values["conv_template"], where=f"{where}, conv_template")
    if isinstance(values["eos_token_id"], list):
        values["eos_token_id"] = tuple(values["eos_token_id"])
    return ChatConfig(**values)


def is_int(value: object) -> TypeGuard[int]:
    """Whether a value is a JSON integer; true and false are not."""
    return type(value) is int


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a finite JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def is_id(value: object) -> TypeGuard[int]:
    """Whether a value is a token id."""
    return is_int(value) and 0 <= value < 2**31


def is_ids(value: object) -> bool:
    """Whether a value is a token id or a non-empty list of token ids."""
    return is_id(value) or (isinstance(value, list) and len(value) > 0 and all(map(is_id, value)))


def _tokenizer_info(data: Mapping[str, Any]) -> TokenizerInfo:
    return TokenizerInfo(**{f.name: data[f.name] for f in fields(TokenizerInfo) if f.name in data})


def _is_tokenizer_info(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    flags = [value.get("prepend_space_in_encode", False), value.get("strip_space_in_decode", False)]
    return value.get("token_postproc_method", "byte_fallback") in POSTPROC_METHODS and all(
        isinstance(flag, bool) for flag in flags
    )


def _is_files(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) and v == Path(v).name for v in value)


def _at_least(low: int) -> Callable[[object], bool]:
    return lambda value: is_int(value) and low <= value < 2**31


_OPTIONAL = ("model_task", "embedding_metadata", *OWN_KEYS)
_SIZE = ("a positive integer", _at_least(1))
_SIZE_OR_UNUSED = ("an integer, -1 when not used", _at_least(-1))
_NUMBER = ("a number", is_number)
_OBJECT = ("an object", lambda value: isinstance(value, dict))
_SCHEMA: dict[str, tuple[str, Callable[[object], bool]]] = {
    "model_type": ("a string", lambda value: isinstance(value, str)),
    "quantization": ("a string", lambda value: isinstance(value, str)),
    "model_config": _OBJECT,
    "vocab_size": _SIZE,
    "context_window_size": _SIZE_OR_UNUSED,
    "sliding_window_size": _SIZE_OR_UNUSED,
    "prefill_chunk_size": _SIZE,
    "attention_sink_size": _SIZE_OR_UNUSED,
    "tensor_parallel_shards": _SIZE,
    "pipeline_parallel_stages": _SIZE,
    "active_vocab_size": _SIZE,
    "temperature": _NUMBER,
    "presence_penalty": _NUMBER,
    "frequency_penalty": _NUMBER,
    "repetition_penalty": _NUMBER,
    "top_p": _NUMBER,
    "tokenizer_files": ("a list of file names", _is_files),
    "tokenizer_info": ("an object with token_postproc_method byte_level or byte_fallback", _is_tokenizer_info),
    "conv_template": _OBJECT,
    "pad_token_id": ("a token id", is_id),
    "bos_token_id": ("a token id", is_id),
    "eos_token_id": ("a token id or a list of them", is_ids),
    "model_task": ("chat or embedding", lambda value: value in ("chat", "embedding")),
    "embedding_metadata": ("an object or null", lambda value: value is None or isinstance(value, dict)),
    "image_processor": ("an object or null", lambda value: value is None or isinstance(value, dict)),
    "top_k": ("an integer of at least 0", _at_least(0)),
    "min_p": _NUMBER,
    "typical_p": _NUMBER,
}
