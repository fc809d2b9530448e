"""Run the measurements of `eval` on one checkpoint in several schemes, and on llama.cpp with the same windows of text.

python benchmarks/evaluation.py CHECKPOINT --scratch DIR q0f16 q4f16_1 q4f16_nl+calibration llama.cpp:F16 llama.cpp:Q4_0

A name is a scheme of this project, ``+calibration`` for ``--calibration auto``, or a type of llama.cpp. The text is
Newton's *Opticks*, of 1730. Divergences are from this project's float32 library without quantized activations (q0f32,
``--opt act=exact``), whose log-probabilities are cached below ``--scratch``. So are the scores of every window: a run
that is interrupted, or repeated with more windows, continues. ``SCHEME@act=exact`` compiles with other options than the
default. The table of docs/evaluation.md is printed at the end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_peers import LLAMA_CPP, PeerWeights
from accuracy_texts import book

from mlc_compiler.optimization import DEFAULT_LEVEL
from mlc_evaluation.perplexity import Divergence, Windows, divergence_of, standard_error, windows_of
from mlc_evaluation.scorers import CompiledScorer
from mlc_files import whole_file
from mlc_runtime import LLM
from mlc_toolchain.compile import CompileOptions, compile_model
from mlc_toolchain.convert_weight import ConvertOptions, convert_weight
from mlc_toolchain.gen_config import GenConfigOptions, gen_config
from mlc_toolchain.model_sizes import SizeOverrides

RESULTS = Path(__file__).resolve().parent / "results" / "evaluation.json"
REFERENCE = "q0f32@act=exact"
CALIBRATION = "+calibration"
BLOCK = 8
"""Windows whose log-probabilities llama.cpp writes to a file at a time."""


@dataclass(frozen=True)
class Row:
    """The result of one model. error: of the perplexity. divergence: from the reference, on the same positions."""

    name: str
    megabytes: float
    perplexity: float
    error: float
    divergence: Divergence


class Models:
    """The models of one checkpoint, created below ``scratch`` at first use."""

    def __init__(self, checkpoint: Path, scratch: Path, threads: int):
        self._checkpoint, self._scratch, self._threads = checkpoint, scratch, threads
        self._peers = PeerWeights(checkpoint, scratch, dict)

    def tokenizer(self) -> LLM:
        return LLM(self._folder("q0f32"), self._library(REFERENCE), num_threads=self._threads)

    def log_probabilities(self, name: str, windows: Windows) -> tuple[Iterator[np.ndarray], float]:
        """Log-probabilities of each window, [positions, V], and the size of the file in MB."""
        if not name.startswith(LLAMA_CPP):
            folder, library = self._folder(name.partition("@")[0]), self._library(name)
            size = sum(path.stat().st_size for path in folder.glob("params_shard_*"))
            return self._of_ours(folder, library, windows), size / 1e6
        file = self._peers.file(name.partition(":")[2])
        return self._of_peer(file, windows), file.stat().st_size / 1e6

    def _of_peer(self, file: Path, windows: Windows) -> Iterator[np.ndarray]:
        ids, made = self._scratch / "windows.npy", self._scratch / "peer.npy"
        for begin in range(0, len(windows.ids), BLOCK):
            np.save(ids, np.array(windows.ids[begin : begin + BLOCK], np.int32))
            self._peers.run("peers.log_probabilities", file, ids, str(windows.first), made, str(self._threads))
            yield from np.load(made, mmap_mode="r")

    def _of_ours(self, folder: Path, library: Path, windows: Windows) -> Iterator[np.ndarray]:
        with LLM(folder, library, num_threads=self._threads) as llm:
            scorer = CompiledScorer(llm)
            for ids in windows.ids:
                yield np.concatenate(list(scorer.log_probabilities(ids[:-1], windows.first)))

    def _folder(self, name: str) -> Path:
        """The folder of a converted and configured model."""
        scheme, folder = name.removesuffix(CALIBRATION), self._scratch / "ours" / name
        if not (folder / "done").is_file():
            calibration = "auto" if name.endswith(CALIBRATION) else None
            convert_weight(ConvertOptions(str(self._checkpoint), scheme, folder, calibration=calibration))
            sizes = SizeOverrides(context_window_size=1024, prefill_chunk_size=512, max_batch_size=64)
            gen_config(GenConfigOptions(str(self._checkpoint), scheme, folder, sizes=sizes))
            (folder / "done").touch()
        return folder

    def _library(self, name: str) -> Path:
        base, _, opt = name.partition("@")
        folder = self._folder(base)
        library = folder / f"lib{opt.replace('=', '_')}.so"
        if not library.is_file():
            compile_model(CompileOptions(folder, library, device="cpu", opt=opt or DEFAULT_LEVEL))
        return library


def measured(models: Models, name: str, windows: Windows, reference: np.ndarray, folder: Path) -> Row:
    """Score a model. reference: float32 [windows, positions, V]; folder: of the scores, a file for each window."""
    paths = [folder / name / f"{number}.npy" for number in range(len(windows.ids))]
    left = [number for number, path in enumerate(paths) if not path.is_file()]
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    found, size = models.log_probabilities(name, Windows([windows.ids[number] for number in left], windows.size))
    for number, log_q in zip(left, found, strict=True):
        expected = np.array(windows.ids[number][windows.first + 1 :])
        with whole_file(paths[number]) as file:
            np.save(file, scores(expected, log_q, reference[number]))
    losses, kl, same = np.concatenate([np.load(path) for path in paths], axis=1)
    perplexity = math.exp(losses.mean())
    return Row(name, size, perplexity, perplexity * standard_error(losses), divergence_of(kl, same))


def scores(expected: np.ndarray, log_q: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Losses, divergences and whether the most likely token is the same, by position: float64 [3, positions].

    expected: token ids [positions]; log_q, reference: log-probabilities [positions, V].
    """
    log_p, log_q = reference.astype(np.float64), log_q.astype(np.float64)
    losses = -log_q[np.arange(len(expected)), expected]
    kl = (np.exp(log_p) * (log_p - log_q)).sum(-1)
    return np.stack([losses, kl, log_p.argmax(-1) == log_q.argmax(-1)])


def stored_reference(models: Models, windows: Windows, path: Path) -> np.ndarray:
    """The reference's log-probabilities, float32 [windows, positions, V], cached in a file."""
    if not path.is_file():
        found, _ = models.log_probabilities(REFERENCE, windows)
        made = path.with_suffix(".partial")
        save_rows(found, len(windows.ids), made)
        made.rename(path)
    kept: np.ndarray = np.load(path, mmap_mode="r")
    return kept


def save_rows(rows: Iterator[np.ndarray], count: int, path: Path) -> None:
    """Save ``count`` arrays of one shape as one float32 array, with one of them in memory at a time."""
    first = next(rows)
    made = np.lib.format.open_memmap(path, "w+", np.float32, (count, *first.shape))
    for place, row in zip(made, itertools.chain([first], rows), strict=True):
        place[:] = row
    made.flush()


def about(windows: Windows) -> dict[str, object]:
    """What all rows have in common."""
    counts = {"windows": len(windows.ids), "window": windows.size, "scored": windows.scored}
    return {"text": "Newton, Opticks, 1730", **counts}


def table(results: dict[str, Any]) -> str:
    """The rows of a file of results in Markdown, the largest files first, then the smallest divergence."""
    rows = sorted(results["rows"], key=lambda row: (-round(row["megabytes"]), row["divergence"]["mean"]))
    head = ["| weights | MB | perplexity | KL | 99 % | same token |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *map(_table_row, rows)])


def _table_row(row: dict[str, Any]) -> str:
    divergence = Divergence(**row["divergence"])
    digits = 4 if divergence.mean > 0.001 else 7
    cells = [
        *(_title(row["name"]), f"{row['megabytes']:.1f}", f"{row['perplexity']:.3f} ± {row['error']:.3f}"),
        f"{divergence.mean:.{digits}f} ± {divergence.error:.{digits}f}",
        *(f"{divergence.p99:.{digits}f}", f"{100 * divergence.same_top:.1f} %"),
    ]
    return f"| {' | '.join(cells)} |"


def _title(name: str) -> str:
    if name.startswith(LLAMA_CPP):
        return name.replace(":", " ")
    scheme, _, opt = name.partition("@")
    options = [f"`{scheme.removesuffix(CALIBRATION)}`"]
    options += ["`--calibration auto`"] if scheme.endswith(CALIBRATION) else []
    options += [f"`--opt {opt}`"] if opt else []
    return " ".join(options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--scratch", type=Path, required=True, help="files, and the environment of llama.cpp")
    parser.add_argument("--windows", type=int, default=40, help="of 512 tokens, from the beginning of the text")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    args.scratch.mkdir(parents=True, exist_ok=True)
    models = Models(args.checkpoint, args.scratch, args.threads)
    with models.tokenizer() as llm:
        windows = windows_of(book(), llm.tokenizer, 512, args.windows)
    reference = stored_reference(models, windows, args.scratch / f"reference-{args.windows}.npy")
    kept = json.loads(args.output.read_text()) if args.output.is_file() else {}
    rows = {row["name"]: row for row in kept.pop("rows", []) if kept == about(windows)}
    for name in args.names:
        row = measured(models, name, windows, reference, args.scratch / "scores")
        print(f"{name}: {row.perplexity:.3f} +- {row.error:.3f}, KL {row.divergence.mean:.5f}", flush=True)
        rows[name] = asdict(row)
        args.output.write_text(json.dumps({**about(windows), "rows": list(rows.values())}, indent=1) + "\n")
    print(table({"rows": rows.values()}))


if __name__ == "__main__":
    main()
