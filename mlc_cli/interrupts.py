"""Ctrl-C: one line and exit code 130 at any time, also while packages are being imported."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

EXIT_INTERRUPTED = 130
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"


def install() -> None:
    """Handle SIGINT, unless the process ignores it. In other places than imports it raises KeyboardInterrupt.

    An exception within an import leaves half a module behind, and some packages replace it by an ImportError.
    """
    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> None:
    if _imports(frame):
        os.write(2, b"\ninterrupted\n")
        os._exit(EXIT_INTERRUPTED)
    signal.default_int_handler(number, frame)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != IMPORT_SYSTEM:
        frame = frame.f_back
    return frame is not None
