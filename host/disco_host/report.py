"""What `disco-run` prints. Instructions counted on an emulated board are never shown as time: the unit stands in every header."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from disco_host.results import Difference, NodeResult, RunResult


def print_report(result: RunResult, console: Console) -> None:
    """Tables a person can read."""
    for node in result.nodes:
        console.print(_node_table(node))
    if result.links:
        console.print(_link_table(result))
    trip = result.host_round_trip_ms
    console.print(
        f"{result.inferences} inferences; host round trip (this PC's clock, emulation and host included) median {trip.median:.1f} ms, p95 {trip.p95:.1f} ms",
        highlight=False,
    )
    if result.accuracy is not None:
        console.print(f"Accuracy {100 * result.accuracy:.2f} %", highlight=False)
    if result.bit_exact:
        checked = result.inferences + result.warmup
        console.print(f"[green]Bit-exact[/green]: {result.checked} of {checked} inferences equal TFLite's reference kernels.", highlight=False)


def mismatch_text(result: RunResult) -> str:
    """One line that names the first difference; for a result that is not bit-exact."""
    first = result.first_difference
    assert first is not None
    text = f"{result.mismatches} of {result.inferences + result.warmup} inferences differ from the golden. First: inference {first.inference} (input {first.input_index})"
    return text + _where(first)


def _where(first: Difference) -> str:
    text = ""
    if first.output >= 0:
        text = f", output {first.output} at {list(first.position)} from node {first.node}: got {first.got}, expected {first.expected} ({first.differing} of {first.values} values differ)"
    if first.op is not None:
        return text + f"; the first op that differs is {first.op} on node {first.op_node}"
    return text + "; run again with --check tensors to find the first op that differs"


def _node_table(node: NodeResult) -> Table:
    table = Table(title=f"Node {node.node} on {node.board}, medians in {node.unit}", title_justify="left")
    table.add_column("op")
    for name in ("MACs", "compute", "share", "wait", "send", "bytes sent"):
        table.add_column(name, justify="right")
    for op in node.ops:
        share = f"{100 * op.compute.median / node.compute.median:.1f} %" if node.compute.median else ""
        macs = f"{op.macs_executed:,}" if op.macs_executed else ""
        sent = f"{op.bytes_sent:,}" if op.bytes_sent else ""
        table.add_row(op.name, macs, f"{op.compute.median:,.0f}", share, f"{op.wait.median:,.0f}", f"{op.send.median:,.0f}", sent)
    table.add_section()
    macs, sent = sum(op.macs_executed for op in node.ops), sum(op.bytes_sent for op in node.ops)
    table.add_row("all", f"{macs:,}", f"{node.compute.median:,.0f}", "", f"{node.wait.median:,.0f}", f"{node.send.median:,.0f}", f"{sent:,}")
    return table


def _link_table(result: RunResult) -> Table:
    table = Table(title=f"Links, over all {result.inferences} inferences", title_justify="left")
    table.add_column("from -> to")
    for name in ("payload bytes", "frames", "retransmissions"):
        table.add_column(name, justify="right")
    for link in result.links:
        table.add_row(f"{link.sender} -> {link.receiver}", f"{link.bytes:,}", f"{link.frames:,}", f"{link.retransmissions:,}")
    return table
