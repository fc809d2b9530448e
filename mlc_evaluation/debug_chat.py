"""Generate text and write every kernel's arguments to files.

``DIR/prefill/f12_linear.npz`` has the arguments of the thirteenth kernel of the prefill, ``DIR/decode_1`` those of
the first decode step: ``arg_0``, ``arg_1`` and so on, inputs before results. ``logits.npz``
has the logits, float32 [1, V]. State arrays are left empty, because they hold all sequences of the process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlc_errors import UsageError
from mlc_evaluation.kernel_calls import KernelCall, KernelCalls, is_float, widened
from mlc_files import cannot_write
from mlc_runtime.llm import LLM
from mlc_runtime.observation import observing
from mlc_runtime.session import Session

PREFILL, LOGITS = "prefill", "logits.npz"


@dataclass(frozen=True)
class DebugReport:
    """The files written. problem: the first result with a NaN or an infinity, with its kernel and layer, or empty.

    kernels: number of kernels in all phases (the prefill and each decode step).
    """

    folder: Path
    phases: int
    kernels: int
    file_bytes: int
    problem: str
    token_ids: list[int]
    text: str


@dataclass
class KernelFiles:
    """Writes calls to the folder of a phase; ``problem``: the first result with a NaN or an infinity."""

    folder: Path
    phase: str = PREFILL
    kernels: int = 0
    nbytes: int = 0
    problem: str = ""
    _in_phase: int = field(default=0, repr=False)

    def begin(self, phase: str) -> None:
        self.phase, self._in_phase = phase, 0
        (self.folder / phase).mkdir(parents=True, exist_ok=True)

    def write(self, call: KernelCall) -> None:
        """Write the arguments of a call, and check its results for NaN and infinity."""
        pairs = zip(call.arguments, call.is_state, strict=True)
        arrays: list[Any] = [np.empty(0, np.float32) if is_state else widened(a) for a, is_state in pairs]
        path = self.folder / self.phase / f"f{self._in_phase}_{call.kernel}.npz"
        np.savez(path, **dict(zip(map("arg_{}".format, range(len(arrays))), arrays, strict=True)))
        self.kernels, self._in_phase, self.nbytes = self.kernels + 1, self._in_phase + 1, self.nbytes + _size(path)
        self.problem = self.problem or self._problem(call, path)

    def write_logits(self, logits: np.ndarray) -> None:
        """Write logits, float32 [V], as ``logits.npz``."""
        path = self.folder / self.phase / LOGITS
        np.savez(path, logits[None])
        self.nbytes += _size(path)

    def _problem(self, call: KernelCall, path: Path) -> str:
        for array in filter(is_float, call.outputs):
            values = array.astype(np.float32)
            for name, found in (("NaN", np.isnan(values)), ("infinity", np.isinf(values))):
                if found.any():
                    where = np.argwhere(found)[0].tolist()
                    return f"{name} at {where} in {self.phase}, {call.place} ({path.relative_to(self.folder)})"
        return ""


def check_request(generate_len: int, folder: Path) -> None:
    """Create the folder. Raises UsageError for a length below 1 and for a folder that has files, MLCError if it cannot
    be created."""
    if generate_len < 1:
        raise UsageError(f"--generate-len is {generate_len}; expected at least 1")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"--debug-dir: {folder} is not empty", hint="give a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write("the kernels", folder, error) from None


def write_kernels(llm: LLM, ids: list[int], generate_len: int, folder: Path) -> DebugReport:
    """Continue ``ids`` by ``generate_len`` greedy tokens and write what every kernel computed to ``folder``.

    llm: an observed model. Raises UsageError as ``check_request``.
    """
    check_request(generate_len, folder)
    files = KernelFiles(folder)
    tokens = _answer(llm.new_session(), ids, generate_len, files)
    text = llm.tokenizer.decode(tokens)
    return DebugReport(folder, generate_len, files.kernels, files.nbytes, files.problem, tokens, text)


def prompt_ids(llm: LLM, prompt: str) -> list[int]:
    """Token ids of a prompt, wrapped in the model's chat template if there is one."""
    if llm.has_chat_template:
        return llm.chat_prompt([{"role": "user", "content": prompt}])
    return llm.encode(prompt)


def _answer(session: Session, ids: list[int], length: int, files: KernelFiles) -> list[int]:
    tokens: list[int] = []
    with observing(KernelCalls(session.model, files.write)):
        for step in range(length):
            files.begin(f"decode_{step}" if step else PREFILL)
            logits = session.decode_step(tokens[-1]) if step else session.prefill(ids)
            files.write_logits(logits)
            tokens.append(int(np.argmax(logits)))
    return tokens


def _size(path: Path) -> int:
    return path.stat().st_size
