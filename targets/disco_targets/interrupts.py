"""Ends a command in order when it is told to: Ctrl-C, SIGTERM and a closed terminal alike."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within it SIGINT (Ctrl-C), SIGTERM and SIGHUP raise KeyboardInterrupt, once.

    So every `with` on the way out ends what it started, however often Ctrl-C is pressed meanwhile. A signal that is
    ignored already (nohup, a background job of a script) stays so. Outside of the main thread, where Python
    takes no signal handlers, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: handler for number in _SIGNALS if (handler := signal.getsignal(number)) != signal.SIG_IGN}

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        for caught in before:
            signal.signal(caught, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
