"""MobileNetV5: the reference of the tests beside timm's results, and configurations that are refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from mlc_errors import MLCError
from model_zoo.mobilenetv5 import SMALL, MobileNetV5, MobileNetV5Config
from tests.model_zoo.mobilenetv5_reference import EXPECTED, Tower, weights_and_pixels


def test_the_reference_computes_what_timm_does() -> None:
    tower = Tower(MobileNetV5Config.from_hf(SMALL)).eval()
    pixels, expected = weights_and_pixels(tower), json.loads(EXPECTED.read_text())
    with torch.no_grad():
        tokens = tower(pixels)[0].numpy()
    np.testing.assert_allclose(tokens, expected["tokens"], atol=1e-5)
    assert {name: list(p.shape) for name, p in tower.named_parameters()} == expected["parameters"]


def test_the_published_tower() -> None:
    """Tensors and elements of timm's ``mobilenetv5_300m_enc``."""
    c = MobileNetV5Config()
    assert (c.sides, [len(stage) for stage in c.stages]) == ([192, 96, 48, 24], [3, 5, 37, 39])
    shapes = [parameter.shape for _, parameter in MobileNetV5(c).named_parameters()]
    assert (len(shapes), sum(int(np.prod(shape)) for shape in shapes)) == (548, 294126912)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"architecture": "resnet50"}, "architecture: got 'resnet50'; expected 'mobilenetv5_300m_enc'"),
        ({"model_type": "vit"}, "got model_type 'vit'; expected gemma3n_vision"),
        ({"model_args": {"drop_rate": 0.1}}, "model_args: 'drop_rate' is not supported"),
        ({"model_args": {"stem_size": "8"}}, "stem_size: got '8'; expected a positive integer"),
        ({"model_args": {"block_args": [["er_r1_k3_s2_e4_c16"]]}}, "got 1 stages; expected at least 2"),
        ({"model_args": {"block_args": [["er_r1_k3_s2_e4_c16"], [7]]}}, "got 7; expected blocks such as"),
        ({"model_args": {"block_args": [["er_r1_k3_s3_e4_c16"]] * 2}}, "expected one value for each of rksec"),
        ({"model_args": {"block_args": [["er_r1_k3_s2_e4_c12"]] * 2}}, "got 12 channels; expected a multiple of 8"),
        ({"image_size": 740}, "got 47 places resized to 24; expected a divisor"),
    ],
)
def test_configurations_that_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(MLCError, match=message):
        MobileNetV5Config.from_hf({"model_type": "gemma3n_vision", **changed})
