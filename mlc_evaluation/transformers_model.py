"""Run a checkpoint in transformers (an optional dependency) in float32: logits, and the values of every module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mlc_errors import MLCError, UsageError
from mlc_evaluation.kernel_calls import layer_of

Array = np.ndarray[Any, Any]
PREFIX = "hf:"
EAGER = "eager_attention_forward"
"""The name of the eager attention function in transformers' model files."""
NEEDED = ("torch", "transformers")


@dataclass(frozen=True)
class ReferenceValue:
    """A value that a kernel should compute, float32 [tokens, width]. layer: None outside of the layers.

    is_layer: whether it is the result of a layer, or of a module outside of the layers.
    """

    name: str
    value: Array
    layer: int | None
    is_layer: bool


def checkpoint_path(text: str) -> Path:
    """The folder in ``hf:PATH``. Raises UsageError for other texts and if there is no such folder."""
    if not text.startswith(PREFIX):
        raise UsageError(f"got {text!r}; expected {PREFIX}PATH, the folder of a Hugging Face checkpoint")
    path = Path(text.removeprefix(PREFIX))
    if not path.is_dir():
        raise UsageError(f"{path} does not exist; expected the folder of a Hugging Face checkpoint")
    return path


class TransformersModel:
    """A causal language model of transformers in float32. Raises MLCError if a package is missing.

    Code in the checkpoint is not executed.
    """

    def __init__(self, path: Path):
        self._torch, self._transformers = _package("torch"), _package("transformers")
        self._transformers.utils.logging.disable_progress_bar()
        loader = self._transformers.AutoModelForCausalLM
        try:
            self.model = loader.from_pretrained(path, dtype="float32", attn_implementation="eager").eval()
        except (OSError, ValueError, KeyError) as error:
            reason = str(error).splitlines()[0]
            raise MLCError(f"transformers cannot load the checkpoint: {reason}", where=[str(path)]) from None

    @property
    def vocab_size(self) -> int:
        return int(self.model.config.get_text_config().vocab_size)

    def logits(self, ids: Sequence[int]) -> Array:
        """The logits after each of ``ids``, float32 [len(ids), V]."""
        with self._torch.no_grad():
            return np.asarray(self.model(self._tokens(ids), use_cache=False).logits[0].float().numpy())

    def trace(self, ids: Sequence[int]) -> list[ReferenceValue]:
        """Inputs and results of the modules, in the order in which they finish.

        For each module its results, and for leaf modules also the input. For attention also keys, values and queries
        after rotary embedding, if the model calls transformers' eager attention function.
        """
        recorder = _Recorder(len(ids), {id(m): name for name, m in self.model.named_modules()})
        handles = [handle for m in self.model.modules() for handle in recorder.hooks(m)]
        try:
            with _attention_seen_by(recorder.attention, self.model.modules()), self._torch.no_grad():
                self.model(self._tokens(ids), use_cache=False)
        finally:
            for handle in handles:
                handle.remove()
        return recorder.values

    def _tokens(self, ids: Sequence[int]) -> Any:
        return self._torch.tensor([list(ids)])


class _Recorder:
    """Records tensors with ``length`` tokens. names: names of modules, by identity."""

    def __init__(self, length: int, names: dict[int, str]):
        self.length, self.names = length, names
        self.values: list[ReferenceValue] = []

    def hooks(self, module: Any) -> Iterator[Any]:
        name = self.names[id(module)] or "model"
        if not any(module.children()):
            yield module.register_forward_pre_hook(lambda _, args: self.add(f"{name}.input", args))
        yield module.register_forward_hook(lambda _, args, result: self.add(name, result))

    def attention(self, module: Any, query: Any, key: Any, value: Any) -> None:
        """Record the inputs of attention. query, key, value: [1, heads, tokens, size]."""
        for name, tensor in (("value", value), ("key", key), ("query", query)):
            self.add(f"{self.names[id(module)]}.{name}", tensor.transpose(1, 2))

    def add(self, name: str, result: Any) -> None:
        """Record the tensors of a result that have a row per token; for a whole model's result, the logits."""
        if hasattr(result, "logits"):
            name, result = "logits", result.logits
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if hasattr(tensor, "is_floating_point") and self._is_of_tokens(tensor):
                rows = tensor.detach().float().reshape(self.length, -1).numpy().copy()
                self.values.append(ReferenceValue(name, _once(rows), layer_of(name), _is_layer(name)))

    def _is_of_tokens(self, tensor: Any) -> bool:
        shape = tuple(tensor.shape)
        return bool(tensor.is_floating_point()) and (shape[:2] == (1, self.length) or shape[:1] == (self.length,))


def _once(rows: Array) -> Array:
    """Drop the second half of the columns if both halves are equal, as in rotary tables."""
    first, second = np.split(rows, 2, axis=1) if rows.shape[1] % 2 == 0 else (rows, None)
    return first if second is not None and np.array_equal(first, second) else rows


def _is_layer(name: str) -> bool:
    """Whether a module is a layer, such as ``model.layers.3``, or outside of the layers."""
    parts = name.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdigit()]
    return parts[-1] != "input" and (not numbers or numbers[0] == len(parts) - 1)


@contextmanager
def _attention_seen_by(seen: Callable[..., None], modules: Iterable[Any]) -> Iterator[None]:
    """Call ``seen(module, query, key, value)`` before the attention of modules that compute it eagerly."""
    files = {sys.modules[type(m).__module__] for m in modules}
    before = {file: getattr(file, EAGER) for file in files if hasattr(file, EAGER)}

    def wrapped(eager: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        seen(*args[:4])
        return eager(*args, **kwargs)

    for file, eager in before.items():
        setattr(file, EAGER, partial(wrapped, eager))
    try:
        yield
    finally:
        for file, eager in before.items():
            setattr(file, EAGER, eager)


def _package(name: str) -> Any:
    """Import an optional package. Raises MLCError if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MLCError(
            f"the package {name} is not installed; comparing with a checkpoint needs {' and '.join(NEEDED)}",
            hint=f"pip install {' '.join(NEEDED)}",
        ) from None
