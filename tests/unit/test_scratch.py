"""Temporary folders, and what is left of them when their processes are killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from disco_targets.scratch import LOCK_NAME, scratch_folder

KILLED = """
import os
from disco_targets.scratch import scratch_folder
with scratch_folder("killed") as folder:
    (folder / "more").mkdir()
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    subprocess.run([sys.executable, "-c", KILLED], timeout=30)
    (left,) = tmp_path.iterdir()
    users = tmp_path / "disco-run-results"
    users.mkdir()
    linked = tmp_path / "disco-link"
    linked.mkdir()
    (linked / LOCK_NAME).symlink_to(users)
    with scratch_folder("one") as one, scratch_folder("two") as two:
        assert one.name.startswith("disco-one-")
        assert not left.exists()
        assert set(tmp_path.iterdir()) == {one, two, users, linked}
    assert set(tmp_path.iterdir()) == {users, linked}
