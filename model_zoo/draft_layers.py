"""The functions of draft heads that are layers over a token's embedding and the hidden state before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlc_compiler.nn import Tensor, spec
from mlc_compiler.nn.states import State, inputs


def entry_points(model: Any, c: Any, states: Sequence[State], dtype: str) -> Mapping[str, spec.Function]:
    """fuse_embed_hidden_states, and the hidden states of prompts [1, S, D] and of steps [B, 1, D].

    model: has ``fuse``: embeddings and hidden states, [S, D] each -> [S, D], and ``forward``: these as [1, S, D] and a
    view of each state -> new hidden states [1, S, D]. A model that treats its own hidden states in another way than
    those of the model it drafts for has ``fuse_own``, too, which is exported as fuse_embed_own_hidden_states.
    """

    def prefill(hidden_states: Tensor, views: Sequence[Any]) -> Tensor:
        return model.forward(hidden_states, *views)

    def decode(hidden_states: Tensor, views: Sequence[Any]) -> Tensor:
        batch, one, size = hidden_states.shape
        return model.forward(hidden_states.reshape(one, batch, size), *views).reshape(batch, one, size)

    def hidden(*shape: str | int) -> spec.Tensor:
        return spec.Tensor([*shape, c.hidden_size], dtype)

    bounds = {"seq_len": c.prefill_chunk_size, "batch_size": c.max_batch_size}
    of_prompts: dict[str, spec.Input] = {"hidden_states": hidden(1, "seq_len"), "views": inputs(states, "seq_len")}
    views = inputs(states, "batch_size", single_query=True)
    of_steps: dict[str, spec.Input] = {"hidden_states": hidden("batch_size", 1), "views": views}
    joined = {"input_embed": hidden("seq_len"), "hidden_states": hidden("seq_len")}
    fuses = {"fuse_embed_hidden_states": model.fuse}
    if hasattr(model, "fuse_own"):
        fuses["fuse_embed_own_hidden_states"] = model.fuse_own
    return {
        **{name: spec.Function(fuse, joined, "packed", bounds) for name, fuse in fuses.items()},
        "batch_prefill_to_last_hidden_states": spec.Function(prefill, of_prompts, "packed", bounds),
        "batch_decode_to_last_hidden_states": spec.Function(decode, of_steps, "packed", bounds),
    }
