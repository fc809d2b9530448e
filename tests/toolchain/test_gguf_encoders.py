"""GGUF files of encoders give the checkpoint's parameters; their word pieces are those of BERT's tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from mlc_toolchain.gguf_checkpoint import GGUFCheckpoint
from mlc_toolchain.gguf_encoders import ENCODERS
from mlc_toolchain.tokenizer.files import from_gguf_metadata
from tests.toolchain.gguf_forms import Form, Tensors, changed, parameters_of_both

COMMON: dict[str, Any] = {
    "block_count": 2,
    "embedding_length": 60,
    "context_length": 64,
    "feed_forward_length": 52,
    "attention.head_count": 6,
    "attention.causal": False,
}
NORM: dict[str, Any] = {"attention.layer_norm_epsilon": 1e-12}
MODERN: dict[str, Any] = {
    **COMMON,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 160000.0,
    "rope.freq_base_swa": 1e4,
    "attention.sliding_window": "local_attention",
    "attention.sliding_window_pattern": "global_attn_every_n_layers",
    "hidden_activation": "gelu",
}


def without_pooler(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if not name.startswith("pooler")}


def with_heads(raw: dict[str, Any], name: str, tensor: np.ndarray) -> tuple[str, np.ndarray]:
    """Store norms as ``w + 1``, and rename the two dense heads."""
    heads = {"dense.0.weight": "dense_2.weight", "dense.1.weight": "dense_3.weight"}
    return heads.get(name, name), tensor + 1 if name.endswith("norm.weight") else tensor


GEMMA = Form(
    "gemma-embedding",
    "embeddinggemma",
    {**COMMON, "block_count": 3, "attention.layer_norm_rms_epsilon": 1e-6, "attention.head_count_kv": 2}
    | {"attention.key_length": 12, "rope.freq_base": 1e6, "attention.sliding_window": "sliding_window"},
    changed(with_heads),
    {"sliding_window_pattern": 6, "query_pre_attn_scalar": 12},
)
FORMS = [
    Form("bert", "bert", {**COMMON, **NORM, "pooling_type": 1}, without_pooler),
    Form(
        "nomic-bert",
        "nomic_bert",
        {**COMMON, **NORM, "rope.freq_base": 1e3},
        without_pooler,
        lost=frozenset({"tie_word_embeddings"}),
    ),
    Form("modern-bert", "modernbert", {**MODERN, "block_count": 4}, changed()),
    Form("modern-bert", "modernbert/bias", {**MODERN, "attention.sliding_window_pattern": 3}, changed()),
]


def test_every_architecture_is_tested() -> None:
    assert set(ENCODERS) == {form.arch for form in FORMS}


@pytest.mark.parametrize("form", FORMS, ids=[form.id for form in FORMS])
def test_parameters_are_those_of_the_checkpoint(form: Form, tmp_path: Path) -> None:
    for name, value, wanted in parameters_of_both(form, tmp_path / "a.gguf", *form.model(tmp_path)):
        np.testing.assert_array_equal(value, wanted, err_msg=name)


def test_dense_heads_of_embeddinggemma(tmp_path: Path) -> None:
    raw, tensors = GEMMA.model(tmp_path)
    heads = {f"dense.{i}.weight": np.full(shape, i, np.float32) for i, shape in enumerate([(72, 60), (52, 72)])}
    raw, tensors = {**raw, "model_type": "embeddinggemma", "dense_sizes": [72, 52]}, {**tensors, **heads}
    for name, value, wanted in parameters_of_both(GEMMA, tmp_path / "a.gguf", raw, tensors):
        np.testing.assert_allclose(value, wanted, rtol=0, atol=1e-6, err_msg=name)


def test_embeddinggemma_without_its_dense_heads_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    raw, tensors = GEMMA.model(tmp_path)
    path = GEMMA.write(tmp_path / "a.gguf", raw, tensors)
    assert GGUFCheckpoint(path).config()["dense_sizes"] == []
    (message,) = caplog.messages
    assert message.startswith(f"{path} has no tensor dense_2.weight: vectors are those before the dense heads")


def test_pooling_by_the_first_token_is_bges(tmp_path: Path) -> None:
    form = FORMS[0]
    raw, tensors = form.model(tmp_path)
    by_first = Form("bert", "bert", {**form.metadata, "pooling_type": 2}, without_pooler)
    checkpoint = GGUFCheckpoint(by_first.write(tmp_path / "a.gguf", raw, tensors))
    assert checkpoint.config()["model_type"] == "bert-bge"


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "the", ",", "é", "##s", "世", "cafe"]


@pytest.mark.parametrize("more", [[], ["Bern"]], ids=["lower-case", "cased"])
def test_word_pieces_are_berts(more: list[str]) -> None:
    vocab = {text: i for i, text in enumerate([*PIECES, *more])}
    theirs = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer(lowercase=not more)
    theirs.pre_tokenizer, theirs.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    theirs.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    theirs.add_special_tokens(PIECES[:4])
    stored = [t if i < 4 else t[2:] if t.startswith("##") else f"▁{t}" for i, t in enumerate(vocab)]
    metadata = {"model": "bert", "tokens": stored, "token_type": [3] * 4 + [1] * (len(stored) - 4)}
    metadata |= {"bos_token_id": 2, "seperator_token_id": 3, "unknown_token_id": 1, "padding_token_id": 0}
    ours = from_gguf_metadata({f"tokenizer.ggml.{key}": value for key, value in metadata.items()}, where="a.gguf")
    for text in ("The unaffable, unaffables", "Café BERN Bern thes 世世", "", "s aff"):
        ids = theirs.encode(text).ids
        assert ours.tokenizer.encode(text).ids == ids
        assert ours.tokenizer.decode(ids) == theirs.decode(ids)
