"""A transformers model through the whole tool chain: saved, converted, configured, compiled for the CPU, opened."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel
from transformers.modeling_outputs import MoeCausalLMOutputWithPast

from mlc_runtime import LLM
from mlc_toolchain import compile as compilation
from mlc_toolchain.compile import CompileOptions, compile_model
from mlc_toolchain.convert_weight import ConvertOptions, convert_weight
from mlc_toolchain.gen_config import GenConfigOptions, gen_config
from mlc_toolchain.model_sizes import SizeOverrides
from model_zoo.registry import ExportedModel, export_model
from quantization.group import decode, encode
from quantization.schemes import get_scheme
from tests.model_zoo.architecture_cases import IMAGE_TOKEN, Case
from tests.model_zoo.exported import without_functions
from tests.model_zoo.lowered_once import lowered_once
from tests.runtime.fake_library import byte_tokenizer

CHUNK, BATCH = 9, 3

if not hasattr(MoeCausalLMOutputWithPast, "image_outputs"):  # Llama 4 of transformers 5.24.0 reads it without images
    MoeCausalLMOutputWithPast.image_outputs = None


def random_model(case: Case) -> PreTrainedModel:
    """Random weights and stored buffers: attention spreads widely, norms differ from 1 and biases from 0."""
    torch.manual_seed(5)
    return randomized(case.model(), case)


def randomized(model: PreTrainedModel, case: Case) -> PreTrainedModel:
    """The model with weights of the case's kind."""
    model.eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = parameter.ndim == 1 and name.endswith("weight") and not case.norms_around_zero
            spread = 0.2 if parameter.ndim > 1 else 0.3
            parameter.copy_(torch.randn(parameter.shape) * spread + (1.0 if is_norm else 0.0))
        for name, buffer in model.named_buffers():
            if name in model.state_dict() and buffer.is_floating_point() and buffer.ndim:  # not a constant, as xIELU's
                buffer.add_(torch.randn(buffer.shape) * 0.3)
        if case.alibi:
            head = model.get_output_embeddings().weight
            head.copy_(torch.nn.functional.normalize(head))
    return model


def logits(case: Case, model: PreTrainedModel, ids: list[int]) -> np.ndarray:
    """Logits after each of ``ids``, float32 [len(ids), V]."""
    more = alibi_inputs(model.config.num_attention_heads, len(ids)) if case.alibi else {}
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False, **more).logits[0].numpy()


def image_logits(case: Case, model: PreTrainedModel, ids: list[int], pixels: list[np.ndarray]) -> np.ndarray:
    """Logits of ``ids`` with the first image after 4 tokens and the second one after 6, float32 [tokens, V].

    pixels: float32 [1, C, H, W], or patches [T, 4, K] of images with ``case.grids``.
    """
    grids = case.grids or [(1, case.image_tokens)] * 2
    first, second = ([IMAGE_TOKEN] * rows * columns for rows, columns in grids)
    tokens = torch.tensor([[*ids[:4], *first, *ids[4:6], *second, *ids[6:]]])
    is_image = (tokens == IMAGE_TOKEN).int()
    if case.name == "mistral3":
        inputs = padded_images(pixels, case.grids)
    elif case.name == "lfm2_vl":
        inputs = padded_patches(pixels, case.grids)
    elif case.name == "gemma4":
        inputs = {**placed_patches(pixels, case.grids), "mm_token_type_ids": is_image}
    elif case.grids:
        joined = torch.from_numpy(np.concatenate(pixels))
        inputs: dict[str, torch.Tensor] = {
            "pixel_values": joined.flatten(0, 1),
            "image_grid_thw": torch.tensor([[1, 2 * rows, 2 * columns] for rows, columns in grids]),
            "mm_token_type_ids": is_image,
        }
    else:
        joined = torch.from_numpy(np.concatenate(pixels))
        with_prompts = case.name in ("idefics3", "smolvlm")  # these have an axis of prompts
        inputs = {"pixel_values": joined[None] if with_prompts else joined, "token_type_ids": is_image}
    known = inspect.signature(model.forward).parameters
    with torch.no_grad():
        given = {name: value for name, value in inputs.items() if name in known}
        return model(tokens, **given, use_cache=False).logits[0].numpy()


def padded_patches(patches: list[np.ndarray], grids: Sequence[tuple[int, int]]) -> dict[str, torch.Tensor]:
    """Inputs for images given as ``patches``, float32 [T, M, 3 P P]: rows of patches with channels last, padded."""
    _, squares, elements = patches[0].shape
    side, longest = math.isqrt(squares), max(squares * rows * columns for rows, columns in grids)
    batch, mask = np.zeros((len(grids), longest, elements), np.float32), np.zeros((len(grids), longest))
    for i, (image, (rows, columns)) in enumerate(zip(patches, grids, strict=True)):
        in_rows = image.reshape(rows, columns, side, side, 3, elements // 3).transpose(0, 2, 1, 3, 5, 4)
        mask[i, : squares * rows * columns] = 1
        batch[i, : squares * rows * columns] = in_rows.reshape(squares * rows * columns, -1)
    return {
        "pixel_values": torch.from_numpy(batch),
        "pixel_attention_mask": torch.from_numpy(mask).int(),
        "spatial_shapes": torch.tensor([[side * rows, side * columns] for rows, columns in grids]),
    }


def placed_patches(patches: list[np.ndarray], grids: Sequence[tuple[int, int]]) -> dict[str, torch.Tensor]:
    """As ``padded_patches``, with the column and row of each patch, -1 for padding."""
    padded = padded_patches(patches, grids)
    positions = torch.full((*padded["pixel_values"].shape[:2], 2), -1)
    for image, (rows, columns) in zip(positions, padded["spatial_shapes"].tolist(), strict=True):
        row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        image[: rows * columns] = torch.stack([column, row], dim=-1).flatten(0, 1)
    return {"pixel_values": padded["pixel_values"], "image_position_ids": positions}


def padded_images(patches: list[np.ndarray], grids: Sequence[tuple[int, int]]) -> dict[str, torch.Tensor]:
    """Images given as ``patches``, float32 [T, 4, 3 P P], as a batch of pixels padded to one size."""
    side = int(np.sqrt(patches[0].shape[2] / 3))
    images = [
        image.reshape(rows, columns, 2, 2, 3, side, side).transpose(4, 0, 2, 5, 1, 3, 6)
        for image, (rows, columns) in zip(patches, grids, strict=True)
    ]
    sizes = [(2 * rows * side, 2 * columns * side) for rows, columns in grids]
    batch = np.zeros((len(images), 3, *np.max(sizes, axis=0)), np.float32)
    for target, image, (height, width) in zip(batch, images, sizes, strict=True):
        target[:, :height, :width] = image.reshape(3, height, width)
    return {"pixel_values": torch.from_numpy(batch), "image_sizes": torch.tensor(sizes)}


def alibi_inputs(heads: int, length: int) -> dict[str, torch.Tensor]:
    """Inputs that disable RoPE and add ALiBi to the scores (Press et al. 2022, for up to 8 heads)."""
    assert 4 < heads < 8
    slopes = torch.tensor([2.0**-i for i in (2, 4, 6, 8, 1, 3)][:heads])
    positions = torch.arange(length)
    distance = positions[None, :] - positions[:, None]
    mask = torch.where(distance > 0, torch.tensor(-1e30), slopes[:, None, None] * distance)
    return {"attention_mask": mask[None], "position_ids": torch.zeros((1, length), dtype=torch.long)}


def build(
    case: Case,
    model: PreTrainedModel,
    folder: Path,
    scheme: str = "q0f32",
    *,
    model_type: str = "auto",
    chunk: int = CHUNK,
    without: Collection[str] = (),
) -> LLM:
    """The compiled model; every tensor of the checkpoint is used or declared unused, or conversion fails.

    without: names of exported functions that are left out.
    """
    source, output = folder / "source", folder / scheme
    if not source.exists():
        save(case, model, source)
    convert_weight(ConvertOptions(str(source), scheme, output, model_type))
    sizes = SizeOverrides(prefill_chunk_size=chunk, max_batch_size=BATCH)
    gen_config(GenConfigOptions(str(source), scheme, output, model_type, sizes=sizes))

    def export(*arguments: Any, **options: Any) -> ExportedModel:
        exported = export_model(*arguments, **options)
        return replace(exported, mod=without_functions(exported.mod, without))

    with lowered_once(), mock.patch.object(compilation, "export_model", export):
        compile_model(CompileOptions(output, output / "lib.so", device="cpu", opt="act=16"))
    return LLM(output, num_threads=2)


def save(case: Case, model: PreTrainedModel, folder: Path) -> None:
    """Save as ``save_pretrained`` does; for an architecture without a class, under its own names and keys."""
    model.save_pretrained(folder)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    if case.to_checkpoint is None:
        return
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    config, tensors = case.to_checkpoint(config, state)
    save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


def with_decoded_weights(model: PreTrainedModel, scheme_name: str) -> PreTrainedModel:
    """The model with every matrix quantized along its rows and dequantized, and the rest rounded to 16 bits.

    Routers are not quantized. The key matrices of latent attention are stored transposed.
    """
    scheme = get_scheme(scheme_name)
    kept = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Conv1d)}
    kept |= {id(parameter) for name, parameter in model.named_parameters() if name.endswith("A_log")}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            half = parameter.half().float()
            if parameter.ndim < 2 or id(parameter) in kept or name.endswith("mlp.gate.weight"):
                parameter.copy_(half)
            elif "kv_b_proj" in name:
                keys, values = half.unflatten(0, (model.config.num_attention_heads, -1)).split(
                    [model.config.qk_nope_head_dim, model.config.v_head_dim], dim=1
                )
                decoded = (_decoded(keys.mT.contiguous().numpy(), scheme).mT, _decoded(values.numpy(), scheme))
                parameter.copy_(torch.cat(decoded, dim=1).flatten(0, 1))
            else:
                parameter.copy_(_decoded(half.numpy(), scheme))
    return model


def _decoded(matrix: np.ndarray, scheme: Any) -> torch.Tensor:
    stored = encode(matrix.astype(np.float16), scheme)
    return torch.from_numpy(decode(stored, scheme, matrix.shape[-1]).astype(np.float32))
