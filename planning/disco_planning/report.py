"""What `disco-latency` prints: layers, totals, sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from disco_planning.units import format_rate, format_time
from disco_targets.tables import report_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from disco_planning.analysis import Analysis, Point


def print_report(analysis: Analysis, console: Console) -> None:
    """Prints the layers and the totals."""
    console.print(layers_table(analysis))
    for line in summary(analysis):
        console.print(line, highlight=False, soft_wrap=True)


def layers_table(analysis: Analysis) -> Table:
    """One row for each layer; the longer of the two times is what it takes, unless they cannot overlap."""
    columns = ("channels", "MMAC", "S", "L_comm ms", "L_comp ms", "ms")
    table = report_table(
        escape(title(analysis)),
        ("layer",),
        columns,
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        caption="S: communication sparsity, the fraction of sub-rows (weights from one channel to the outputs of "
        "another node) that are pruned. L_comm: time of the exchange. L_comp: of the slowest node's computation.",
        caption_justify="left",
    )
    for row in analysis.rows:
        layer = row.cost.layer
        table.add_row(
            escape(layer.name),
            f"{layer.in_ch}→{layer.out_ch}",
            f"{layer.macs / 1e6:.2f}",
            f"{row.sparsity:.4f}" if row.cost.prunable else "-",
            *(f"{1e3 * seconds:.4f}" for seconds in (row.comm_seconds, row.comp_seconds, row.seconds)),
        )
    return table


def summary(analysis: Analysis) -> list[str]:
    """The totals, one a line."""
    total, mean = analysis.total_seconds, analysis.mean_sparsity
    lines = [
        f"Total: [bold]{format_time(total)}[/], mean sparsity {mean:.4f} of the layers that can be pruned",
        f"Dense exchange: {format_time(analysis.dense_seconds)}, {analysis.dense_seconds / total:.2f} times as long",
        f"One node: {format_time(analysis.one_node_seconds)}, {analysis.one_node_seconds / total:.2f} times as long",
        f"No exchange: {format_time(analysis.no_exchange_seconds)}, the lower bound",
    ]
    dense = sum(row.cost.sub_rows > 0 and not row.cost.prunable for row in analysis.rows)
    if dense:
        lines.append(
            f"{dense} of {len(analysis.rows)} layers stay dense: the shares do not divide their channels into whole "
            "ones (--indivisible pruned)"
        )
    return [*lines, "Projected from bandwidth and compute rate by the latency model, not measured."]


def sweep_table(points: Sequence[Point], sparsity: float | None) -> Table:
    """Totals of a sweep."""
    columns = ["nodes", "bandwidth", "dense", "equilibrium", "nothing sent"]
    if sparsity is not None:
        columns.append(f"S = {sparsity:g}")
    table = report_table(
        "Totals, projected",
        (),
        columns,
        caption="A layer whose channels the nodes cannot share evenly stays dense (--indivisible). The equilibrium is "
        "no minimum: a faster link carries more.",
        caption_justify="left",
    )
    for point in points:
        row = [str(point.nodes), format_rate(point.bandwidth_bytes_per_s, "B/s")]
        times = (point.dense_seconds, point.equilibrium_seconds, point.no_exchange_seconds, point.uniform_seconds)
        table.add_row(*row, *(format_time(seconds) for seconds in times if seconds is not None))
    return table


def title(analysis: Analysis) -> str:
    """Model, nodes, how fast they are, and their shares where they are unequal."""
    cluster = analysis.cluster
    rates = ", ".join(format_rate(rate, "OP/s") for rate in dict.fromkeys(cluster.operations_per_s))
    nodes = "1 node" if cluster.nodes == 1 else f"{cluster.nodes} nodes"
    shares = ":".join(f"{share:.3g}" for share in cluster.shares)
    unequal = f", shares {shares}" if len(set(cluster.shares)) > 1 else ""
    return f"{analysis.model} on {nodes}: {format_rate(cluster.bandwidth_bytes_per_s, 'B/s')}, {rates}{unequal}"
