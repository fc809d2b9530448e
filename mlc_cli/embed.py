"""`mlc_cli embed`: text embeddings, as JSON lines or as a numpy file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlc_cli import console, running
from mlc_cli.options import FILE, json_option
from mlc_cli.preparing import model_options
from mlc_errors import UsageError
from mlc_files import check_writable

if TYPE_CHECKING:
    import numpy as np

    from mlc_toolchain.prepare_plan import PrepareOptions

ARRAY, LINES = ".npy", ".jsonl"


@click.command("embed")
@model_options
@click.option("--text", "texts", multiple=True, metavar="TEXT", help="A text; may be given several times.")
@click.option("--file", type=FILE, metavar="FILE", help="A file with one text on each line. Default: standard input.")
@click.option("-o", "--output", type=FILE, metavar="FILE", help="FILE.npy or FILE.jsonl. Default: standard output.")
@click.option("--prompt", metavar="TEXT", help="Text to prepend to every text.")
@click.option("--prompt-name", metavar="NAME", help="Prepend the model's prompt of this name.")
@click.option("--pooling", metavar="NAME", help="Pooling: mean, cls or last. Default: from the model's files.")
@click.option("--normalize/--no-normalize", default=None, help="Scale to L2 norm 1. Default: from the model's files.")
@click.option("--truncate", is_flag=True, help="Truncate texts that are too long; otherwise they are refused.")
@running.threads_option
@json_option
def embed(
    model: str,
    preparing: PrepareOptions,
    texts: tuple[str, ...],
    file: Path | None,
    output: Path | None,
    prompt: str | None,
    prompt_name: str | None,
    pooling: str | None,
    normalize: bool | None,
    truncate: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Compute text embeddings with MODEL: a model folder, a checkpoint folder, a .gguf file, or HF://owner/name.

    Each line of the output is a JSON object with a text and its embedding. FILE.npy has only the embeddings, float32
    [texts, elements], in order. With --json, errors are JSON objects, and so is the report if the embeddings
    are written to a file.
    """
    _check(output, pooling)
    given = _texts(texts, file)
    with running.load(model, preparing, threads, continues_text=False) as llm:
        vectors = llm.embed(
            given,
            prompt=prompt,
            prompt_name=prompt_name,
            pooling=pooling,
            normalize=normalize,
            truncate=truncate,
        )
    _write(output, given, vectors)
    if as_json and output is not None:
        count, elements = vectors.shape
        console.write_json("embed_file/1", {"output": output, "texts": count, "elements": elements})
    elif not as_json:
        console.note(f"{len(vectors)} texts, {vectors.shape[1]} elements each")


def _check(output: Path | None, pooling: str | None) -> None:
    """Raise MLCError for options that no model can follow, before one is prepared."""
    from mlc_runtime.embedding_settings import POOLINGS

    if pooling is not None and pooling not in POOLINGS:
        raise UsageError(f"--pooling: got {pooling!r}; expected one of {', '.join(POOLINGS)}")
    if output is not None and output.suffix not in (ARRAY, LINES):
        raise UsageError(f"--output: got {output.name!r}; expected the suffix {ARRAY} or {LINES}")
    if output is not None:
        check_writable(output, "the vectors")


def _texts(texts: Sequence[str], file: Path | None) -> list[str]:
    """The texts on the command line, else the non-empty lines of the file or of standard input."""
    if texts and file is not None:
        raise UsageError("--text and --file exclude each other")
    found = list(texts) or [line for line in _content(file).splitlines() if line.strip()]
    if not found:
        raise UsageError("no text", hint='give --text "…" or --file FILE, or pipe lines to standard input')
    return found


def _content(file: Path | None) -> str:
    from mlc_toolchain.text_files import read_text

    return console.standard_input() if file is None else read_text(file)


def _write(output: Path | None, texts: Sequence[str], vectors: np.ndarray) -> None:
    if output is None:
        for line in _lines(texts, vectors):
            click.echo(line)
        return
    import numpy as np

    from mlc_files import whole_file

    with whole_file(output) as file:
        if output.suffix == ARRAY:
            np.save(file, vectors)
        else:
            file.writelines(f"{line}\n".encode() for line in _lines(texts, vectors))


def _lines(texts: Sequence[str], vectors: np.ndarray) -> Iterator[str]:
    """JSON lines; nine significant digits represent a float32 exactly."""
    for text, vector in zip(texts, vectors, strict=True):
        values = [float(f"{x:.9g}") for x in vector]
        yield json.dumps({"schema": "embed/1", "text": text, "embedding": values}, ensure_ascii=False)
