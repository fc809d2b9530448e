"""Convert answers to JSON types, for `generate` and `chat`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlc_runtime.generation import GenerationResult
    from mlc_runtime.llm import LLM


def speeds(result: GenerationResult) -> dict[str, Any]:
    """Prompt length, tokens per second of prefill and decode, and statistics of speculative decoding."""
    return {
        "prompt_tokens": result.prompt_tokens,
        "prefill_tokens_per_second": round(result.prefill_rate, 2),
        "decode_tokens_per_second": round(result.decode_rate, 2),
        **({"forgotten": result.forgotten} if result.forgotten else {}),
        **({"guessed": result.guessed, "accepted": result.accepted} if result.guessed else {}),
    }


def as_dict(result: GenerationResult, llm: LLM) -> dict[str, Any]:
    """An answer of `generate`, with log probabilities if requested."""
    return {
        "text": result.text,
        "token_ids": result.token_ids,
        **({"logprobs": _logprobs(result, llm)} if result.logprobs is not None else {}),
        "finish_reason": result.finish_reason,
        "note": result.note,
        **speeds(result),
    }


def _logprobs(result: GenerationResult, llm: LLM) -> list[dict[str, Any]]:
    token = llm.tokenizer.token
    return [
        {
            "token": token(found.token),
            "logprob": round(found.logprob, 6),
            "top_logprobs": [{"token_id": i, "token": token(i), "logprob": round(value, 6)} for i, value in found.top],
        }
        for found in result.logprobs or ()
    ]
