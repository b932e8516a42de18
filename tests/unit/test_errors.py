"""Exit codes of the commands."""

from __future__ import annotations

import pytest

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
