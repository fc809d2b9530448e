"""Run a planned conversion: stream the tensors into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mlc_errors import MLCError
from mlc_toolchain.conversion_plan import Conversion
from mlc_toolchain.progress import Progress, Step, silent
from mlc_toolchain.weight_stream import ErrorNorm, ParameterTask
from mlc_toolchain.writer import open_output


def run_conversion(
    conversion: Conversion, folder: Path, measured: int | None = 0, progress: Progress = silent
) -> tuple[int, dict[str, ErrorNorm]]:
    """Stream the tensors into ``folder``. Returns the number of resumed tensors, and errors by quantized parameter.

    measured: see ``WeightStream``; errors of resumed tensors are those that the interrupted run measured.
    """
    stream = conversion.stream(measured)
    with open_output(folder, conversion.output, conversion.job()) as writer:
        _check_copies(conversion)
        done = writer.done
        tasks = [task for task in conversion.tasks if not done.issuperset(o.name for o in task.outputs)]
        report = _Counter(conversion, tasks, progress)
        for task, converted in stream.run(tasks):
            note = {"error": converted.error} if converted.error else None
            for output, array in zip(task.outputs, converted.arrays):
                if output.name not in done:
                    writer.write(output.name, array, note)
            report.advance(task)
        writer.finish()
    notes = {task.production.name: writer.notes.get(task.outputs[0].name) for task in conversion.tasks}
    return len(done), {name: ErrorNorm(*note["error"]) for name, note in notes.items() if note}


class _Counter:
    """Progress in tensors and in bytes of output."""

    def __init__(self, conversion: Conversion, tasks: Sequence[ParameterTask], progress: Progress):
        self._progress = progress
        self._total = len(conversion.tasks)
        self._total_bytes = sum(task.nbytes for task in conversion.tasks)
        self._done = self._total - len(tasks)
        self._done_bytes = self._total_bytes - sum(task.nbytes for task in tasks)
        self._report("")

    def advance(self, task: ParameterTask) -> None:
        self._done += 1
        self._done_bytes += task.nbytes
        self._report(task.production.name)

    def _report(self, detail: str) -> None:
        self._progress(
            Step("convert", self._done, self._total, "parameters", self._done_bytes, self._total_bytes, detail)
        )


def _check_copies(conversion: Conversion) -> None:
    """Raises MLCError if the two stored copies of a tied tensor differ."""
    for copy, original in conversion.plan.copies:
        first, second = conversion.reader.read(copy), conversion.reader.read(original)
        if first.dtype != second.dtype or not np.array_equal(first, second):
            raise MLCError(
                f"{copy} differs from {original}, but the config ties them",
                where=[str(conversion.reader.file_of(copy))],
                hint='set "tie_word_embeddings": false in config.json if the checkpoint has a head of its own',
            )
