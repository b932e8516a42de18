"""Gives one target to atheris: `harness.py TARGET [options and folders of libFuzzer]`."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["disco_firmware", "disco_host", "disco_targets"]):
    from targets import TARGETS

if __name__ == "__main__":
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()
