"""The files of sentence-transformers, and their unsupported settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlc_errors import MLCError
from mlc_toolchain.sentence_transformers import sentence_modules, with_heads
from mlc_toolchain.source import FolderSource
from tests.toolchain.sentence_files import write_modules

HEADS = [{"linear.weight": np.ones((6, 4), np.float32)}, {"linear.weight": np.ones((3, 6), np.float32)}]


def test_modules_of_a_checkpoint(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "Q: ", "document": ""}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    write_modules(tmp_path, "lasttoken", HEADS, prompts=prompts, max_seq_length=512)
    modules = sentence_modules(FolderSource(tmp_path))
    assert modules is not None
    assert modules.metadata() == {
        "pooling_strategy": "last",
        "normalize": True,
        "prompts": {"query": "Q: ", "document": ""},
        "max_seq_length": 512,
    }
    assert with_heads({"model_type": "bert"}, modules) == {
        "model_type": "bert",
        "dense_sizes": [6, 3],
        "dense_bias": False,
        "dense_activation": "identity",
    }
    assert [head.file.name for head in modules.heads] == ["model.safetensors"] * 2


def test_a_checkpoint_without_modules(tmp_path: Path) -> None:
    assert sentence_modules(FolderSource(tmp_path)) is None
    assert with_heads({"model_type": "bert"}, None) == {"model_type": "bert"}


def test_modules_without_normalization(tmp_path: Path) -> None:
    write_modules(tmp_path, "cls_token", kinds=["Transformer", "Pooling"])
    modules = sentence_modules(FolderSource(tmp_path))
    assert modules is not None and modules.metadata() == {"pooling_strategy": "cls", "normalize": False}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "max_tokens"}, "pooling: got pooling_mode_max_tokens; expected one of"),
        ({"pooling_mode_cls_token": True}, "pooling: got pooling_mode_cls_token, pooling_mode_mean_tokens; expected"),
        ({"include_prompt": False}, "include_prompt is false"),
        (
            {"kinds": ["Transformer", "Pooling", "LSTM"]},
            "got Transformer, Pooling, LSTM; expected Transformer, Pooling",
        ),
        ({"kinds": ["Transformer", "Pooling", "Dense"]}, "names a module without 2_Dense/config.json"),
        ({"heads": HEADS, "activation": "torch.nn.modules.activation.GELU"}, "activation_function: got GELU; expected"),
        ({"prompts": {"prompts": {"query": 3}}}, "prompts is {'query': 3}; expected texts by name"),
        ({"max_seq_length": 9, "do_lower_case": True}, "do_lower_case is true, which is not supported"),
        ({"max_seq_length": 0}, "max_seq_length is 0; expected a positive integer"),
    ],
)
def test_what_is_not_supported(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    write_modules(tmp_path, **options)
    with pytest.raises(MLCError) as error:
        sentence_modules(FolderSource(tmp_path))
    assert message in error.value.message
