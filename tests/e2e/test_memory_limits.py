"""Commands under a limit of addresses (ulimit -v): they work, or fail with an error that names the limit."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = "llama-bias-tied"
COMMANDS = {
    "compile": "compile DIR --device cpu --opt O0 -o NEW.so",
    "convert_weight": "convert_weight HF --quantization q4f16_1 -o NEW",
    "generate": "generate DIR --prompt a --raw --max-tokens 2",
}
MEGABYTES = (200, 340, 460, 700)


@pytest.mark.parametrize("name", COMMANDS)
def test_little_memory_is_an_error(
    name: str, tiny_folder: Callable[[str, str], Path], checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    paths = {"DIR": tiny_folder(NAME, "q0f32"), "HF": checkpoint(NAME)}
    paths |= {word: tmp_path / word for word in ("NEW", "NEW.so")}
    words = [str(paths.get(word, word)) for word in COMMANDS[name].split()]
    statuses = []
    for limit in MEGABYTES:
        done = limited(words, limit << 20)
        statuses.append(done.returncode)
        assert done.returncode in (0, 4), (limit, done.stderr)
        if done.returncode:
            last = done.stderr[done.stderr.index("error: ") :]
            assert "ulimit -v" in last and "Traceback" not in last, (limit, done.stderr)
    assert statuses[0] == 4 and statuses[-1] == 0


def limited(words: list[str], nbytes: int) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (nbytes, nbytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return subprocess.run(
        [sys.executable, "-m", "mlc_cli", *words],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "2"},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
