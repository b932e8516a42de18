"""Exit codes of the commands, and how they end: one line, whole files, no second interrupt."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from disco_targets.command import check_writable, run_command, write_json
from disco_targets.disk import writing_to
from disco_targets.errors import DiscoError, UsageError, exit_code
from disco_targets.interrupts import interruptible
from disco_targets.scratch import scratch_folder


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
        (
            OSError(28, "No space left on device"),
            "x: the disk is full: free some space where this command writes its output and files\n",
        ),
        (
            OSError(122, "Disk quota exceeded", "a"),
            "x: the disk is full at a: free some space where this command writes its output and files\n",
        ),
        (OSError(36, "File name too long", "aaa"), "x: aaa: File name too long\n"),
        (FileNotFoundError("No usable temporary directory"), "x: No usable temporary directory\n"),
        (MemoryError(), "x: this PC's memory does not suffice: run fewer or smaller inputs\n"),
    ],
)
def test_what_the_system_refuses_is_one_line(error: Exception, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_errors: Console) -> int:
        raise error

    assert run_command("x", fail) == 1
    assert capsys.readouterr().err == words


def test_a_full_disk_is_told_with_what_is_written_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system names no file when a write fails; numpy not even the reason."""
    full = Path("/dev/full")
    told = rf"^the disk is full at {tmp_path}: free some space there"
    with pytest.raises(DiscoError, match=f"{told}$"), writing_to(Path("outer")), writing_to(tmp_path):
        full.write_text("x")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with (
        pytest.raises(DiscoError, match=f"{told}, or name a folder on another disk in TMPDIR$"),
        scratch_folder("full"),
    ):
        full.write_text("x")
    with pytest.raises(OSError, match="Is a directory"), writing_to(tmp_path):
        tmp_path.write_text("x")
    short = OSError("640 requested and 0 written")
    with pytest.raises(OSError, match="640"), writing_to(tmp_path):
        raise short
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(DiscoError, match="the disk is full"), writing_to(tmp_path):
        raise short


def test_an_interrupt_comes_once_and_ignored_signals_stay_ignored() -> None:
    cleaned = []

    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGHUP)  # ignored, as under nohup
        cleaned.append("lives on")
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)
            cleaned.append("all")

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            interrupted()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    finally:
        signal.signal(signal.SIGHUP, before)
    assert cleaned == ["lives on", "all"]


def test_an_interrupt_that_python_drops_comes_again() -> None:
    class Dropping:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def interrupted_in_a_finaliser() -> None:
        Dropping()
        time.sleep(20)

    before = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), interruptible():
        interrupted_in_a_finaliser()
    assert sys.unraisablehook is before


def test_a_report_goes_to_a_file_that_can_be_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "device")
    for path in (tmp_path, tmp_path / "device", tmp_path / "none" / "x", tmp_path / ("a" * 250), Path("/proc/x")):
        with pytest.raises(DiscoError, match="cannot be written"):
            check_writable(path)
    check_writable(tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["device"]


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "x", {"a": 1})
    assert (tmp_path / "x").read_text() == '{\n "a": 1\n}\n'

    def interrupted(*_unused: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_json(tmp_path / "x", {"a": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
