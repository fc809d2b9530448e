"""The public interface of the runtime: generate, chat, stream, logits, hidden states and embeddings of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np

from mlc_errors import MLCError, UsageError
from mlc_runtime.batch import generate_batch
from mlc_runtime.chat_template import render_chat_template, render_conversation
from mlc_runtime.decoder import Decoder
from mlc_runtime.draft_heads import head_proposer, is_draft_head
from mlc_runtime.embedding import Embedder, TextOptions
from mlc_runtime.encoder import FUNCTION as ENCODE
from mlc_runtime.encoder import Encoder
from mlc_runtime.folder_config import CONFIG_NAME, GenerationDefaults, embedding_settings, generation_defaults
from mlc_runtime.generation import GenerationResult, TextStream, check_overflow
from mlc_runtime.hidden_states import HiddenSessions
from mlc_runtime.image_processor import image_processor
from mlc_runtime.image_prompt import ImagePrompts, with_parts, with_placeholders, without_images
from mlc_runtime.library import Library
from mlc_runtime.model import CompiledModel
from mlc_runtime.sampling import UNTIL_FULL, Sampling, SamplingSettings, given
from mlc_runtime.session import Session, SessionCache
from mlc_runtime.speculation import DraftModel, PromptLookup, check_speculation
from mlc_runtime.stamp import check_stamp
from mlc_runtime.tokenizer import Tokenizer
from mlc_runtime.weights import LoadProgress, TensorCache

LIBRARY_NAME, TEMPLATE_NAME = "lib.so", "chat_template.jinja"
CHAT = "chat"
MAX_TOKENS = 2048
"""Default maximum of tokens of an answer."""

Prompt = str | Sequence[int]
OnText = Callable[[str], None]


class LLM:
    """A compiled model with its weights and tokenizer.

    folder: the output of convert_weight, gen_config and compile. model_lib: the library, when it is not
    folder/lib.so. num_threads: default all physical cores that this process may use. progress: called while weights
    load, with parameters done, all parameters, bytes done, all bytes. device: ``cpu`` or ``cuda``, the library's
    target; ``cuda:1`` is the second GPU. Raises MLCError when a file is missing, the files are of different models
    or there is no such device.

    Threads may share it: their calls are serialized. Several streams may be iterated alternately.
    """

    def __init__(
        self,
        folder: str | Path,
        model_lib: str | Path | Library | None = None,
        num_threads: int | None = None,
        *,
        progress: LoadProgress | None = None,
        device: str | None = None,
    ):
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise MLCError(f"the model folder {self.folder} does not exist")
        if isinstance(model_lib, Library) and device is not None:
            raise UsageError(
                f"device is {device!r} beside a Library", hint="give the device to Library(path, device=…)"
            )
        self.library = model_lib if isinstance(model_lib, Library) else _open_library(self.folder, model_lib, device)
        check_stamp(self.library.metadata, self.folder / CONFIG_NAME)
        kind = Encoder if ENCODE in self.library.functions else Decoder
        self.compiled = kind(self.library, TensorCache(self.folder), num_threads, progress)
        self._sessions = SessionCache(self.compiled) if isinstance(self.compiled, Decoder) else None

    @property
    def model(self) -> Decoder:
        """The model as a decoder. Raises MLCError for a model that does not generate text."""
        task = self.compiled.spec.task
        if task != CHAT or not isinstance(self.compiled, Decoder):
            raise MLCError(
                f"the library's model is for the task {task!r}; expected {CHAT!r}",
                where=[str(self.library.path)],
                hint=f"for vectors of texts: python -m mlc_cli embed {self.folder}",
            )
        return self.compiled

    @property
    def sessions(self) -> SessionCache:
        """The sessions of ``generate``, ``chat`` and ``stream``. Raises MLCError as ``model`` does."""
        return self._sessions or SessionCache(self.model)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.folder)

    @cached_property
    def defaults(self) -> GenerationDefaults:
        return generation_defaults(self.folder)

    @cached_property
    def chat_template(self) -> str | None:
        """The folder's Jinja template: chat_template.jinja, else the one in tokenizer_config.json."""
        path = self.folder / TEMPLATE_NAME
        if path.is_file():
            return path.read_text(encoding="utf-8")
        return _default_template(self.tokenizer.config.get("chat_template"))

    @cached_property
    def image_prompts(self) -> ImagePrompts:
        """The encoder of prompts with images.

        Raises UsageError for a model without image input, MLCError if its settings are missing.
        """
        table, settings = self.model.images, self.defaults.image_processor
        if settings is None:
            raise MLCError(
                f"{CONFIG_NAME} has no image_processor, which says how images are resized and normalized",
                where=[str(self.folder)],
                hint="run gen_config on a checkpoint with a preprocessor_config.json",
            )
        spec = self.model.spec.images
        assert spec is not None
        return ImagePrompts(spec, self.tokenizer, image_processor(settings, spec.tokens), table)

    @property
    def has_chat_template(self) -> bool:
        """Whether the model has a chat template: a Jinja template, or a conversation template with roles."""
        return bool(self.chat_template) or any(self.defaults.conv_template.get("roles", {}).values())

    @property
    def session(self) -> Session:
        """The session of the last answer. A prefix that the next prompt shares with it is not computed again."""
        return self.sessions.idle

    def new_session(self, max_tokens: int | None = None) -> Session:
        """A new session, for ``prefill`` and ``decode_step``."""
        return Session.empty(self.model, max_tokens)

    def sampling(
        self,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        typical_p: float | None = None,
        presence_penalty: float | None = None,
        frequency_penalty: float | None = None,
        repetition_penalty: float | None = None,
        logit_bias: Mapping[int, float] | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        stop_ids: Sequence[int] | None = None,
        ignore_eos: bool = False,
        top_logprobs: int | None = None,
        overflow: str = "stop",
    ) -> Sampling:
        """Sampling settings, see ``Sampling`` and ``Filters``; None takes the model's default.

        max_tokens: default ``MAX_TOKENS``; -1: until the context is full. stop_ids: tokens that end the answer,
        in addition to the model's own, which ``ignore_eos`` disables. Raises UsageError for values out of range.
        """
        defaults = self.defaults
        limit = MAX_TOKENS if max_tokens is None else max_tokens
        sampling = Sampling(
            max_tokens=None if limit == UNTIL_FULL else limit,
            temperature=defaults.temperature if temperature is None else temperature,
            filters=given(defaults.filters, top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p),
            penalties=given(
                defaults.penalties,
                presence=presence_penalty,
                frequency=frequency_penalty,
                repetition=repetition_penalty,
            ),
            logit_bias=dict(logit_bias or {}),
            seed=seed,
            stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
            eos_ids=frozenset(stop_ids or ()) | (frozenset() if ignore_eos else defaults.eos_ids),
            top_logprobs=top_logprobs,
            overflow=overflow,
        )
        _check_tokens("logit_bias", sampling.logit_bias, self.model.spec.vocab_size)
        _check_tokens("stop_ids", stop_ids or (), self.model.spec.vocab_size)
        return sampling

    def generate(
        self,
        prompt: Prompt | Sequence[Prompt],
        *,
        n: int = 1,
        on_text: OnText | None = None,
        num_draft: int = 0,
        draft: LLM | None = None,
        **settings: Unpack[SamplingSettings],
    ) -> GenerationResult | list[GenerationResult]:
        """Continue a text or token ids; a list of prompts is decoded as one batch and returns a list.

        settings: see ``sampling``. n: answers to each prompt; if greater than 1, the result is a list, grouped by
        prompt. on_text: called with each piece of text as soon as it is final. num_draft, draft: see ``stream``. These
        three require a single answer.
        """
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise UsageError(f"n is {n!r}; expected an integer of at least 1")
        sampling = self.sampling(**settings)
        prompts = cast(Sequence[Prompt], prompt if _is_batch(prompt) else [prompt])
        encoded = [self.encode(p) for p in prompts]
        if n == 1 and not _is_batch(prompt):
            return self._run(encoded[0], sampling, on_text, num_draft, draft)
        if on_text is not None or num_draft:
            raise UsageError("on_text and num_draft are for one answer; a list of prompts or n above 1 was given")
        return generate_batch(self.model, self.tokenizer, [ids for ids in encoded for _ in range(n)], sampling)

    def chat(
        self,
        messages: Sequence[dict],
        *,
        on_text: OnText | None = None,
        num_draft: int = 0,
        draft: LLM | None = None,
        **settings: Unpack[SamplingSettings],
    ) -> GenerationResult:
        """The assistant's answer to `messages`, dicts with "role" and "content", through the model's chat template.

        content: a text, or a list of text and image parts, see ``without_images``. Other parameters: see ``generate``.
        """
        sampling = self.with_chat_stops(self.sampling(**settings))
        return self._run(self.chat_prompt(messages), sampling, on_text, num_draft, draft)

    def stream(
        self, prompt: Prompt, sampling: Sampling | None = None, *, num_draft: int = 0, draft: LLM | None = None
    ) -> TextStream:
        """The answer to a text or token ids as an iterator over pieces of text; its ``result`` is the GenerationResult.

        sampling: from ``sampling``, by default the model's own. num_draft: draft tokens to propose and to verify in
        one call (speculative decoding), 0 for none. draft: a draft model with the same vocabulary, or an EAGLE, Medusa
        or MTP head for this model; None drafts from repetitions in the text. The answer does not change.
        Raises UsageError for encoder-decoders, for a draft model whose state cannot be truncated, and for an
        ``overflow`` that the prompt does not allow.
        """
        ids = self.encode(prompt) if isinstance(prompt, str) else prompt
        sampling = self.sampling() if sampling is None else sampling
        has_source = self.model.spec.decoder_start is not None
        check_overflow(sampling, ids, has_source=has_source)
        if not num_draft:
            if draft is not None:
                raise UsageError("a draft model is given, and num_draft is 0; expected at least 1")
            return TextStream(self.sessions, self.tokenizer, ids, sampling)
        if draft is not None and is_draft_head(draft.compiled):
            return self._headed(ids, sampling, num_draft, draft.compiled)
        check_speculation(self.model, num_draft, draft.model if draft else None)
        if draft is not None and draft.tokenizer.vocabulary != self.tokenizer.vocabulary:
            raise UsageError("the draft model's tokenizer has other tokens; expected those of the model")
        proposer = DraftModel(draft.model, sampling) if draft else PromptLookup()
        return TextStream(self.sessions, self.tokenizer, ids, sampling, proposer, num_draft)

    def _headed(self, ids: Sequence[int], sampling: Sampling, num_draft: int, head: CompiledModel) -> TextStream:
        check_speculation(self.model, num_draft, None)
        if min(ids) < 0:
            raise UsageError("a draft head is given for a prompt with images; expected one of text")
        sessions = HiddenSessions(self.model)
        return TextStream(sessions, self.tokenizer, ids, sampling, head_proposer(head, sessions, sampling), num_draft)

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """The logits after each of `ids`, float32 [len(ids), vocab_size]."""
        with self.model.lock.held():
            row = self.model.pool.add()
            try:
                return self.model.verify(row, ids)
            finally:
                self.model.pool.remove(row)

    def hidden_states(self, ids: Sequence[int]) -> np.ndarray:
        """The hidden state of each of `ids` after the last norm, float32 [len(ids), D]."""
        return self.compiled.hidden_states([ids])[0]

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        pooling: str | None = None,
        normalize: bool | None = None,
        truncate: bool = False,
    ) -> np.ndarray:
        """Text embeddings, float32 [len(texts), E]; for a single text (not a list), [E].

        prompt: text to prepend to every text; prompt_name: or a named prompt of the model. Default: the model's.
        pooling: ``mean``, ``cls`` or ``last``. normalize: divide by the L2 norm. None: as in the model's files.
        truncate: truncate texts that are too long; otherwise they raise UsageError.
        """
        chosen = TextOptions(prompt, prompt_name, pooling, normalize, truncate)
        vectors = self.embedder.embed([texts] if isinstance(texts, str) else texts, chosen)
        return vectors[0] if isinstance(texts, str) else vectors

    @cached_property
    def embedder(self) -> Embedder:
        """Text embeddings with this model."""
        return Embedder(self.compiled, self.tokenizer, embedding_settings(self.folder))

    def encode(self, prompt: Prompt, images: Sequence[Any] = ()) -> list[int]:
        """Token ids of a text, with the special tokens that the tokenizer adds; token ids are returned unchanged.

        For an encoder-decoder: the source's ids, followed by the decoder's start token.

        images: replace the text's placeholders, or precede a text without placeholders; see ``load_image``.
        """
        if not isinstance(prompt, str):
            return self.compiled.check_ids(prompt).tolist()
        if images:
            placeholder = self.image_prompts.placeholder
            text = prompt if placeholder in prompt else f"{placeholder}\n" * len(images) + prompt
            return self.image_prompts.encode(text, images, add_special_tokens=True)
        start = self.compiled.spec.decoder_start
        if start is not None:
            return [*self.tokenizer.encode(prompt), start]
        ids = self.tokenizer.encode(prompt)
        bos = self.tokenizer.token_id(self.tokenizer.special_token("bos_token") or "")
        if not ids and bos is None:
            raise UsageError("the prompt is empty, and the model has no token that begins a text")
        return ids if bos is None else ids or [bos]

    def chat_prompt(self, messages: Sequence[dict], *, add_generation_prompt: bool = True) -> list[int]:
        """Token ids of `messages` in the model's chat format; for messages with images see ``without_images``."""
        messages, images = without_images(messages)
        prompts = self.image_prompts if images else None
        prefix, text = self._chat_text(messages, prompts.placeholder if prompts else "", add_generation_prompt)
        if prompts:
            return [*prefix, *prompts.encode(text, images, add_special_tokens=False)]
        return [*prefix, *self.tokenizer.encode(text, add_special_tokens=False)]

    def _chat_text(self, messages: Sequence[dict], placeholder: str, add_prompt: bool) -> tuple[list[int], str]:
        """Ids of the first tokens, and the text after them. placeholder: the text that represents an image."""
        if self.chat_template:
            if self.model.spec.images is not None and "is string" not in self.chat_template:
                messages = with_parts(messages)
            tokens = {name: self.tokenizer.special_token(name) for name in ("bos_token", "eos_token")}
            return [], render_chat_template(self.chat_template, messages, add_generation_prompt=add_prompt, **tokens)
        conversation = self.defaults.conv_template
        if not conversation:
            raise MLCError("the model has no chat template", where=[str(self.folder)], hint="use plain generation")
        text = render_conversation(
            conversation, with_placeholders(messages, placeholder), add_generation_prompt=add_prompt
        )
        return conversation.get("system_prefix_token_ids") or [], text

    def with_chat_stops(self, sampling: Sampling) -> Sampling:
        """`sampling` with the stop strings of this model's chat format added."""
        return replace(sampling, stop=(*sampling.stop, *self.defaults.stop))

    def close(self) -> None:
        """Stop the worker threads; the object cannot be used afterwards."""
        self.compiled.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(
        self, ids: Sequence[int], sampling: Sampling, on_text: OnText | None, num_draft: int, draft: LLM | None
    ) -> GenerationResult:
        stream = self.stream(ids, sampling, num_draft=num_draft, draft=draft)
        for piece in stream:
            if on_text is not None:
                on_text(piece)
        return stream.result


def _open_library(folder: Path, model_lib: str | Path | None, device: str | None) -> Library:
    path = Path(model_lib) if model_lib is not None else folder / LIBRARY_NAME
    if not path.is_file():
        raise MLCError(
            f"the library {path} does not exist", hint=f"compile it: python -m mlc_cli compile {folder} -o {path}"
        )
    return Library(path, device=0 if device is None else device)


def _check_tokens(name: str, tokens: Iterable[int], vocab_size: int) -> None:
    for token in tokens:
        if token >= vocab_size:
            raise UsageError(f"{name} has the token id {token}; expected 0 to {vocab_size - 1}")


def _is_batch(prompt: Prompt | Sequence[Prompt]) -> bool:
    return not isinstance(prompt, str) and len(prompt) > 0 and not isinstance(prompt[0], (int, np.integer))


def _default_template(template: object) -> str | None:
    """tokenizer_config.json holds one template, or a list of named ones."""
    if isinstance(template, list):
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        return named.get("default")
    return template if isinstance(template, str) else None
