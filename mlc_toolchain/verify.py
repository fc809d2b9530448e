"""Check a model folder: checksums and index of its weights, its configuration and tokenizer, its libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mlc_errors import MLCError, UsageError
from mlc_files import check_library, md5_of
from mlc_runtime.kept_weights import SUFFIX, is_whole
from mlc_runtime.metadata import read_metadata
from mlc_runtime.model_spec import model_spec
from mlc_runtime.stamp import STAMP, check_stamp
from mlc_runtime.tokenizer import Tokenizer
from mlc_runtime.weight_index import read_shards
from mlc_runtime.weights import TensorCache, check_params
from mlc_toolchain.chat_config import FILE_NAME, ChatConfig, read_chat_config
from mlc_toolchain.progress import Progress, Step, silent


@dataclass(frozen=True)
class Check:
    """The check of a file. detail: what was found; problem: what is wrong, or ""."""

    file: str
    detail: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Verification:
    """All checks of a folder."""

    folder: Path
    checks: tuple[Check, ...]

    @property
    def problems(self) -> list[str]:
        return [f"{check.file}: {check.problem}" for check in self.checks if check.problem]


def verify_folder(folder: Path, progress: Progress = silent) -> Verification:
    """Check a model folder without executing its code.

    Weights: every record within its shard, no two that overlap, the index's MD5 sum of each shard. The configuration
    and the tokenizer. Each ``.so``: its checksum, the configuration that it was compiled for, and that its parameters
    are among the weights. Packed weights that are kept for a library: their checksum. Raises UsageError for what is no
    folder.
    """
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is no folder", hint="give a model folder, as convert_weight and gen_config write it"
        )
    checks = [*_weights(folder, progress), _check(FILE_NAME, lambda: _config(folder))]
    if not checks[-1].problem and read_chat_config(folder).tokenizer_files:
        checks.append(_check("tokenizer", lambda: f"{Tokenizer(folder).vocab_size} tokens"))
    checks += [_check(path.name, partial(_library, folder, path)) for path in sorted(folder.glob("*.so"))]
    checks += [_check(path.name, partial(_kept, path)) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    return Verification(folder, tuple(checks))


def _check(file: str, check: Callable[[], str]) -> Check:
    try:
        return Check(file, check())
    except MLCError as error:
        return Check(file, problem="; ".join((error.message, *error.where)))
    except OSError as error:
        return Check(file, problem=str(error.strerror))


def _weights(folder: Path, progress: Progress) -> Iterator[Check]:
    records = _check("weights", lambda: f"{len(TensorCache(folder).records)} tensors, each in its place")
    yield records
    if records.problem:
        return
    _, shards = read_shards(folder)
    done, total = 0, sum(shard.nbytes for shard in shards)
    for count, shard in enumerate(shards):
        progress(Step("verify", count, len(shards), "files", done, total, shard.name))
        yield _check(shard.name, partial(_sum, folder / shard.name, shard.md5))
        done += shard.nbytes
    progress(Step("verify", len(shards), len(shards), "files", done, total))


def _sum(path: Path, expected: str | None) -> str:
    if expected is None:
        return "the index has no sum"
    found = md5_of(path)
    if found != expected:
        raise MLCError(f"its MD5 sum is {found}; the index has {expected}")
    return f"MD5 {found}"


def _config(folder: Path) -> str:
    config: ChatConfig = read_chat_config(folder)
    missing = [name for name in config.tokenizer_files if not (folder / name).is_file()]
    if missing:
        raise MLCError(f"it names {', '.join(missing)}, which the folder lacks")
    return f"{config.model_type}, {config.quantization}"


def _library(folder: Path, path: Path) -> str:
    check_library(path)
    metadata = read_metadata(path)
    check_stamp(metadata, folder / FILE_NAME)
    check_params(model_spec(metadata).params, TensorCache(folder))
    tied = "for this configuration" if STAMP in metadata else "without a record of its configuration"
    return f"compiled {tied}, version {metadata.get('compiler_version')}"


def _kept(path: Path) -> str:
    if not is_whole(path):
        raise MLCError("it does not have its checksum; delete it, and weights are packed when they are loaded")
    return "packed weights"
