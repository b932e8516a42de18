"""Writes the layer tables of `disco-latency zoo:NAME` from the definitions in disco_pruning.models.

    .venv/bin/python scripts/zoo_tables.py

A test holds definitions and tables equal.
"""

from __future__ import annotations

from pathlib import Path

from disco_planning.layers import write_table
from disco_pruning.models.zoo import ZOO, zoo_table

FOLDER = Path(__file__).resolve().parents[1] / "planning" / "disco_planning" / "zoo"


def main() -> None:
    """Writes a CSV file for each network."""
    FOLDER.mkdir(exist_ok=True)
    for name in ZOO:
        (FOLDER / f"{name}.csv").write_text(zoo_csv(name), encoding="utf-8")


def zoo_csv(name: str) -> str:
    """The text of one table."""
    shape = "x".join(str(size) for size in ZOO[name].input_shape)
    return write_table(
        zoo_table(name), f"{name}, input {shape}. Made by scripts/zoo_tables.py from disco_pruning.models."
    )


if __name__ == "__main__":
    main()
