"""Writes docs/models.md: ``python -m tests.model_zoo.models_document > docs/models.md``."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

from mlc_toolchain.gguf_architectures import ARCHITECTURES as GGUF
from mlc_toolchain.gguf_experts import MIXTURES
from model_zoo import registry
from model_zoo.architecture import Architecture
from tests.model_zoo import encoder_cases
from tests.model_zoo.architecture_cases import CASES
from tests.model_zoo.measure_errors import FILE
from tests.model_zoo.test_models import VARIANTS

HEAD = """# Models

`python -m tests.model_zoo.models_document > docs/models.md` writes this page from the registry and the tables of tests.

An architecture is a `model_type` of Hugging Face's config.json. Every variant in the table has small random weights
written by transformers (for an architecture without a class there: an equal model of another class, with names and
layouts changed). It is converted, configured, compiled for the CPU, and its logits equal those of transformers in
float32 within 1e-4 of the greatest logit: of all positions, of a prompt in chunks, token by token, and of two
sequences in one batch (`tests/model_zoo`). For encoders, the hidden states of texts of different lengths in one call
are compared; for draft heads, the results of all functions. Variants marked with 4 bits are also compared in q4f16_1,
against the dequantized weights.

The greatest error is the largest difference from transformers relative to the largest value compared at once, over all
variants in float32 (`python -m tests.model_zoo.measure_errors`); where there is none, it has not been measured.

| architecture | file | lines | blocks | variants | max error | GGUF |
|---|---|---:|---|---|---:|---|
"""
TAIL = """
A key of config.json that is neither read nor known to be harmless is refused by name, and so are values that change
the computation in a way that is not implemented. Layers with a sliding window, without RoPE, or with other RoPE
parameters have a KV cache of their own.

## Not supported, and why

| what | why |
|---|---|
| DeepSeek-V3.2 and GLM-5 beyond `index_topk` tokens, 2048 | the indexer is not computed: it would choose keys |
| Doge beyond `keep_window_size` tokens, or with experts | tokens would see only the keys of greatest bias |
| DeBERTa v2 with a convolution (XL, XXL), or positions in the embeddings | v3 has neither |
| Bailing with a normalized head (`norm_head`) | refused by name |
| LongRoPE's short factors in a long context | frequencies are fixed; a longer context takes the long factors |
| dynamic NTK scaling beyond the trained context | likewise; within it, it changes nothing |
| Qwen 1's logarithmic scaling of queries | acts beyond `seq_length` only, which is the longest context |
| OPT 350M | post-norm layers, and embeddings of another width |
| MPT with learned positions or norms of queries and keys | transformers does not compute them |
| windows in Qwen2 | published configurations switch them off |
| several layers of Pixtral's tower as input of the projector | published configurations take the last one |
| pan and scan of Gemma 3 | images are processed as a whole, as by default |
| LLaVA with text models other than Llama and Mistral, or several layers of the tower | only models like LLaVA 1.5 |
| numbered placeholders of images in Phi-3-vision's prompts | each is `image` between bars; images are used in order |
| images of more than 1024 tokens in Qwen-VL | they are downscaled: memory for scores grows quadratically |
| audio in Gemma 3n and 4 | the audio towers are not used; messages with audio are refused |
| videos | refused |
| RWKV-7 with attention in some layers; its first checkpoints, with shares joined as `x_x` | refused by name |
| MTP layers: without an `_mtp` row above, in GGUF files, and after the first one | their tensors are not used |
| images at http:// | nothing is downloaded; files, data URLs and bytes are read |
"""


def document() -> str:
    """The text of docs/models.md."""
    errors: dict[str, float] = json.loads(FILE.read_text())
    architectures = sorted(registry.ARCHITECTURES.values(), key=lambda a: a.name)
    rows = (_row(a, f"{errors[a.name]:.1e}" if a.name in errors else "") for a in architectures)
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows) + TAIL


def _row(a: Architecture, error: str) -> tuple[str, ...]:
    path = Path(inspect.getfile(a.config))
    blocks = (inspect.getmodule(a.config).__doc__ or "").split("\n\n")[0]
    lines = len(path.read_text().splitlines())
    gguf = "yes" if any(a.name in (g.model_type, *g.others) for g in (*GGUF.values(), *MIXTURES.values())) else ""
    return f"`{a.name}`", path.name, str(lines), " ".join(blocks.split()).rstrip("."), _variants(a.name), error, gguf


def _variants(name: str) -> str:
    named = [
        (c.variant or "plain") + (" (4 bits)" if c.quantized else "")
        for c in (*CASES, *encoder_cases.CASES, *encoder_cases.ENCODER_DECODERS)
        if c.name == name
    ]
    options = [", ".join(o) or "plain" for kind, o in VARIANTS if kind == name]
    return "; ".join((*options, *named))


if __name__ == "__main__":
    print(document(), end="")
