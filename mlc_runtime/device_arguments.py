"""Arguments of functions that run on a device: arrays in host memory are copied to it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from mlc_runtime.arrays import is_on_cpu, tvm_ffi
from mlc_runtime.device_memory import DeviceArray, DeviceMemory
from mlc_runtime.metadata import FunctionSpec, ScalarSpec, TensorSpec


class DeviceArguments:
    """The arguments of a call, with arrays in host memory copied to the device.

    operands: tensors and numbers for the library; any_on_device: whether a tensor was already on the device.
    """

    def __init__(self, spec: FunctionSpec, operands: Sequence[Any], memory: DeviceMemory):
        self._memory = memory
        self._written: list[tuple[tvm_ffi.Tensor, DeviceArray]] = []
        self.any_on_device = False
        self.operands = [self._placed(s, x) for s, x in zip(spec.inputs, operands, strict=True)]

    def returning(self, call: Callable[[], object]) -> Callable[[], object]:
        """Wrap a call: copy the arguments that it writes back to host memory afterwards."""
        return self._and_copy(call) if self._written else call

    def _placed(self, spec: TensorSpec | ScalarSpec, operand: Any) -> Any:
        if isinstance(spec, ScalarSpec) or spec.table:
            return operand
        if not is_on_cpu(operand):
            self.any_on_device = True
            return operand
        copy = self._memory.moved(operand)
        if spec.written:
            self._written.append((operand, copy))
        return copy.tensor

    def _and_copy(self, call: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            result = call()
            for tensor, copy in self._written:
                written = copy.numpy()  # a name keeps it alive during the copy
                ctypes.memmove(tensor.data_ptr(), written.ctypes.data, written.nbytes)
            return result

        return run
