"""The table of architectures and variants that are compared with transformers, a file for each family."""

from tests.model_zoo.architecture_cases import decoders, experts, gemma, gpt, images, latent, recurrent
from tests.model_zoo.architecture_cases.case import COMMON, CONTEXT, IMAGE_TOKEN, LLAMA_LIKE, VOCAB, Case

__all__ = ["CASES", "COMMON", "CONTEXT", "IMAGE_TOKEN", "IN_STEPS", "LLAMA_LIKE", "VOCAB", "Case"]

CASES: tuple[Case, ...] = (
    *decoders.CASES,
    *gpt.CASES,
    *gemma.CASES,
    *latent.CASES,
    *experts.CASES,
    *recurrent.CASES,
    *images.CASES,
)
KINDS_OF_ATTENTION = {
    "bloom": "ALiBi",
    "gemma2": "soft caps",
    "gemma3n_text": "layers that share a cache",
    "gemma4_text": "layers with heads of several sizes",
    "gpt_oss": "sinks",
    "llama4_text": "chunks",
    "mimo_v2_flash": "sinks, values of another size",
}
IN_STEPS = frozenset(KINDS_OF_ATTENTION).union(
    (case.id for case in CASES if case.quantized or case.image_tokens or case.grids),
    (case.id for case in (*latent.CASES, *recurrent.CASES)),
)
"""Cases whose decode steps and batches are compared: the others have the attention and the states of one of these."""
