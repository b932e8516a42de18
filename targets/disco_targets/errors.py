"""The error tree of the project and its mapping to exit codes.

Every package raises `DiscoError` or a subclass for what a user can put right; anything else that
escapes is a bug. A message says what is wrong, where, and what to do next, in one or two sentences,
and needs no traceback. Command-line modules map errors to exit codes in one place: their `main`
returns `exit_code(error)`.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class DiscoError(Exception):
    """Something the user can put right: exit code 1."""

    exit_code: int = EXIT_FAILED


class UsageError(DiscoError):
    """Options that make no sense together or a value that cannot be parsed: exit code 2."""

    exit_code: int = EXIT_USAGE


def exit_code(error: BaseException) -> int:
    """The exit code of a command that ended with `error`.

    `DiscoError` carries its own code, Ctrl-C gives 130 as shells do. Any other exception is a bug
    of ours: it is not mapped but raised again, so that its traceback is seen.
    """
    if isinstance(error, DiscoError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    raise error
