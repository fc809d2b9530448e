"""Encoder-decoders: sequences begin with a source, which the encoder processes and the decoder attends to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlc_errors import UsageError
from mlc_runtime.model import CompiledModel
from mlc_runtime.packed import Packed, Prompt, groups

FUNCTION, LENGTHS = "encode_source", "source_lengths"


def encode_sources(model: CompiledModel, prompts: Sequence[Prompt]) -> list[Prompt]:
    """Encode the sources of prompts of empty sequences; returns the remaining prompts for the decoder.

    The prompt of an empty sequence is the source followed by the decoder's start token. Raises UsageError for a prompt
    without a source.
    """
    new = [(row, ids) for row, ids in prompts if model.pool.lengths[row] == 0]
    if any(len(ids) < 2 for _, ids in new):
        raise UsageError(
            f"the prompt has no source; {model.spec.model_type} models take one, and the token that the answer "
            f"begins with, {model.spec.decoder_start}"
        )
    sources = [(row, ids[:-1]) for row, ids in new]
    for group in groups([ids for _, ids in sources], model.spec):
        _encode(model, [sources[i] for i in group])
    begun = {row for row, _ in new}
    return [(row, ids[-1:] if row in begun else ids) for row, ids in prompts]


def _encode(model: CompiledModel, sources: Sequence[Prompt]) -> None:
    packed = Packed.of(model, sources)
    lengths = model.pool.inputs[LENGTHS]
    for row, ids in sources:
        lengths[row] = len(ids)
    model.memory.send(lengths)
    inputs = {"input_ids": packed.ids, "token_seq": packed.token_seq, "token_pos": packed.token_pos}
    model.call(FUNCTION, {**inputs, "lengths": np.array(model.pool.lengths, np.int32)})
