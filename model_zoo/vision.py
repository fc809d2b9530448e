"""Models that take images: a vision transformer, a projector and a decoder, and metadata for the runtime.

The exported function ``image_embed`` maps the pixels of one image to embeddings, which ``prefill`` takes as its tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

from mlc_compiler import nn
from mlc_compiler.nn import Tensor, op, spec
from mlc_compiler.nn.feed_forward import MLP
from mlc_compiler.nn.states import State, inputs
from mlc_compiler.nn.vision import ImageEmbedding, PatchEmbedding, VisionLayer, VisionTransformer
from mlc_errors import MLCError, UnsupportedError
from model_zoo import decoder
from model_zoo.config_check import check_values
from model_zoo.config_forms import text_part
from model_zoo.config_keys import refuse_unsupported
from model_zoo.transformer import activation_of
from model_zoo.weight_map import WeightMap
from quantization.rewrite import Exceptions

TOWER, PROJECTOR, LANGUAGE = "vision_tower", "multi_modal_projector", "language_model"
QUANTIZATION = Exceptions(final_fc=("*lm_head",), kept=(f"{TOWER}.*", f"{PROJECTOR}.*"))
"""Towers and projectors are not quantized: they are few weights, and their quantization costs much accuracy."""
MAX_IMAGE_TOKENS = 1024
"""Maximum tokens of an image of any size: the memory of attention in the tower is quadratic in its patches."""


@dataclass(frozen=True)
class ImageInput:
    """The image input of a model, an entry of the library's metadata.

    shape: shape of the pixels of one call of ``image_embed``, [1, C, H, W], or [-1, patches of a token, elements of a
    patch] for images of any size, which come with the rows and columns of the patches. tokens: the (maximum) number of
    results of a call, each of which replaces one token ``token_id``. placeholder_id: the token that a chat template
    writes for an image. expansion: texts and token ids that replace it; ``token_id`` in it stands for all
    tokens of the image. opening: text before everything. sees_itself: tokens of an image attend to all of it, not only
    to earlier tokens; they are passed to ``prefill_image``, in one call.

    tile: for images that are also shown in tiles, the expansion of a tile, with ``{row}`` and ``{column}`` counted
    from 1. Tiles come before the whole image. separators: texts between the tiles of a row, after each row, and
    after all rows. row_tokens: unless 0, tokens of all tiles are in the order of the image's rows, this many per
    tile and row, followed by those of the whole; a call's last two results end a row and precede the whole. row_ends:
    unless (), ``expansion`` is the single token of the image, and these are the texts after each row of its tokens and
    after the last row.
    """

    shape: tuple[int, ...]
    tokens: int
    token_id: int
    placeholder_id: int
    expansion: tuple[str | int, ...]
    sees_itself: bool = False
    tile: tuple[str | int, ...] = ()
    separators: tuple[str, str, str] = ("", "\n", "\n")
    opening: str = ""
    row_tokens: int = 0
    row_ends: tuple[str, ...] = ()

    def describe(self) -> dict[str, Any]:
        """The entry ``images`` of the metadata."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in vars(self).items()}

    @property
    def inputs(self) -> dict[str, spec.Input]:
        """The inputs of ``image_embed``."""
        if self.shape[0] > 0:
            return {"pixel_values": spec.Tensor(self.shape, "float32")}
        patches, elements = self.shape[1:]
        positions = spec.Tensor(["num_tokens", patches, 2], "int32")
        return {"pixel_values": spec.Tensor(["num_tokens", patches, elements], "float32"), "patch_pos": positions}


@dataclass(frozen=True, kw_only=True)
class VisionConfig:
    """Sizes of a vision transformer of square images, CLIP's or SigLIP's. Field names are Hugging Face's keys.

    image_size, patch_size: in pixels.
    """

    model_type: str
    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_channels: int = 3
    image_size: int = 224
    patch_size: int = 32
    hidden_act: str = "quick_gelu"
    layer_norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise _wrong("hidden_size", self.hidden_size, f"a multiple of the {self.num_attention_heads} heads")
        if self.patch_size > self.image_size:
            raise _wrong("patch_size", self.patch_size, f"at most the image's size, {self.image_size}")

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Parse the vision_config of config.json. Raises MLCError and UnsupportedError as ``BaseConfig.from_hf``."""
        kind = raw.get("model_type", CLIP)
        if kind not in DEFAULTS:
            raise UnsupportedError(
                f"vision_config: got model_type {str(kind)[:80]!r}; expected {' or '.join(DEFAULTS)}",
                where=["config.json"],
            )
        return cls(**vision_values(cls, kind, {**DEFAULTS[kind], **raw}, HARMLESS))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an image's pixels, [1, C, H, W]."""
        return 1, self.num_channels, self.image_size, self.image_size

    @property
    def side(self) -> int:
        """The number of patches per row, and of rows of patches."""
        return self.image_size // self.patch_size


def vision_values(cls: type, kind: str, raw: Mapping[str, Any], ignored: Collection[str]) -> dict[str, Any]:
    """The checked values of a configuration's fields in a vision_config; other keys must be in ``ignored``."""
    types = {f.name: str(f.type) for f in fields(cls)}
    given = {key: raw[key] for key in types if raw.get(key) is not None}
    refuse_unsupported(kind, {k: v for k, v in raw.items() if k not in types and k not in ignored}, {})
    check_values(given, types)
    if empty := next((name for name, kind in types.items() if kind == "int" and given.get(name) == 0), None):
        raise _wrong(empty, 0, "a positive integer")
    return given


CLIP, SIGLIP = "clip_vision_model", "siglip_vision_model"
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    CLIP: {"model_type": CLIP},
    SIGLIP: {
        "model_type": SIGLIP,
        "patch_size": 16,
        "hidden_act": "gelu_pytorch_tanh",
        "layer_norm_eps": 1e-6,
    },
    **{
        name: {
            "model_type": name,
            "hidden_size": 1152,
            "num_attention_heads": 16,
            "hidden_act": "gelu_pytorch_tanh",
            "layer_norm_eps": 1e-6,
        }
        for name in ("idefics3_vision", "smolvlm_vision", "idefics3")
    },
}
HARMLESS = frozenset(
    "projection_dim initializer_factor vocab_size vision_use_head max_image_size size tie_word_embeddings".split()
)
"""Keys of unused parts of these models, such as the classification head."""


def _wrong(key: str, value: object, expected: str) -> MLCError:
    return MLCError(f"vision_config: {key}: got {value!r}; expected {expected}", where=["config.json"])


@dataclass(frozen=True, kw_only=True)
class ImageFields:
    """Additional configuration fields of a decoder that takes images; must precede the decoder's base class.

    vision_config: the entry of config.json; None for the decoder alone. image_token_id: the token that stands for each
    token of an image.
    """

    vision_config: Mapping[str, Any] | None = None
    image_token_id: int | None = None

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        """Parse config.json, with the decoder's keys in ``text_config``, or the model_config of a chat config."""
        result: Self = super().from_hf(text_part(raw, ()))  # type: ignore[misc]
        return result

    @property
    def tower(self) -> VisionConfig:
        """The tower's sizes. Raises MLCError if there is no vision_config."""
        if self.vision is None:
            raise MLCError("missing key vision_config", where=["config.json"])
        return self.vision

    def shows_whole_images(self, state: State) -> bool:
        """Whether image tokens with ``ImageInput.sees_itself`` attend to their whole image in layers with ``state``."""
        return True

    @cached_property
    def vision(self) -> VisionConfig | None:
        return None if self.vision_config is None else VisionConfig.from_hf(self.vision_config)


class VisionLanguageModel(nn.Module):
    """A decoder with a vision tower, pixels -> [1, S, E], and a projector, [1, S, E] -> [1, T, D].

    A tower for images of any size takes pixels and positions, see ``PatchTransformer``.
    """

    def __init__(
        self, language_model: nn.Module, vision_tower: nn.Module | None, multi_modal_projector: nn.Module | None
    ):
        self.language_model = language_model
        self.vision_tower = vision_tower
        self.multi_modal_projector = multi_modal_projector

    def logits(self, x_BSD: Tensor) -> Tensor:
        logits: Tensor = self.language_model.logits(x_BSD)  # type: ignore[attr-defined]
        return logits

    def image_embed(self, *inputs: Tensor) -> Tensor:
        """The embeddings of the tokens of an image, [T, D]."""
        assert self.vision_tower is not None and self.multi_modal_projector is not None
        embeddings = self.multi_modal_projector(self.vision_tower(*inputs))
        return embeddings.reshape(embeddings.shape[1:])


def joined_patches(x: Tensor, side: int, factor: int) -> Tensor:
    """[1, S, E] -> [1, S / f ** 2, f ** 2 E]: concatenate squares of f x f patches. side: patches per row."""
    n, size = side // factor, x.shape[2]
    squares = op.permute_dims(op.reshape(x, (1, n, factor, n, factor, size)), (0, 1, 3, 2, 4, 5))
    return op.reshape(squares, (1, n * n, factor**2 * size))


def tower(c: VisionConfig, num_layers: int | None = None, post_norm: bool = False) -> VisionTransformer:
    """The tower of a config with its first ``num_layers`` layers, all by default."""

    def norm() -> nn.Module:
        return nn.LayerNorm(c.hidden_size, c.layer_norm_eps)

    is_clip = c.model_type == CLIP
    patch = PatchEmbedding(c.num_channels, c.patch_size, c.hidden_size, bias=not is_clip)

    def layer() -> VisionLayer:
        mlp = MLP(c.hidden_size, c.intermediate_size, activation_of(c.hidden_act), bias=True)
        return VisionLayer(c.hidden_size, c.num_attention_heads, mlp, norm)

    return VisionTransformer(
        ImageEmbedding(patch, c.side**2, c.hidden_size, class_token=is_clip),
        layer,
        c.num_hidden_layers if num_layers is None else num_layers,
        norm() if is_clip else None,
        norm() if post_norm else None,
    )


def entry_points(
    model: VisionLanguageModel, config: Any, states: Sequence[State], dtype: str
) -> Mapping[str, spec.Function]:
    """The decoder's functions, and ``image_embed``: the inputs of ``ImageInput`` -> [tokens, D] in ``dtype``.

    ``prefill_image`` exists if ``ImageInput.sees_itself``: like ``batch_prefill``, but tokens attend to all positions
    of their sequence below ``lengths``, int32 [sequences].
    """

    def image_embed(pixel_values: Tensor, *patch_pos: Tensor) -> Tensor:
        return model.image_embed(pixel_values.astype(dtype), *patch_pos).astype(dtype)

    functions = dict(decoder.entry_points(model.language_model, config, states, dtype))
    images = config.images
    if images is not None:
        bounds = {} if images.shape[0] > 0 else {"num_tokens": images.tokens}
        functions["image_embed"] = spec.Function(image_embed, images.inputs, "packed", bounds)
        if images.sees_itself:
            functions["prefill_image"] = _prefill_image(functions["batch_prefill"], config, states)
    return functions


def _prefill_image(batch_prefill: spec.Function, config: Any, states: Sequence[State]) -> spec.Function:
    bounds = dict.fromkeys(("seq_len", "batch_size"), config.images.tokens)
    seen = {"states": inputs(states, "seq_len", bidirectional=[s for s in states if config.shows_whole_images(s)])}
    return replace(batch_prefill, inputs={**batch_prefill.inputs, **seen}, upper_bounds=bounds)


def weights(text: WeightMap, c: VisionConfig | None, num_layers: int | None = None) -> WeightMap:
    """The weight map of a model whose decoder has the map ``text``; accepts three forms of names in checkpoints.

    num_layers: see ``tower``.
    """
    m = within_parts(text)
    if c is None:
        without_tower(m)
    else:
        _tower_weights(m, c, c.num_hidden_layers if num_layers is None else num_layers)
        m.other_prefix(f"{TOWER}.", f"{TOWER}.vision_model.")
    return m


def within_parts(text: WeightMap) -> WeightMap:
    """The weight map of a model whose decoder has the map ``text``, without rules for tower and projector."""
    m = text.within(f"{LANGUAGE}.")
    m.other_prefix(f"{LANGUAGE}.model.", f"model.{LANGUAGE}.")
    m.other_prefix(f"{TOWER}.", f"model.{TOWER}.")
    m.other_prefix(f"{PROJECTOR}.", f"model.{PROJECTOR}.")
    m.optional_prefix(f"{LANGUAGE}.")
    return m


def without_tower(m: WeightMap) -> None:
    """Declare tower and projector of the checkpoint unused."""
    m.unused(f"{TOWER}.*")
    m.unused(f"{PROJECTOR}.*")


def _tower_weights(m: WeightMap, c: VisionConfig, num_layers: int) -> None:
    embeddings = f"{TOWER}.embeddings"
    m.flatten(f"{embeddings}.patch_embedding")
    m.rename(f"{embeddings}.position_embedding", f"{embeddings}.position_embedding.weight")
    encoder_layers(m, num_layers)
    for layer in range(num_layers, c.num_hidden_layers):
        m.unused(f"{TOWER}.encoder.layers.{layer}.*")
    for name in ("head.*", "post_layernorm.*", "embeddings.position_ids"):
        m.unused(f"{TOWER}.{name}")


def encoder_layers(m: WeightMap, num_layers: int) -> None:
    """Add the rules of a tower's first ``num_layers`` layers."""
    for layer in range(num_layers):
        ours, theirs = f"{TOWER}.layers.{layer}", f"{TOWER}.encoder.layers.{layer}"
        m.concat(f"{ours}.self_attn.qkv_proj", [f"{theirs}.self_attn.{x}_proj" for x in "qkv"])
        m.rename(f"{ours}.mlp.up_proj", f"{theirs}.mlp.fc1")
        m.rename(f"{ours}.mlp.down_proj", f"{theirs}.mlp.fc2")
        for name in ("layer_norm1", "layer_norm2", "self_attn.out_proj"):
            m.rename(f"{ours}.{name}", f"{theirs}.{name}")
