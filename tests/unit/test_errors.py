"""Exit codes of the commands."""

from __future__ import annotations

import pytest
from rich.console import Console

from disco_targets.command import run_command
from disco_targets.errors import DiscoError, UsageError, exit_code


class BoardSilentError(DiscoError):
    """A subclass as the packages make them."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DiscoError("no such board"), 1),
        (BoardSilentError("node 1 is silent"), 1),
        (UsageError("--nodes 0"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_what_a_user_can_put_right_has_a_code(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


def test_a_bug_is_raised_again() -> None:
    bug = ZeroDivisionError("ours")
    with pytest.raises(ZeroDivisionError) as caught:
        exit_code(bug)
    assert caught.value is bug


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device", "/full/file"), "/full/file: No space left on device"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (MemoryError(), "memory"),
    ],
)
def test_what_the_system_refuses_is_one_line(capsys: pytest.CaptureFixture[str], error: Exception, words: str) -> None:
    def action(_: Console) -> int:
        raise error

    assert run_command("disco-test", action) == 1
    text = capsys.readouterr().err
    assert text.startswith("disco-test: ")
    assert words in text
    assert text.count("\n") == 1
