"""A compiled model with its weights and its pool of sequences: binds functions to arrays and calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from mlc_errors import MLCError, UsageError
from mlc_runtime.arguments import Sizes, allocate, check_arguments
from mlc_runtime.arrays import to_tensor, tvm_ffi
from mlc_runtime.kept_weights import identity, kept_path, read_kept, write_kept
from mlc_runtime.library import Context, ForkSafeLock, Library
from mlc_runtime.memory import Array
from mlc_runtime.model_spec import ParamSpec, model_spec
from mlc_runtime.pool import SequencePool
from mlc_runtime.weights import LoadProgress, Params, TensorCache, check_params, load_params, packed_array

Call = Callable[[], object]
Inputs = Mapping[str, Array | tvm_ffi.Tensor]


class CompiledModel:
    """The library's functions bound to the weights of a folder.

    Raises MLCError when the weights do not match the library. One call at a time: threads have to hold ``lock``.
    """

    def __init__(
        self,
        library: Library,
        weights: TensorCache,
        num_threads: int | None = None,
        progress: LoadProgress | None = None,
    ):
        self.library = library
        self.lock = ForkSafeLock()
        self.spec = model_spec(library.metadata)
        self.context = Context(library, num_threads)
        self.memory = self.context.memory
        self.memory.defer()
        kept = None if library.is_for_gpu else read_kept(*kept_for(library, weights), self.spec.params)
        self.params: Params = load_params(self.spec.params, weights, self._pack, progress, self.memory, kept)
        self._packed_params = to_tensor(self.params.table)

    @cached_property
    def pool(self) -> SequencePool:
        """The sequences of this model; their state arrays are passed to all functions with inputs of their names."""
        return SequencePool.of(self.spec, self.memory)

    def bind(self, name: str, inputs: Inputs, outputs: Sequence[Array]) -> Call:
        """Bind function ``name`` to arrays and return a call without arguments. Arrays are checked only here.

        The weights and the pool's arrays are bound to the inputs of their names. On a device,
        mirrored arrays (``memory``) are bound to their device copies; other inputs are copied once, here, and other
        outputs after each call.
        """
        tensors, _ = self._arguments(name, inputs)
        return self._bound(name, tensors, outputs)

    def call(self, name: str, inputs: Inputs) -> list[np.ndarray]:
        """Call a function once; returns its results as new arrays."""
        tensors, sizes = self._arguments(name, inputs)
        outputs = [allocate(output, sizes) for output in self.library[name].spec.outputs]
        self._bound(name, tensors, outputs)()
        return outputs

    def check_ids(self, ids: Sequence[int]) -> np.ndarray:
        """The ids as int32 [n]. Raises UsageError for an empty list and for ids outside of the vocabulary."""
        array = np.asarray(ids)
        if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
            got = f"{array.dtype} {list(array.shape)}"
            raise UsageError(f"token ids are {got}; expected a list of at least one integer")
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= self.spec.vocab_size:
            wrong = low if low < 0 else high
            raise UsageError(f"token id {wrong} is outside of the vocabulary; expected 0 to {self.spec.vocab_size - 1}")
        return array.astype(np.int32)

    def packed(self, spec: ParamSpec, source: np.ndarray) -> Array:
        """A parameter in the layout that the library's functions read."""
        return packed_array(spec, source, self._pack, self.memory)

    def close(self) -> None:
        with self.lock.held():
            self.context.close()
            self.params.free()

    def _arguments(self, name: str, inputs: Inputs) -> tuple[list[object], Sizes]:
        spec = self.library[name].spec
        given = {"packed_params": self._packed_params, **self.pool.inputs, **inputs}
        missing = [t.name for t in spec.inputs if t.name not in given]
        if missing:
            raise MLCError(f"function {name} requires {', '.join(missing)}, which this runtime does not provide")
        tensors = tuple(self.memory.tensor(given[t.name]) for t in spec.inputs)
        return check_arguments(spec, tensors, self.library.is_for_gpu)

    def _bound(self, name: str, tensors: Sequence[object], outputs: Sequence[Array]) -> Call:
        places, finish = self.memory.outputs(outputs)
        call = self.context.bound(name, *tensors, *places)
        return call if finish is None else partial(_in_turn, call, finish)

    def _pack(self, function: str, source: tvm_ffi.Tensor, packed: tvm_ffi.Tensor) -> None:
        self.context.bound(function, source, packed)()


def kept_for(library: Library, weights: TensorCache) -> tuple[Path, str | None]:
    """The file of packed weights of a library, and what it has to be made of."""
    return kept_path(library.path), identity(library.metadata, weights.folder, weights.shards)


def keep_weights(library: Library, weights: TensorCache) -> bool:
    """Write the weights as the library packs them to a file beside it, if the system will map that in huge pages.

    Raises OSError where that is not possible; MLCError where the library does not run here or does not fit.
    """
    specs = model_spec(library.metadata).params
    (path, key), packed = kept_for(library, weights), [s for s in specs if s.packed is not None]
    if key is None or library.is_for_gpu or not packed:
        return False
    check_params(specs, weights)
    context = Context(library, None)

    def pack(function: str, source: tvm_ffi.Tensor, packed: tvm_ffi.Tensor) -> None:
        context.bound(function, source, packed)()

    try:
        write_kept(path, key, specs, (packed_array(s, weights.read(s.name), pack, context.memory) for s in packed))
    finally:
        context.close()
    if read_kept(path, key, specs) is None:
        path.unlink()
        return False
    return True


def _in_turn(call: Call, finish: Call) -> None:
    call()
    finish()
