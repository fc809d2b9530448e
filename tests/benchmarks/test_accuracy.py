"""Parts of the accuracy benchmark: docstrings of a folder, importance matrices in files, ratios of divergences."""

from __future__ import annotations

import numpy as np
import pytest
from accuracy import Record
from accuracy_document import ratio
from accuracy_texts import SHORTEST, docstrings
from peers import importance_files

from mlc_toolchain.imatrix import read_imatrix
from model_zoo.weight_expr import CheckpointTensor
from model_zoo.weight_map import Production

LONG = "word " * SHORTEST


def test_docstrings_that_are_long_enough_in_the_order_of_files(tmp_path):
    (tmp_path / "b.py").write_text(f'"""{LONG}second"""\ndef f():\n    """short"""\n')
    (tmp_path / "a.py").write_text(f'class A:\n    """{LONG}first"""\n')
    (tmp_path / "broken.py").write_text(f'"""{LONG}"""\ndef\n')
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "c.py").write_text(f'"""{LONG}"""\n')
    assert [text.split()[-1] for text in docstrings(tmp_path)] == ["first", "second"]


def test_importance_matrices_are_those_that_the_converter_reads(tmp_path):
    means = {"blk.0.ffn_down.weight": np.float32([1, 4, 9]), "blk.1.ffn_down.weight": np.float32([0.5, 0, 2])}
    importance_files.write(means, tmp_path / "matrix")
    read = importance_files.read(tmp_path / "matrix")
    assert {name: values.tolist() for name, values in read.items()} == {n: v.tolist() for n, v in means.items()}
    name = "model.layers.1.mlp.down_proj.weight"
    known = read_imatrix(tmp_path / "matrix", [Production(name, (5, 3), CheckpointTensor(name))], "llama")
    assert known.squares[name].tolist() == [0.5, 0, 2]


def test_a_ratio_of_rows_that_differ_by_a_factor_has_no_error():
    parts = np.array([1.0, 2.0, 6.0])
    assert ratio(2 * parts, parts) == (2.0, 0.0)
    value, error = ratio(np.array([2.0, 2.0]), np.array([1.0, 3.0]))
    assert (value, error) == (1.0, pytest.approx(1 / 2))


def test_rows_of_another_text_are_not_joined(tmp_path):
    record = Record(tmp_path / "accuracy.json")
    record.describe({"title": "tiny", "text_sha256": "aa"})
    record.describe({"title": "tiny", "text_sha256": "bb"})  # no rows yet
    record.rows = [{"name": "q4f16_1"}]
    with pytest.raises(
        SystemExit, match="accuracy.json has rows of another text_sha256; name another file with --output"
    ):
        record.describe({"title": "tiny", "text_sha256": "cc"})
    assert record.about["text_sha256"] == "bb"
