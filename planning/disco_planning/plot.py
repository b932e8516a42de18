"""The plot of L_comm and L_comp per layer (the paper's Figure 3)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from disco_planning.report import title
from disco_planning.units import format_time
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_planning.analysis import Analysis

_NAMES = 75
"""So many names have room on the axis; of more layers every second, third, ... is named."""


def plot_png(analysis: Analysis) -> bytes:
    """The picture as the bytes of a PNG file.

    Raises:
        DiscoError: matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DiscoError("--plot needs matplotlib: pip install 'disco-edge[plot]', or leave --plot away") from error
    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.subplots()
    positions = range(1, len(analysis.rows) + 1)
    # A layer that sends nothing has no place on a logarithmic axis: its point is left out.
    comm = [1e3 * row.comm_seconds if row.comm_seconds > 0 else float("nan") for row in analysis.rows]
    comp = [1e3 * row.comp_seconds for row in analysis.rows]
    axes.plot(positions, comp, "s-", color="tab:orange", markersize=3, linewidth=1, label="L_comp")
    # Hollow and on top: at the equilibrium both lie on each other.
    axes.plot(positions, comm, "o-", color="tab:blue", markersize=6, fillstyle="none", linewidth=1, label="L_comm")
    axes.set_yscale("log")
    axes.set_ylabel("latency in ms, projected")
    step = -(-len(analysis.rows) // _NAMES)
    names = [row.cost.layer.name for row in analysis.rows][::step]
    axes.set_xticks(positions[::step], names, rotation=90, fontsize=7)
    axes.set_title(
        f"{title(analysis)} ({analysis.system.name})\n"
        f"mean S = {analysis.mean_sparsity:.4g}, {format_time(analysis.total_seconds)} in total",
        fontsize="medium",
    )
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    return buffer.getvalue()
