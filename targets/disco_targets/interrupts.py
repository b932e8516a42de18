"""Ends a command in order when it is told to: Ctrl-C, SIGTERM and a closed terminal alike."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.05
"""Until an interrupt that was lost is raised again."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within it SIGINT (Ctrl-C), SIGTERM and SIGHUP raise KeyboardInterrupt, once.

    So every `with` on the way out ends what it started, however often Ctrl-C is pressed meanwhile. A signal that is
    ignored already (nohup, a background job of a script) stays so. Outside of the main thread, where Python
    takes no signal handlers, it does nothing.

    Python drops what is raised in a finaliser or around a fork: an interrupt that came just there is raised again.
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

    def listen() -> None:
        for number in before:
            signal.signal(number, interrupt)

    listen()
    try:
        with _raised_again(listen, next(iter(before), None)):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _raised_again(listen: Callable[[], None], number: signal.Signals | None) -> Iterator[None]:
    """Within it a KeyboardInterrupt that Python drops comes again: `listen`, then signal `number` to this thread."""
    before = sys.unraisablehook
    timers: list[threading.Timer] = []

    def again() -> None:
        assert number is not None
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    def dropped(unraisable: sys.UnraisableHookArgs) -> None:
        if number is None or not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        listen()
        timers.append(threading.Timer(_AGAIN_S, again))
        timers[-1].daemon = True
        timers[-1].start()

    sys.unraisablehook = dropped
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in timers:
            timer.cancel()
