"""Write mlc-chat-config.json and the tokenizer files of a checkpoint."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlc_errors import MLCError, UsageError
from mlc_toolchain.chat_config import FILE_NAME, ChatConfig, TokenizerInfo
from mlc_toolchain.conversation import Conversation, load_template
from mlc_toolchain.conversation_check import check_conversation
from mlc_toolchain.conversation_match import Checkpoint, Match, match_conversation
from mlc_toolchain.generation_defaults import GenerationDefaults, generation_defaults
from mlc_toolchain.image_settings import image_settings
from mlc_toolchain.memory_estimate import MemoryEstimate, estimate_memory, parse_bytes
from mlc_toolchain.mixed_bits import recorded_mixture
from mlc_toolchain.model_sizes import ModelSizes, SizeOverrides, model_sizes
from mlc_toolchain.packed_settings import unquantized
from mlc_toolchain.readers.bounded_json import read_json_object
from mlc_toolchain.sentence_transformers import SentenceModules, sentence_modules, with_heads
from mlc_toolchain.source import ModelSource, resolve_source
from mlc_toolchain.source_tokenizer import source_tokenizer
from mlc_toolchain.text_files import write_files
from mlc_toolchain.tokenizer import chat_template as templates
from mlc_toolchain.tokenizer.files import TokenizerFiles
from model_zoo import registry
from model_zoo.architecture import Architecture
from quantization.schemes import get_scheme

WITHOUT_TOKENIZER = "the model has no tokenizer and no chat template; add the checkpoint's before generating text"
WITHOUT_IMAGE_SETTINGS = "the checkpoint has no preprocessor_config.json; the model will take text only"


LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class GenConfigOptions:
    """Options of ``gen_config``. source: see ``resolve_source``. conv_template: "auto" or a registered name.

    sizes: overrides of the model's sizes. memory: such as "8GiB", for the largest batch in the report.
    check_template: whether a named template's tokens must exist in the tokenizer.
    """

    source: str
    quantization: str
    output: Path
    model_type: str = "auto"
    conv_template: str = "auto"
    sizes: SizeOverrides = field(default_factory=SizeOverrides)
    memory: str | None = None
    check_template: bool = True


@dataclass(frozen=True)
class GenConfigReport:
    """The result of ``gen_config``, and the model's memory. Sizes in tokens; largest_batch: full-context sequences."""

    output: str
    model_type: str
    quantization: str
    conv_template: str
    vocab_size: int
    active_vocab_size: int
    context_window_size: int
    prefill_chunk_size: int
    eos_token_ids: tuple[int, ...]
    files: tuple[str, ...]
    weight_bytes: int
    kv_bytes_per_token: int
    kv_full_context_bytes: int
    memory_bytes: int | None = None
    largest_batch: int | None = None
    notes: tuple[str, ...] = ()


def gen_config(options: GenConfigOptions) -> GenConfigReport:
    """Write the folder's configuration and tokenizer. Raises MLCError before anything is written."""
    options = replace(options, quantization=recorded_mixture(options.output, options.quantization))
    scheme = get_scheme(options.quantization)
    memory = None if options.memory is None else parse_bytes(options.memory)
    source = resolve_source(options.source)
    modules = sentence_modules(source)
    config = unquantized(with_heads(source.config(), modules), str(source.path))
    LOG.info("found the model configuration of %r in %s", config.get("model_type"), source.path)
    sizes = model_sizes(config, options.model_type, scheme, options.sizes)
    tokenizer = source_tokenizer(source)
    LOG.info("tokenizer files: %s", ", ".join(tokenizer.files) if tokenizer else "none")
    vocabulary = sizes.vocab_size if tokenizer is None else tokenizer.active_vocab_size
    if vocabulary > sizes.vocab_size:
        raise MLCError(
            f"the model has a vocabulary of {sizes.vocab_size}; the tokenizer has ids up to {vocabulary - 1}",
            where=[str(source.path)],
            hint="config.json and tokenizer are of different models, or tokens were added without resizing the model",
        )
    defaults = generation_defaults(_generation_config(source), config, tokenizer)
    match = _conversation(options, tokenizer, defaults)
    LOG.info("conversation template: %s", match.conversation.name or "derived from the checkpoint's")
    files = _files(options, source, tokenizer)
    images = image_settings(source) if sizes.takes_images else None
    chat_config = replace(
        _chat_config(sizes, options, tokenizer, vocabulary, defaults, match.conversation, tuple(files)),
        model_task=registry.get(sizes.model_type).task,
        embedding_metadata=_embedding_metadata(registry.get(sizes.model_type), modules),
        image_processor=images,
    )
    write_files(options.output, {**files, FILE_NAME: chat_config.to_json().encode()}, stale=(templates.FILE_NAME,))
    estimate = estimate_memory(sizes, memory)
    notes = (
        *sizes.notes,
        *(tokenizer.notes if tokenizer else (WITHOUT_TOKENIZER,)),
        *defaults.notes,
        *match.notes,
        *estimate.notes,
        *((WITHOUT_IMAGE_SETTINGS,) if sizes.takes_images and images is None else ()),
    )
    return _report(options, chat_config, estimate, memory, defaults, notes)


def _generation_config(source: ModelSource) -> dict[str, Any]:
    path = source.file("generation_config.json")
    return {} if path is None else read_json_object(path)


def _conversation(options: GenConfigOptions, tokenizer: TokenizerFiles | None, defaults: GenerationDefaults) -> Match:
    if options.conv_template != "auto":
        named = load_template(options.conv_template)
        if options.check_template and tokenizer is not None:
            check_conversation(named, tokenizer.tokenizer)
        return Match(named)
    if tokenizer is None:
        plain = replace(load_template("LM"), system_prefix_token_ids=None, stop_token_ids=defaults.eos_token_ids)
        return Match(plain)
    bos, eos = tokenizer.token("bos_token"), tokenizer.token("eos_token")
    return match_conversation(
        Checkpoint(tokenizer.chat_template, tokenizer.tokenizer, bos, eos, defaults.eos_token_ids)
    )


def _files(options: GenConfigOptions, source: ModelSource, tokenizer: TokenizerFiles | None) -> dict[str, bytes]:
    """The files beside mlc-chat-config.json. A template that the user names replaces the checkpoint's own."""
    if source.kind != "preset" and source.path.resolve() == options.output.resolve():
        raise UsageError("the output folder is the checkpoint's own; expected another", where=[str(options.output)])
    if tokenizer is None:
        return {}
    files = dict(tokenizer.files)
    if options.conv_template != "auto":
        files.pop(templates.FILE_NAME, None)
        if "chat_template" in tokenizer.config:
            kept = {key: value for key, value in tokenizer.config.items() if key != "chat_template"}
            files["tokenizer_config.json"] = (json.dumps(kept, indent=2, ensure_ascii=False) + "\n").encode()
    return files


def _chat_config(
    sizes: ModelSizes,
    options: GenConfigOptions,
    tokenizer: TokenizerFiles | None,
    active_vocab_size: int,
    defaults: GenerationDefaults,
    conversation: Conversation,
    files: tuple[str, ...],
) -> ChatConfig:
    sampling: Mapping[str, Any] = defaults.sampling
    return ChatConfig(
        model_type=sizes.model_type,
        quantization=get_scheme(options.quantization).name,
        model_config=sizes.model_config,
        vocab_size=sizes.vocab_size,
        context_window_size=sizes.get("context_window_size", -1),
        sliding_window_size=sizes.get("sliding_window_size", -1),
        prefill_chunk_size=sizes.get("prefill_chunk_size", -1),
        attention_sink_size=sizes.get("attention_sink_size", -1),
        tensor_parallel_shards=sizes.get("tensor_parallel_shards", 1),
        pipeline_parallel_stages=sizes.get("pipeline_parallel_stages", 1),
        active_vocab_size=active_vocab_size,
        **sampling,
        tokenizer_files=files,
        tokenizer_info=tokenizer.info if tokenizer else TokenizerInfo(),
        conv_template=conversation,
        pad_token_id=defaults.pad_token_id,
        bos_token_id=defaults.bos_token_id,
        eos_token_id=defaults.eos_token_id,
    )


def _embedding_metadata(architecture: Architecture, modules: SentenceModules | None) -> dict[str, Any] | None:
    """Embedding settings from the checkpoint's files, else the architecture's; None for a chat model without either."""
    if architecture.task != "embedding" and modules is None:
        return None
    known = {"pooling_strategy": architecture.pooling, "normalize": True} if architecture.pooling else {}
    kind = "encoder" if architecture.is_encoder else "decoder"
    return {"model_type": kind, **(modules.metadata() if modules else known)}


def _report(
    options: GenConfigOptions,
    config: ChatConfig,
    estimate: MemoryEstimate,
    memory: int | None,
    defaults: GenerationDefaults,
    notes: tuple[str, ...],
) -> GenConfigReport:
    return GenConfigReport(
        output=str(options.output),
        model_type=config.model_type,
        quantization=config.quantization,
        conv_template=_described(config.conv_template, config.tokenizer_files),
        vocab_size=config.vocab_size,
        active_vocab_size=config.active_vocab_size,
        context_window_size=config.context_window_size,
        prefill_chunk_size=config.prefill_chunk_size,
        eos_token_ids=defaults.eos_token_ids,
        files=(*config.tokenizer_files, FILE_NAME),
        weight_bytes=estimate.weight_bytes,
        kv_bytes_per_token=estimate.kv_bytes_per_token,
        kv_full_context_bytes=estimate.kv_full_context_bytes,
        memory_bytes=memory,
        largest_batch=estimate.largest_batch,
        notes=notes,
    )


def _described(conversation: Conversation, files: tuple[str, ...]) -> str:
    name = conversation.name or "derived from the checkpoint's"
    return f"{name}, with the checkpoint's own template" if templates.FILE_NAME in files else name
