"""Check that a tokenizer has the special tokens and stop tokens of a registered conversation template."""

from __future__ import annotations

from functools import cache

from mlc_errors import MLCError
from mlc_runtime.tokenizer import AnyTokenizer
from mlc_toolchain.conversation import DIRECTORY, Conversation
from mlc_toolchain.readers.bounded_json import read_json_object

SPECIAL_TOKENS = DIRECTORY.parent / "conversation_tokens.json"


@cache
def special_tokens() -> dict[str, list[str]]:
    """The parts of each template's text that must be single tokens, by template name."""
    return read_json_object(SPECIAL_TOKENS)


def check_conversation(conversation: Conversation, tokenizer: AnyTokenizer) -> None:
    """Raises MLCError with every special token and id of `conversation` that `tokenizer` lacks."""
    texts = [t for t in special_tokens().get(conversation.name or "", []) if tokenizer.token_to_id(t) is None]
    missing = [f"the token {text}" for text in texts]
    for what, ids in (
        ("system_prefix_token_ids", conversation.system_prefix_token_ids or ()),
        ("stop_token_ids", conversation.stop_token_ids),
    ):
        missing += [f"the id {i} ({what})" for i in ids if tokenizer.id_to_token(i) is None]
    if missing:
        raise MLCError(
            f"the conversation template {conversation.name!r} needs {', '.join(missing)}; expected in the tokenizer, "
            f"which has {tokenizer.get_vocab_size()} tokens",
            hint="--conv-template auto takes the checkpoint's own template; --skip-template-check records this one",
        )
