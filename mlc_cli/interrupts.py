"""Ctrl-C prints one line and exits with code 130 at any time, even during imports."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` takes milliseconds to import
import os
from types import FrameType

EXIT_INTERRUPTED = 130
IMPORT_SYSTEM = "<frozen importlib."


def install() -> None:
    """Handle SIGINT in the main thread, unless the process ignores it: raise KeyboardInterrupt, exit within imports.

    An exception within an import would leave a partially initialized module; some packages turn it into ImportError.
    """
    if _signal.getsignal(_signal.SIGINT) is not _signal.default_int_handler:
        return
    try:
        _signal.signal(_signal.SIGINT, _interrupted)
    except ValueError:  # another thread
        return


def _interrupted(number: int, frame: FrameType | None) -> None:
    if _imports(frame):
        os.write(2, b"\ninterrupted\n")
        os._exit(EXIT_INTERRUPTED)
    _signal.default_int_handler(number, frame)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith(IMPORT_SYSTEM):
        frame = frame.f_back
    return frame is not None
