"""Which parameters keep the blocks of quantized checkpoint tensors, and how the tensors are joined."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlc_toolchain.kept_form import keeps_form, kept_form
from mlc_toolchain.readers.base import CheckpointReader, TensorInfo
from model_zoo.weight_expr import CheckpointTensor, Concat, Expr, Slice, Stack
from quantization.kept_codes import StoredForm
from quantization.schemes import get_scheme

SCHEME = get_scheme("fp8_e4m3fn_bf16_block_scale")
ROWS = {"a": 256, "b": 256, "short": 64, "coarse": 256, "plain": 256}


class Blocks(CheckpointReader):
    """Block-scaled fp8 matrices of ``ROWS`` rows and 128 columns, each with its own random codes and scales."""

    def names(self):
        return list(ROWS)

    def info(self, name):
        return TensorInfo((ROWS[name], 128), "float32", ROWS[name] * 128)

    def read(self, name):
        raise AssertionError(f"{name} is not dequantized")

    def file_of(self, name):
        raise AssertionError("there is no file")

    files = names

    def stored_form(self, name):
        block = (256, 256) if name == "coarse" else (128, 128)
        return None if name == "plain" else StoredForm("block", block, lambda kind: part(name, kind))


def part(name: str, kind: str) -> np.ndarray:
    rng = np.random.default_rng(ord(name[0]))
    shape = (ROWS[name], 128) if kind == "weight" else (-(-ROWS[name] // 128), 1)
    return rng.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn if kind == "weight" else np.float32)


def tensors(*names: str) -> tuple[CheckpointTensor, ...]:
    return tuple(map(CheckpointTensor, names))


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (Concat(tensors("a", "short")), True),
        (Concat(tensors("short", "a")), False),
        (Concat(tensors("a", "b"), axis=1), False),
        (Concat(tensors("a", "plain")), False),
        (Concat(tensors("a", "coarse")), False),
        (Slice(tensors("a"), 0, 0, 128), False),
        (Stack((Concat(tensors("a", "short")), Concat(tensors("b", "short")))), True),
        (Stack(tensors("a", "plain")), False),
    ],
    ids=str,
)
def test_blocks_are_kept_where_they_meet(value: Expr, kept: bool) -> None:
    assert keeps_form(value, Blocks(), SCHEME) == kept


def test_codes_and_scales_of_experts_are_stacked() -> None:
    value = Stack((Concat(tensors("a", "short")), Concat(tensors("b", "short"))))
    kinds = {"weight": np.dtype(ml_dtypes.float8_e4m3fn), "weight_scale_inv": np.dtype(np.float32)}
    made = kept_form(value, Blocks(), kinds, transposed=False)
    assert {kind: array.shape for kind, array in made.items()} == {
        "weight": (2, 320, 128),
        "weight_scale_inv": (2, 3, 1),
    }
    for kind, array in made.items():
        rows = ROWS["b"] if kind == "weight" else 2
        assert array[1, :rows].tobytes() == part("b", kind).tobytes()
        assert array[1, rows:].tobytes() == part("short", kind).tobytes()
