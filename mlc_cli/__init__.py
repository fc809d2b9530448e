"""The command line: one module per command; it parses, calls `mlc_toolchain` or `mlc_runtime`, prints."""

import sys

from mlc_cli import interrupts

if sys.argv[:1] == ["-m"]:  # `python -m mlc_cli` is starting: what follows are imports
    interrupts.install()
