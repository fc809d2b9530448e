"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from mlc_cli import console

FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)


EMPTY = "the name is empty; . is the current folder"


class NamedPath(click.Path):
    """A path that has a name: an empty one would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail(EMPTY, param, ctx)
        return super().convert(value, param, ctx)


ON_HUB = re.compile(r"hf://|https?://(www\.)?huggingface\.co/", re.IGNORECASE)
"""What a repository's name may begin with: the prefix, or the address of its page."""


class Name(click.ParamType):
    """The name of a model, which is not empty; the address of a page on Hugging Face becomes ``HF://owner/name``."""

    name = "model"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail(EMPTY, param, ctx)
        page = ON_HUB.match(str(value))
        return f"HF://{value[page.end() :].rstrip('/')}" if page else value


MODEL = Name()

# A Hugging Face folder, its config.json, a .gguf file, or HF://owner/name.
source_argument = click.argument("source", metavar="MODEL", type=MODEL)

quantization_option = click.option(
    "--quantization", required=True, metavar="NAME", help="Quantization scheme: q0f32, q0f16, q4f16_1, ..."
)

model_type_option = click.option(
    "--model-type",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Architecture; auto takes the config's, mtp the draft head in its checkpoint.",
)

device_option = click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="TARGET",
    help="Target: auto (this machine's GPU, else its CPU), cuda, cuda:sm_90a, cpu, cpu:NAME, "
    "'llvm -mcpu=NAME -num-cores=N', or JSON.",
)

kv_cache_dtype_option = click.option(
    "--kv-cache-dtype",
    default="auto",
    show_default=True,
    metavar="DTYPE",
    help="Dtype of the KV cache: auto, float16, float32, bfloat16, int8 (with scales) or float8_e4m3fn.",
)

model_lib_option = click.option(
    "--model-lib", type=FILE, metavar="FILE", help="The compiled library. Default: MODEL/lib.so."
)

output_folder_option = click.option(
    *("-o", "--output"),
    required=True,
    type=NamedPath(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Output folder; created if missing.",
)

output_file_option = click.option(
    *("-o", "--output"),
    required=True,
    type=NamedPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Output file.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text; `schema` describes it.")

verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=lambda _context, _option, given: console.show_decisions() if given else None,
    help="Log findings and decisions on standard error.",
)
