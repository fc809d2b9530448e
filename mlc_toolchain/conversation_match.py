"""`--conv-template auto`: find a conversation template that renders the same text as a checkpoint's Jinja template.

The checkpoint's template is rendered on probe conversations. Every registered template, with system part and token ids
adapted to the checkpoint, is compared with the result, as is a template derived from the rendered texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from mlc_errors import MLCError
from mlc_runtime.chat_template import render_chat_template
from mlc_runtime.tokenizer import AnyTokenizer
from mlc_toolchain.conversation import Conversation, load_template, template_names

USER, ANSWER, NEXT, SYSTEM = "Where is Zürich?", "In the north;\n\nnear {Baden}.", "And Bern?", "Be terse, ok."
_U, _A, _N, _S = (
    {"role": role, "content": text}
    for role, text in (("user", USER), ("assistant", ANSWER), ("user", NEXT), ("system", SYSTEM))
)
_REASONED = {"role": "assistant", "content": "<think>\nA lake.\n</think>\n\nNorth."}
PROBES: Mapping[str, Sequence[dict]] = {
    "one turn": [_U],
    "history": [_U, _A, _N],
    "system message": [_S, _U],
    "system message and history": [_S, _U, _A, _N],
    "system message and reasoning": [_S, _U, _REASONED, _N],
}


@dataclass(frozen=True)
class Checkpoint:
    """The parts of a checkpoint that determine prompts. eos_ids: all ids that end an answer."""

    chat_template: str | None
    tokenizer: AnyTokenizer
    bos_token: str | None
    eos_token: str | None
    eos_ids: tuple[int, ...]


@dataclass(frozen=True)
class Match:
    """A matching template. differs: the probes that it renders differently from the checkpoint's template."""

    conversation: Conversation
    differs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def match_conversation(checkpoint: Checkpoint) -> Match:
    """Find the closest template. Raises MLCError when the checkpoint's template fails on a plain question."""
    if checkpoint.chat_template is None:
        note = "the checkpoint has no chat template: prompts are continued as they are"
        return Match(_completion(checkpoint), notes=(note,))
    rendered = _render_probes(checkpoint)
    registered = [load_template(name) for name in template_names()]
    ranked = [(_rank(c, checkpoint, rendered), c) for base in registered for c in _adapted(base, checkpoint, rendered)]
    rank, best = min(ranked, key=lambda entry: entry[0])
    if rank[0] > 0:
        derived = _derived(checkpoint, rendered)
        if derived is not None and _rank(derived, checkpoint, rendered)[0] < rank[0]:
            best = derived
    differs = tuple(_differences(best, checkpoint, rendered))
    return Match(_with_stops(best, checkpoint), differs, tuple(_notes(best, checkpoint.chat_template, differs)))


def _notes(c: Conversation, template: str, differs: Sequence[str]) -> Iterator[str]:
    name = c.name or "derived"
    if differs:
        yield f"engines that read conv_template ({name}) instead of chat_template.jinja differ in: {', '.join(differs)}"
    if "strftime_now" in template:
        yield f"chat_template.jinja prints the current date; conv_template ({name}) keeps today's"


def starts_with_bos(tokenizer: AnyTokenizer, bos_id: int | None) -> bool:
    """Whether the tokenizer prepends the begin token to a text."""
    return bos_id is not None and tokenizer.encode("a").ids[:1] == [bos_id]


def _completion(checkpoint: Checkpoint) -> Conversation:
    """Plain continuation, for checkpoints without a chat template."""
    bos_id = _id(checkpoint, checkpoint.bos_token)
    prefix = (bos_id,) if bos_id is not None and starts_with_bos(checkpoint.tokenizer, bos_id) else None
    return replace(load_template("LM"), system_prefix_token_ids=prefix, stop_token_ids=checkpoint.eos_ids)


def _render_probes(checkpoint: Checkpoint) -> dict[str, str]:
    """Rendered texts by probe, without probes that the template rejects (for example a system role)."""
    assert checkpoint.chat_template is not None
    texts = {}
    for name, messages in PROBES.items():
        try:
            texts[name] = render_chat_template(
                checkpoint.chat_template,
                messages,
                add_generation_prompt=True,
                bos_token=checkpoint.bos_token,
                eos_token=checkpoint.eos_token,
            )
        except MLCError:
            if name == "one turn":
                raise
    return texts


def _rank(c: Conversation, checkpoint: Checkpoint, rendered: Mapping[str, str]) -> tuple[int, bool, int]:
    """Sort key, smaller is closer: weight of differing probes, whether the system part changed, missing end ids."""
    base = load_template(c.name) if c.name else c
    changed = (base.system_template, base.system_message) != (c.system_template, c.system_message)
    unknown_ends = len(set(checkpoint.eos_ids) - set(base.stop_token_ids))
    return _weight(_differences(c, checkpoint, rendered)), changed, unknown_ends


def _weight(probes: Sequence[str]) -> int:
    """Weight of differing probes: a malformed system message weighs more than an added default one."""
    return sum(2 if "system" in name else 1 for name in probes)


def _differences(c: Conversation, checkpoint: Checkpoint, rendered: Mapping[str, str]) -> list[str]:
    prefix = "".join(checkpoint.tokenizer.id_to_token(i) or "" for i in c.system_prefix_token_ids or ())
    return [name for name, text in rendered.items() if prefix + c.render(PROBES[name]) != text]


def _adapted(base: Conversation, checkpoint: Checkpoint, rendered: Mapping[str, str]) -> list[Conversation]:
    """Variants of `base` without and with the checkpoint's begin token, each also with the checkpoint's system part."""
    bos_id, bos = _id(checkpoint, checkpoint.bos_token), checkpoint.bos_token or ""
    candidates = [replace(base, system_prefix_token_ids=None)]
    if bos_id is not None and rendered["one turn"].startswith(bos):
        candidates.append(replace(base, system_prefix_token_ids=(bos_id,)))
    return candidates + [c for with_prefix in candidates for c in _with_system(with_prefix, checkpoint, rendered)]


def _with_system(c: Conversation, checkpoint: Checkpoint, rendered: Mapping[str, str]) -> list[Conversation]:
    """`c` with the system part taken from the text before the first question, if any."""
    skip = len(checkpoint.bos_token or "") if c.system_prefix_token_ids else 0
    question = c.roles["user"] + c.role_content_sep + c.role_templates["user"].replace("{user_message}", USER)
    given, _, after = rendered.get("system message", "")[skip:].partition(question)
    without = rendered["one turn"][skip:].partition(question)[0]
    if not after or given.count(SYSTEM) != 1:
        return [replace(c, system_template="{system_message}", system_message=without)]
    head, tail = given.split(SYSTEM)
    adapted = replace(c, system_template=f"{head}{{system_message}}{tail}", add_role_after_system_message=True)
    if len(without) >= len(head + tail) and without.startswith(head) and without.endswith(tail):
        adapted = replace(adapted, system_message=without[len(head) : len(without) - len(tail)])
    return [adapted]


def _derived(checkpoint: Checkpoint, rendered: Mapping[str, str]) -> Conversation | None:
    """Derive a template from the rendering of a short conversation; None unless its messages occur in order."""
    text = rendered.get("history", "")
    before, _, rest = text.partition(USER)
    middle, _, rest = rest.partition(ANSWER)
    between, _, last = rest.partition(NEXT)
    if not last and NEXT not in text:
        return None
    bos_id, bos = _id(checkpoint, checkpoint.bos_token), checkpoint.bos_token or ""
    prefix = (bos_id,) if bos_id is not None and before.startswith(bos) else None
    question = _common_suffix(before[len(bos) if prefix else 0 :], between)
    answer = _common_prefix(middle, last)
    bare = Conversation(
        system_prefix_token_ids=prefix,
        roles={"user": question, "assistant": answer},
        role_templates={
            "user": "{user_message}",
            "assistant": middle[len(answer) :] + "{assistant_message}",
            "tool": "{tool_message}",
        },
        seps=("", between[: len(between) - len(question)]),
        role_empty_sep=last[len(answer) :],
    )
    return min(
        [bare, *_with_system(bare, checkpoint, rendered)],
        key=lambda c: _weight(_differences(c, checkpoint, rendered)),
    )


def _with_stops(c: Conversation, checkpoint: Checkpoint) -> Conversation:
    """`c` with those of its stop strings that are tokens, and with their ids and the checkpoint's end ids."""
    found = {text: checkpoint.tokenizer.token_to_id(text) for text in c.stop_str}
    known = {text: token_id for text, token_id in found.items() if token_id is not None}
    ids = dict.fromkeys([*checkpoint.eos_ids, *known.values()])
    return replace(c, stop_str=tuple(text for text in c.stop_str if text in known), stop_token_ids=tuple(ids))


def _id(checkpoint: Checkpoint, token: str | None) -> int | None:
    return None if token is None else checkpoint.tokenizer.token_to_id(token)


def _common_prefix(a: str, b: str) -> str:
    return "".join(x for x, _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b)))


def _common_suffix(a: str, b: str) -> str:
    return _common_prefix(a[::-1], b[::-1])[::-1]
