"""The model of a folder: text or token ids in, text, token ids or logits out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np

from mlc_errors import MLCError, UsageError
from mlc_runtime.chat_template import render_chat_template, render_conversation
from mlc_runtime.decoder import Decoder
from mlc_runtime.generation import GenerationResult, Sampling, TextStream, generate_batch
from mlc_runtime.library import Library
from mlc_runtime.session import Session, SessionCache
from mlc_runtime.tokenizer import Tokenizer
from mlc_runtime.weights import LoadProgress, TensorCache

CONFIG_NAME, LIBRARY_NAME, TEMPLATE_NAME = "mlc-chat-config.json", "lib.so", "chat_template.jinja"

Prompt = str | Sequence[int]
OnText = Callable[[str], None]


@dataclass(frozen=True)
class GenerationDefaults:
    """The generation settings of mlc-chat-config.json."""

    temperature: float
    top_p: float
    eos_ids: frozenset[int]
    stop: tuple[str, ...]
    conv_template: dict


class LLM:
    """A compiled model with its weights and tokenizer.

    folder: the output of convert_weight, gen_config and compile. model_lib: the library, when it is not
    folder/lib.so. num_threads: default all physical cores that this process may use. progress: called while weights
    load, with parameters done, all parameters, bytes done, all bytes. device: ``cpu`` or ``cuda``, as the library is
    compiled; ``cuda:1`` is the second GPU. Raises MLCError when a part is missing, the parts are of different models
    or there is no such device.

    One call at a time; the streams of several answers may be iterated in turns.
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
        self.model = Decoder(self.library, TensorCache(self.folder), num_threads, progress)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.folder)

    @cached_property
    def defaults(self) -> GenerationDefaults:
        return _read_defaults(self.folder / CONFIG_NAME)

    @cached_property
    def chat_template(self) -> str | None:
        """The folder's Jinja template: chat_template.jinja, else the one in tokenizer_config.json."""
        path = self.folder / TEMPLATE_NAME
        if path.is_file():
            return path.read_text(encoding="utf-8")
        return _default_template(self.tokenizer.config.get("chat_template"))

    @property
    def has_chat_template(self) -> bool:
        """Whether the model is made for conversations: it has a Jinja template, or one with roles in its config."""
        return bool(self.chat_template) or any(self.defaults.conv_template.get("roles", {}).values())

    @cached_property
    def sessions(self) -> SessionCache:
        """The sessions of ``generate``, ``chat`` and ``stream``."""
        return SessionCache(self.model)

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
        top_p: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
    ) -> Sampling:
        """Sampling settings; None takes the model's default."""
        return Sampling(
            max_tokens=max_tokens,
            temperature=self.defaults.temperature if temperature is None else temperature,
            top_p=self.defaults.top_p if top_p is None else top_p,
            seed=seed,
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            eos_ids=self.defaults.eos_ids,
        )

    def generate(
        self,
        prompt: Prompt | Sequence[Prompt],
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        on_text: OnText | None = None,
    ) -> GenerationResult | list[GenerationResult]:
        """Continue a text or token ids; a list of prompts is decoded as one batch and returns a list.

        on_text: called with each piece of text as soon as it is final (one prompt only). None: the model's default.
        """
        sampling = self.sampling(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed, stop=stop)
        if not _is_batch(prompt):
            return self._run(self.encode(cast(Prompt, prompt)), sampling, on_text)
        if on_text is not None:
            raise UsageError("on_text is for one prompt; a list of prompts was given")
        prompts = [self.encode(p) for p in cast(Sequence[Prompt], prompt)]
        return generate_batch(self.model, self.tokenizer, prompts, sampling)

    def chat(
        self,
        messages: Sequence[dict],
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        on_text: OnText | None = None,
    ) -> GenerationResult:
        """The assistant's answer to `messages`, dicts with "role" and "content", through the model's chat template."""
        sampling = self.sampling(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed, stop=stop)
        return self._run(self.chat_prompt(messages), self.with_chat_stops(sampling), on_text)

    def stream(self, ids: Sequence[int], sampling: Sampling) -> TextStream:
        """The answer to `ids` as an iterator over pieces of text; its ``result`` is the GenerationResult."""
        return TextStream(self.sessions, self.tokenizer, ids, sampling)

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """The logits after each of `ids`, float32 [len(ids), vocab_size]."""
        row = self.model.pool.add()
        try:
            return self.model.verify(row, ids)
        finally:
            self.model.pool.remove(row)

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a text, with the special tokens that the tokenizer adds; ids stay as they are."""
        if not isinstance(prompt, str):
            return self.model.check_ids(prompt).tolist()
        ids = self.tokenizer.encode(prompt)
        bos = self.tokenizer.token_id(self.tokenizer.special_token("bos_token") or "")
        if not ids and bos is None:
            raise UsageError("the prompt is empty, and the model has no token that begins a text")
        return ids if bos is None else ids or [bos]

    def chat_prompt(self, messages: Sequence[dict], *, add_generation_prompt: bool = True) -> list[int]:
        """Token ids of `messages` in the model's chat format."""
        if self.chat_template:
            tokens = {name: self.tokenizer.special_token(name) for name in ("bos_token", "eos_token")}
            text = render_chat_template(
                self.chat_template, messages, add_generation_prompt=add_generation_prompt, **tokens
            )
            return self.tokenizer.encode(text, add_special_tokens=False)
        conversation = self.defaults.conv_template
        if not conversation:
            raise MLCError("the model has no chat template", where=[str(self.folder)], hint="use plain generation")
        text = render_conversation(conversation, messages, add_generation_prompt=add_generation_prompt)
        prefix = conversation.get("system_prefix_token_ids") or []
        return [*prefix, *self.tokenizer.encode(text, add_special_tokens=False)]

    def with_chat_stops(self, sampling: Sampling) -> Sampling:
        """`sampling` with the stop strings of this model's chat format added."""
        return Sampling(**{**vars(sampling), "stop": (*sampling.stop, *self.defaults.stop)})

    def close(self) -> None:
        """Stop the worker threads; the object cannot be used any more."""
        self.model.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, ids: Sequence[int], sampling: Sampling, on_text: OnText | None) -> GenerationResult:
        stream = self.stream(ids, sampling)
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


def _is_batch(prompt: Prompt | Sequence[Prompt]) -> bool:
    return not isinstance(prompt, str) and len(prompt) > 0 and not isinstance(prompt[0], (int, np.integer))


def _default_template(template: object) -> str | None:
    """tokenizer_config.json holds one template, or a list of named ones."""
    if isinstance(template, list):
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        return named.get("default")
    return template if isinstance(template, str) else None


def _read_defaults(path: Path) -> GenerationDefaults:
    try:
        config = json.loads(path.read_bytes())
        conversation = config.get("conv_template") or {}
        eos = config.get("eos_token_id", [])
        return GenerationDefaults(
            temperature=float(config.get("temperature", 1.0)),
            top_p=float(config.get("top_p", 1.0)),
            eos_ids=frozenset([*([eos] if isinstance(eos, int) else eos), *conversation.get("stop_token_ids", [])]),
            stop=tuple(conversation.get("stop_str", [])),
            conv_template=conversation,
        )
    except OSError as e:
        raise MLCError(f"cannot read {path}: {e.strerror}", hint="gen_config writes it") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as e:
        raise MLCError(f"{CONFIG_NAME} is malformed: {e}", where=[str(path)], hint="run gen_config again") from None
