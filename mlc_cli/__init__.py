"""The command line, one module per command: parse the arguments, call `mlc_toolchain` or `mlc_runtime`, print."""

import os
import sys

from mlc_cli import interrupts

_NAME = os.path.basename(sys.argv[0]) if sys.argv else ""
_PLACE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

if _NAME in ("-m", "mlc_cli"):  # `python -m mlc_cli` or the script of that name starts: what follows are imports
    interrupts.install()
if _NAME == "-m" and os.path.realpath(sys.path[0]) != _PLACE:
    del sys.path[0]  # the current folder, whose packages may have the names of ours
