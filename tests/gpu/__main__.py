"""``python -m tests.gpu``: the tests that need a GPU, or a line that says why there is nothing to run."""

from __future__ import annotations

import sys

import pytest

from tests.gpu.executors import missing_device


def main() -> int:
    why = missing_device()
    if why is not None:
        print(f"no CUDA device: nothing ran ({why})")
        return 0
    return int(pytest.main(["-m", "gpu", "tests/gpu", *sys.argv[1:]]))


if __name__ == "__main__":
    raise SystemExit(main())
