"""What the firmware is meant to reach, held against the figures of `make bench-firmware`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

M4, M33, M55 = "qemu-mps2-an386", "qemu-mps2-an505", "qemu-mps3-an547"
LIMITS = {
    ("ic", "balanced"): {M4: 10.9, M33: 10.9},
    ("ic", "speed"): {M4: 7.2, M55: 3.9},
    ("vww", "balanced"): {M4: 11.0, M33: 11.0},
    ("vww", "speed"): {M4: 10.0, M55: 5.0},
    ("kws", "balanced"): {M4: 3.6, M33: 3.6},
    ("kws", "speed"): {M4: 3.3, M55: 1.4},
    ("ad", "balanced"): {M4: 0.42, M33: 0.42},
    ("ad", "speed"): {M4: 0.42, M55: 0.22},
}
"""(network, optimize) -> board -> millions of instructions of one inference on one board."""
DENSE, DISCO = "resnet8_dense", "resnet8_disco90"
OF_ONE_BOARD = 0.40
"""Of the instructions of one board with the dense network, for the busier of two at 90 % communication sparsity."""
CLUSTER, EXPOSED = "m4-168mhz-uart-3mbaud", 0.05
"""Of the projected latency there."""


@dataclass(frozen=True)
class Target:
    """A figure and what it may be at most."""

    name: str
    figure: float
    limit: float

    @property
    def met(self) -> bool:
        """Whether the figure is within its limit."""
        return self.figure <= self.limit


def targets_of(rows: Sequence[dict[str, Any]]) -> list[Target]:
    """All targets of which there are figures in the rows of firmware.json."""
    return [*_networks(rows), *_two_boards(rows), *_exposed(rows)]


def target_table(targets: Sequence[Target]) -> list[str]:
    """Lines of Markdown."""
    lines = ["| figure | counted or projected | at most | |", "|---|---|---|---|"]
    for target in targets:
        verdict = "met" if target.met else "**missed**"
        lines.append(f"| {target.name} | {target.figure:.3f} | {target.limit:.3f} | {verdict} |")
    return lines


def _networks(rows: Sequence[dict[str, Any]]) -> Iterator[Target]:
    for row in rows:
        limit = LIMITS.get((row["model"], row["optimize"]), {}).get(row["board"])
        if limit is not None and row["nodes"] == 1:
            name = f"{row['model']}, {row['board']}, {row['optimize']}: M instructions"
            yield Target(name, row["instructions"] / 1e6, limit)


def _two_boards(rows: Sequence[dict[str, Any]]) -> Iterator[Target]:
    cases = {(row["model"], row["nodes"]): row for row in rows if (row["board"], row["optimize"]) == (M4, "balanced")}
    one, two = cases.get((DENSE, 1)), cases.get((DISCO, 2))
    if one is not None and two is not None:
        for key, kind in (("instructions", "kernels"), ("instructions_with_protocol", "with protocol")):
            name = f"two boards at 90 %, {kind}: of one board"
            yield Target(name, two[key] / one["instructions"], OF_ONE_BOARD)


def _exposed(rows: Sequence[dict[str, Any]]) -> Iterator[Target]:
    disco = [row for row in rows if (row["model"], row["optimize"]) == (DISCO, "balanced")]
    for one in (one for row in disco for one in row["projections"] if one["cluster"] == CLUSTER):
        share = one["exposed_ms_projected"] / one["latency_ms_projected"]
        yield Target("two boards at 90 %, 3 Mbaud: exposed communication, projected", share, EXPOSED)
