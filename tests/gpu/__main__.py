"""``python -m tests.gpu``: run the tests that need a GPU, or print why none can run."""

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
