"""Writes kernel_cases.npz: cases for the C kernels with what TFLite's reference kernels gave.

Run from the repository: PYTHONPATH=tests python tests/golden/make_kernel_cases.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from helpers.kernel_cases import GENERATORS, random_cases
from helpers.kernel_driver import pack

CASES_PER_KERNEL = 12
FILE = Path(__file__).with_name("kernel_cases.npz")


def main() -> None:
    """One array of packed cases and one of their output buffers for each kernel."""
    arrays = {}
    for name in GENERATORS:
        cases = random_cases(name, CASES_PER_KERNEL, seed=2024)
        buffers = b"".join(case.wanted().tobytes() for case in cases)
        arrays[f"{name}.cases"] = np.frombuffer(pack(cases), np.uint8)
        arrays[f"{name}.outputs"] = np.frombuffer(buffers, np.uint8)
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main()
