"""Prompts with images, on a fake library: image decoding, placeholders, ids, shared prefixes."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mlc_errors import MLCError, UsageError
from mlc_runtime.image_patches import EdgeBound
from mlc_runtime.image_processor import image_processor
from mlc_runtime.image_table import ImageTable
from mlc_runtime.images import load_image
from mlc_runtime.llm import LLM
from mlc_runtime.rotary_positions import RotaryPositions
from tests.runtime.fake_images import SETTINGS, TOKENS, VOCAB, FakeImages, with_images, write_image_folder
from tests.runtime.fake_library import FakeLibrary, metadata, next_token, write_folder

PIXELS = np.arange(2 * 2 * 3, dtype=np.uint8).reshape(2, 2, 3)


@pytest.fixture
def llm(tmp_path: Path) -> LLM:
    return LLM(write_image_folder(tmp_path), FakeImages(with_images()))


def test_images_of_every_form(tmp_path: Path) -> None:
    image = Image.fromarray(PIXELS)
    image.save(tmp_path / "an image.png")
    file = (tmp_path / "an image.png").read_bytes()
    data = "data:image/png;base64," + base64.b64encode(file).decode()
    path = tmp_path / "an image.png"
    for source in (path, str(path), path.as_uri(), file, data, image, PIXELS):
        np.testing.assert_array_equal(load_image(source), PIXELS)


def test_tokens_of_an_image_with_a_bound_of_its_longer_edge() -> None:
    """Of 28 pixels each way; sizes are rounded up, and down where there would be too many tokens."""
    assert EdgeBound(280, 100 * 28**2).grid(560, 300, 28) == (10, 6)
    assert EdgeBound(280, 100 * 28**2).grid(29, 9, 28) == (2, 1)
    assert EdgeBound(280, 16 * 28**2).grid(560, 560, 28) == (4, 4)


def test_orientation_and_transparency() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn
    file = io.BytesIO()
    Image.fromarray(PIXELS[:1]).save(file, "PNG", exif=exif)
    assert load_image(file.getvalue()).shape == (2, 1, 3)
    clear = Image.fromarray(np.zeros((1, 1, 4), np.uint8), "RGBA")
    assert load_image(clear).tolist() == [[[255, 255, 255]]]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("https://host/x.png", "images are not downloaded"),
        ("missing.png", "cannot read the image missing.png: No such file"),
        (b"GIF89a", "cannot decode an image given as bytes"),
        ("data:image/png,abc", "not an image: 'data:image/png,abc'; expected data:image/TYPE;base64,DATA"),
        (np.zeros((2, 2, 3)), r"an image is float64 \[2, 2, 3\]; expected uint8"),
        (7, "an image is int; expected a path"),
    ],
)
def test_images_that_are_refused(source: Any, message: str) -> None:
    with pytest.raises(MLCError, match=message):
        load_image(source)


def test_a_prompt_with_images(llm: LLM) -> None:
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image", "image": PIXELS},
        {"type": "image_url", "image_url": {"url": data_url(PIXELS + 1)}},
    ]
    ids = llm.chat_prompt([{"role": "user", "content": parts}])
    text = llm.tokenizer.encode("[user]a\n<begin>", add_special_tokens=False)
    between = llm.tokenizer.encode("!\n<begin>", add_special_tokens=False)
    assert ids == [*text, -1, -2, -3, *between, -4, -5, -6, *llm.tokenizer.encode("!")]
    total = [i for i in ids if i >= 0] + [11] * TOKENS + [12] * TOKENS
    assert llm.generate(ids, max_tokens=1).token_ids == (next_token(total, VOCAB),)


def data_url(pixels: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def test_a_prefix_is_shared_where_its_images_are_the_same(llm: LLM) -> None:
    ids = llm.encode("<begin>abc", [PIXELS])
    session = llm.new_session()
    session.prefill(ids)
    assert session.prefill_to([*llm.encode("<begin>abc", [PIXELS.copy()]), 5]) == 1
    other = llm.encode("<begin>abc", [PIXELS + 1])
    assert session.prefill_to(other) == len(other) - 2  # what precedes the image
    assert llm.library.calls.count("image_embed") == 2


def test_images_precede_a_prompt_without_placeholders(llm: LLM) -> None:
    assert llm.encode("x", [PIXELS]) == llm.encode("<begin>\nx", [PIXELS])


def test_placeholders_and_images_must_fit(llm: LLM) -> None:
    with pytest.raises(UsageError, match="the prompt has 2 placeholders <begin> for 1 images"):
        llm.encode("<begin> <begin>", [PIXELS])
    with pytest.raises(UsageError, match="the prompt has the text <image>, which stands for an image"):
        llm.encode("<begin> <image>", [PIXELS])
    with pytest.raises(UsageError, match=r"a part of a message is \{'type': 'audio'\}; expected a text or an image"):
        llm.chat_prompt([{"role": "user", "content": [{"type": "audio"}]}])
    with pytest.raises(MLCError, match=r"makes pixels \[1, 3, 1, 2\]; the model takes \[1, 3, 2, 2\]"):
        llm.encode("<begin>", [PIXELS[:1]])


@pytest.mark.parametrize(
    ("texts", "expected"),
    [({}, "(1.1)(1.2)\n\n\n!"), ({"opening": "<", "separators": [",", ";", "."]}, "<(1.1),(1.2);.\n!")],
)
def test_tiles_precede_the_whole_image(texts: dict[str, Any], expected: str, tmp_path: Path) -> None:
    write_image_folder(tmp_path)
    settings = {**SETTINGS, "kind": "tiles", "longest_edge": 4, "tile": 2, "divided": True}
    config = json.loads((tmp_path / "mlc-chat-config.json").read_text())
    (tmp_path / "mlc-chat-config.json").write_text(json.dumps({**config, "image_processor": settings}))
    data = with_images()
    data["image_input"] |= {"tile": ["({row}.{column})", data["image_input"]["token_id"]], **texts}
    llm = LLM(tmp_path, FakeImages(data))
    ids = llm.encode("<begin>", [np.arange(24, dtype=np.uint8).reshape(2, 4, 3)])
    assert [i for i in ids if i < 0] == list(range(-1, -10, -1))
    assert llm.tokenizer.decode([i for i in ids if i >= 0]) == expected


def test_a_conversation_template_has_placeholders(llm: LLM) -> None:
    (llm.folder / "chat_template.jinja").unlink()
    conversation = {"roles": {"user": "U", "assistant": "A"}, "seps": ["\n"]}
    config = json.loads((llm.folder / "mlc-chat-config.json").read_text())
    (llm.folder / "mlc-chat-config.json").write_text(json.dumps({**config, "conv_template": conversation}))
    content = [{"type": "image", "image": PIXELS}, {"type": "text", "text": "x"}]
    expected = llm.image_prompts.encode("U<begin>\nx\nA", [PIXELS], add_special_tokens=False)
    assert llm.chat_prompt([{"role": "user", "content": content}]) == expected


def test_a_model_of_text_takes_no_images(tmp_path: Path) -> None:
    text = LLM(write_folder(tmp_path), FakeLibrary(metadata(258)))
    with pytest.raises(UsageError, match="fake models take no images"):
        text.encode("x", [PIXELS])
    with pytest.raises(UsageError, match="token id -1 is outside of the vocabulary"):
        text.encode([-1])


def test_a_folder_without_image_settings(tmp_path: Path) -> None:
    llm = LLM(write_folder(tmp_path, VOCAB), FakeImages(with_images()))
    with pytest.raises(MLCError, match="has no image_processor"):
        llm.encode("x", [PIXELS])


def test_the_table_drops_what_was_not_used_for_longest() -> None:
    made: list[float] = []

    def embed(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        made.append(float(inputs["x"][0]))
        return np.repeat(inputs["x"][:, None], TOKENS, 0)

    table = ImageTable(embed, capacity=2 * TOKENS)

    def ids(value: float) -> list[int]:
        return table.ids({"x": np.array([value])}, (1, TOKENS))

    first, second = ids(1.0), ids(2.0)
    assert ids(1.0) == first
    third = ids(3.0)
    assert table.embeddings(np.array([*third[1:], *first])).ravel().tolist() == [3, 3, 1, 1, 1]
    assert made == [3.0, 1.0]
    with pytest.raises(MLCError, match="has an image that is not kept any more"):
        table.embeddings(np.array(second))
    tokens = np.array([5, 6, 7, *third, *third, *first[2:], 9])
    spans = [(s.start, s.stop) for s in table.spans(tokens, 2)]
    assert spans == [(0, 2), (2, 3), (3, 5), (5, 6), (6, 8), (8, 9), (9, 10), (10, 11)]
    assert table.cell(third[2]) == (2, 1, TOKENS)


def test_rotary_positions() -> None:
    rotary = RotaryPositions(rows=2)

    def cell(token: int) -> tuple[int, int, int]:
        return -1 - token, 2, 3

    ids = np.array([5, 5, -1, -2, -3, -4, -5, -6, 5, 5])
    expected = np.array(
        [[0, 1, 2, 2, 2, 2, 2, 2, 5, 6], [0, 1, 2, 2, 2, 3, 3, 3, 5, 6], [0, 1, 2, 3, 4, 2, 3, 4, 5, 6]]
    )
    np.testing.assert_array_equal(rotary.extend(0, 0, ids, cell), expected)
    assert [rotary.shift(0, place) for place in (0, 7, 8, 20)] == [0, 0, -3, -3]
    rotary.fork(0, 8, 1)
    rotary.fork(0, 7, 0)
    assert (rotary.shift(0, 9), rotary.shift(1, 9)) == (0, -3)
    np.testing.assert_array_equal(rotary.extend(0, 7, ids[7:], cell), expected[:, 7:])


def test_settings_that_are_malformed() -> None:
    with pytest.raises(MLCError, match="image_processor is malformed: KeyError: 'kind'"):
        image_processor({}, 1)
    with pytest.raises(MLCError, match="kind is 'parts'; expected one of whole, tiles, .*, fitted_tiles, patches"):
        image_processor({"kind": "parts"}, 1)
    with pytest.raises(MLCError, match="cannot crop 3 x 3 pixels of an image that is resized to 2 x 2"):
        image_processor({**SETTINGS, "crop": [3, 3]}, 1).views(PIXELS)
