"""Gives one target to atheris: `harness.py TARGET [options and folders of libFuzzer]`."""

from __future__ import annotations

import os
import resource
import sys

import atheris

with atheris.instrument_imports(include=["disco_firmware", "disco_host", "disco_targets"]):
    from targets import TARGETS

_NAME = "DISCO_FUZZ_TARGET"
"""Where libFuzzer starts itself again (-merge=1), it takes our first argument for the program, and knows no target."""
GROWTH_MB = 800


def memory_limit() -> str:
    """libFuzzer's option for `GROWTH_MB` above the peak so far, which a process takes over from its parent."""
    return f"-rss_limit_mb={resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 + GROWTH_MB}"


if __name__ == "__main__":
    if _NAME not in os.environ:
        os.environ[_NAME] = sys.argv.pop(1)
    atheris.Setup([f"{sys.executable} {sys.argv[0]}", memory_limit(), *sys.argv[1:]], TARGETS[os.environ[_NAME]])
    atheris.Fuzz()
