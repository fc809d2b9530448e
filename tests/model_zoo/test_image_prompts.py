"""From an image and a text to logits, with the files of a checkpoint, against transformers' processor and model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.lfm2_vl.processing_lfm2_vl import Lfm2VlProcessor
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from model_zoo.lfm2_vl import END, START, TILE, WHOLE
from model_zoo.mistral3 import ROW_ENDS
from tests.model_zoo.architecture_cases import CASES
from tests.model_zoo.compiled import build, padded_patches, random_model, save
from tests.model_zoo.phi3_v_reference import MEAN, STD, pixels
from tests.runtime.fake_library import BOS, byte_tokenizer

IMAGE = np.random.default_rng(8).integers(0, 256, (33, 61, 3), np.uint8)


MAX_TILES = 4
PHI3_PROCESSOR = {
    "image_processor_type": "Phi3VImageProcessor",
    "num_crops": MAX_TILES,
    "image_mean": MEAN,
    "image_std": STD,
}


def test_an_image_in_a_prompt(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<image>"])
    token = tokenizer.token_to_id("<image>")
    case = next(c for c in CASES if c.name == "qwen2_5_vl")
    case = replace(case, options={**case.options, "image_token_id": token})
    model, source = random_model(case), tmp_path / "source"
    save(case, model, source)
    tokenizer.save(str(source / "tokenizer.json"))
    processor = Qwen2VLImageProcessorPil(patch_size=7, size={"shortest_edge": 400, "longest_edge": 1300})
    processor.save_pretrained(source)
    inputs = processor(Image.fromarray(IMAGE), return_tensors="pt")
    count = int(inputs["image_grid_thw"].prod()) // 4
    before, after = tokenizer.encode("Here: ").ids, tokenizer.encode(" what?").ids
    tokens = torch.tensor([[*before, *[token] * count, *after]])
    with torch.no_grad():
        expected = model(tokens, **inputs, mm_token_type_ids=(tokens == token).int(), use_cache=False).logits[0].numpy()
    with build(case, model, tmp_path) as llm:
        ids = llm.encode("Here: <image> what?", [IMAGE])
        assert [i for i in ids if i < 0] == [-1 - i for i in range(count)]
        np.testing.assert_allclose(llm.logits(ids), expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_an_image_whose_rows_of_tokens_end_with_a_token_of_text(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["[IMG]", *ROW_ENDS])
    token, row_end, end = (tokenizer.token_to_id(text) for text in ("[IMG]", *ROW_ENDS))
    case = next(c for c in CASES if c.name == "mistral3" and c.grids)
    case = replace(case, options={**case.options, "image_token_index": token})
    model, source = random_model(case), tmp_path / "source"
    save(case, model, source)
    tokenizer.save(str(source / "tokenizer.json"))
    PixtralImageProcessorPil(size={"longest_edge": 50}).save_pretrained(source)
    (source / "processor_config.json").write_text(json.dumps({"patch_size": 7, "spatial_merge_size": 2}))
    inputs = PixtralImageProcessorPil(size={"longest_edge": 50}, patch_size=14)(
        Image.fromarray(IMAGE), return_tensors="pt"
    )
    rows, columns = (int(edge) // 14 for edge in inputs["image_sizes"][0])
    image = [*([*[token] * columns, row_end] * rows)[:-1], end]
    before, after = tokenizer.encode("Here: ").ids, tokenizer.encode(" what?").ids
    with torch.no_grad():
        expected = model(torch.tensor([[*before, *image, *after]]), **inputs, use_cache=False).logits[0].numpy()
    with build(case, model, tmp_path) as llm:
        ids = llm.encode("Here: [IMG] what?", [IMAGE])
        assert (rows, columns, len(ids)) == (2, 4, len(expected))
        np.testing.assert_allclose(llm.logits(ids), expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_an_image_in_tiles_whose_rows_of_tokens_go_through_all_tiles(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<|image|>"])
    case = next(c for c in CASES if c.name == "phi3_v")
    token, begin = (tokenizer.token_to_id(text) for text in ("<|image|>", BOS))
    case = replace(case, options={**case.options, "image_token_id": token, "bos_token_id": begin})
    model, source = random_model(case), tmp_path / "source"
    save(case, model, source)
    tokenizer.save(str(source / "tokenizer.json"))
    (source / "preprocessor_config.json").write_text(json.dumps(PHI3_PROCESSOR))
    before, after = tokenizer.encode("Here: ").ids, [begin, *tokenizer.encode(" what?").ids]
    with build(case, model, tmp_path) as llm:
        for image in (IMAGE, IMAGE[:, :20]):
            ids = llm.encode("Here: <|image|> what?", [image])
            with torch.no_grad():
                expected = model.with_image(before, pixels(Image.fromarray(image), MAX_TILES), after).numpy()
            assert len(ids) == len(expected)
            np.testing.assert_allclose(llm.logits(ids), expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_an_image_in_tiles_of_patches(tmp_path: Path) -> None:
    """Transformers' processor needs torchvision: pixels are ours, texts around tiles are its."""
    texts = {"start": START, "end": END, "thumbnail": WHOLE}
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<image>", *texts.values(), *(TILE.format(row=1, column=c) for c in (1, 2))])
    token = tokenizer.token_to_id("<image>")
    case = next(c for c in CASES if c.name == "lfm2_vl")
    text = {**case.options["text_config"], "vocab_size": tokenizer.get_vocab_size()}
    case = replace(case, options={**case.options, "text_config": text, "image_token_id": token})
    model, source = random_model(case), tmp_path / "source"
    save(case, model, source)
    tokenizer.save(str(source / "tokenizer.json"))
    sizes = {"encoder_patch_size": 7, "tile_size": 28, "min_image_tokens": 1, "max_image_tokens": 4}
    settings = {"image_processor_type": "Lfm2VlImageProcessorFast", "max_pixels_tolerance": 1.0, **sizes}
    (source / "preprocessor_config.json").write_text(json.dumps(settings))
    names = SimpleNamespace(image_token="<image>", **{f"image_{name}_token": text for name, text in texts.items()})
    image = Lfm2VlProcessor._build_image_tokens(names, 1, 2, 4, 2, True, True)
    tokens = torch.tensor([tokenizer.encode(f"Here: {image} what?").ids])
    with build(case, model, tmp_path) as llm:
        views = llm.image_prompts.processor.views(IMAGE)
        grids = [view.grid for view in views.views if view.grid]
        inputs = padded_patches([view.inputs["pixel_values"] for view in views.views], grids)
        with torch.no_grad():
            expected = model(tokens, **inputs, use_cache=False).logits[0].numpy()
        ids = llm.encode("Here: <image> what?", [IMAGE])
        assert grids == [(2, 2), (2, 2), (1, 2)]
        assert [max(i, -1) for i in ids] == [-1 if i == token else i for i in tokens[0].tolist()]
        np.testing.assert_allclose(llm.logits(ids), expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_an_image_between_two_tokens(tmp_path: Path) -> None:
    names = ("<|image|>", "<|image>", "<image|>")
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(list(names))
    token, begin, end = (tokenizer.token_to_id(name) for name in names)
    case = next(c for c in CASES if c.name == "gemma4" and c.grids)
    text = {**case.options["text_config"], "vocab_size_per_layer_input": 261, "max_position_embeddings": 128}
    ids = {"image_token_id": token, "boi_token_id": begin, "eoi_token_id": end}
    case = replace(case, options={**case.options, **ids, "text_config": text})
    model, source = random_model(case), tmp_path / "source"
    save(case, model, source)
    tokenizer.save(str(source / "tokenizer.json"))
    processor = Gemma4ImageProcessorPil(patch_size=7, max_soft_tokens=70)
    processor.save_pretrained(source)
    inputs = processor(Image.fromarray(IMAGE), return_tensors="pt")
    count = int(inputs.pop("num_soft_tokens_per_image")[0])
    image = [begin, *[token] * count, end]
    tokens = torch.tensor([[*tokenizer.encode("Here: ").ids, *image, *tokenizer.encode(" what?").ids]])
    with torch.no_grad():
        expected = model(tokens, **inputs, use_cache=False).logits[0].numpy()
    with build(case, model, tmp_path) as llm:
        prompt = llm.encode("Here: <|image|> what?", [IMAGE])
        assert [max(i, -1) for i in prompt] == [-1 if i == token else i for i in tokens[0].tolist()]
        np.testing.assert_allclose(llm.logits(prompt), expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_an_image_before_a_token_with_an_embedding_of_the_tower(tmp_path: Path) -> None:
    names = ("<start_of_image>", "<end_of_image>", "<image_soft_token>")
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(list(names))
    begin, end, token = (tokenizer.token_to_id(name) for name in names)
    case = next(c for c in CASES if c.name == "gemma3n" and c.image_tokens)
    size = {"vocab_size": tokenizer.get_vocab_size()}
    options = {
        **{"image_token_id": token, "boi_token_id": begin, "eoi_token_id": end},
        "text_config": {**case.options["text_config"], **size},
        "vision_config": {**case.options["vision_config"], "vocab_offset": end, "vocab_size": 2},
        "audio_config": {**case.options["audio_config"], "vocab_offset": size["vocab_size"]},
    }
    case = replace(case, options={**case.options, **options})
    model, source = random_model(case), tmp_path / "source"
    save(case, model, source)
    tokenizer.save(str(source / "tokenizer.json"))
    side = case.options["vision_config"]["image_size"]
    processor = SiglipImageProcessorPil(size={"height": side, "width": side}, do_normalize=False, resample=2)
    processor.save_pretrained(source)
    inputs = processor(Image.fromarray(IMAGE), return_tensors="pt")
    image = [*tokenizer.encode("\n\n").ids, begin, *[token] * case.image_tokens, end, *tokenizer.encode("\n\n").ids]
    tokens = torch.tensor([[*tokenizer.encode("Here: ").ids, *image, *tokenizer.encode(" what?").ids]])
    with torch.no_grad():
        expected = model(tokens, **inputs, use_cache=False).logits[0].numpy()
    with build(case, model, tmp_path) as llm:
        prompt = llm.encode("Here: <image_soft_token> what?", [IMAGE])
        assert [max(i, -1) for i in prompt] == [-1 if i == token else i for i in tokens[0].tolist()]
        np.testing.assert_allclose(llm.logits(prompt), expected, rtol=0, atol=1e-4 * np.abs(expected).max())
