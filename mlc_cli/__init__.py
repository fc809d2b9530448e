"""The command line: one module per command; it parses, calls `mlc_toolchain` or `mlc_runtime`, prints."""

import os
import sys

from mlc_cli import interrupts

if sys.argv[:1] == ["-m"]:  # `python -m mlc_cli` is starting: what follows are imports
    interrupts.install()
    if os.path.realpath(sys.path[0]) != os.path.dirname(os.path.dirname(os.path.realpath(__file__))):
        del sys.path[0]  # the current folder, whose packages may have the names of ours
