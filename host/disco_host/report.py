"""What `disco-run` prints: figures per op and node, the links, and the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from disco_firmware.reference import REFERENCE
from disco_host.remote.probes import describe as describe_link
from disco_targets.tables import report_table

if TYPE_CHECKING:
    from rich.console import Console

    from disco_host.results import Difference, NodeResult, OpResult, RunResult
    from disco_host.stats import Summary


def print_report(result: RunResult, console: Console) -> None:
    """Prints all of a run."""
    for node in result.nodes:
        console.print(ops_table(node))
    console.print(nodes_table(result))
    if any(node.memory is not None for node in result.nodes):
        console.print(memory_table(result))
    if result.links:
        console.print(links_table(result))
    if result.clocks:
        console.print(clocks_table(result))
    for line in verdict(result):
        console.print(line, highlight=False)


def ops_table(node: NodeResult) -> Table:
    """One node's ops: medians in the node's own unit; ops that TFLite computes together stand below their stage."""
    title = f"Node {node.node}: {escape(node.board)} ({escape(node.core)}), medians in {node.unit}"
    together = [stage for stage in node.stages if len(stage.ops) > 1]
    note = "TFLite computes the ops of a stage together: -, not measured one by one." if together else None
    columns = ("MACs", "compute", "share", "wait", "bytes sent")
    table = report_table(title, ("op",), columns, caption=note, caption_justify="left")
    stages = {stage.ops[0]: (number, stage) for number, stage in enumerate(node.stages) if stage in together}
    for op in _by_stage(node):
        if op.name in stages:
            number, stage = stages[op.name]
            table.add_row(f"stage {number}", "", *_figures(stage.compute, stage.wait, node), "")
        name = escape(op.name) if op.compute is not None else f"  {escape(op.name)}"
        table.add_row(name, f"{op.macs_executed:,}", *_figures(op.compute, op.wait, node), f"{op.bytes_sent:,}")
    return table


def _by_stage(node: NodeResult) -> list[OpResult]:
    """The ops in the order in which the node computes them."""
    ops = {op.name: op for op in node.ops}
    return [ops[name] for stage in node.stages for name in stage.ops] or list(node.ops)


def _figures(compute: Summary | None, wait: Summary | None, node: NodeResult) -> tuple[str, str, str]:
    if compute is None or wait is None:
        return "-", "-", "-"
    share = 100 * compute.median / (node.compute.median or 1)
    return _count(compute.median), f"{share:.1f} %", _count(wait.median)


def nodes_table(result: RunResult) -> Table:
    """Totals of all nodes; min and max show how far they repeat."""
    title = f"Nodes: median, min and max of {result.inferences} inferences"
    names = ("compute", "wait", "send", "total")
    table = report_table(title, ("node", ""), names, caption=_caption(result), caption_justify="left")
    for node in result.nodes:
        columns = (node.compute, node.wait, node.send, node.total)
        table.add_row(f"{node.node}\n{node.unit}", "median\nmin\nmax", *(_range(summary) for summary in columns))
    return table


def memory_table(result: RunResult) -> Table:
    """Flash and RAM of the nodes whose firmware was built here."""
    title = "Memory in bytes: flash as linked, RAM as linked plus the stack that was in use"
    table = report_table(title, ("node",), ("flash", "RAM", "of it stack"))
    for node in result.nodes:
        memory = node.memory
        if memory is not None:
            full = memory.stack_used_bytes >= memory.stack_bytes
            stack = f"{memory.stack_used_bytes:,} of {memory.stack_bytes:,}"
            table.add_row(
                str(node.node),
                f"{memory.flash_bytes:,}",
                f"{memory.ram_bytes:,}",
                f"[bold red]{stack}: it may have overflowed[/]" if full else stack,
            )
    return table


def links_table(result: RunResult) -> Table:
    """What went from node to node over all measured inferences."""
    columns = ("payload bytes", "per inference", "frames", "sent again")
    table = report_table("Links, all measured inferences", ("from → to",), columns)
    for link in result.links:
        table.add_row(
            f"{link.sender} → {link.receiver}",
            f"{link.bytes:,}",
            f"{link.bytes / result.inferences:,.0f}",
            f"{link.frames:,}",
            f"{link.retransmissions:,}",
        )
    return table


def clocks_table(result: RunResult) -> Table:
    """How the clocks of Linux nodes lie to this PC's."""
    columns = ("offset / us", "at most off by / us", "drift / ppm")
    table = report_table("Clocks against this PC's, by round trips", ("node",), columns)
    for clock in result.clocks:
        row = (f"{clock.offset_ns / 1000:,.1f}", f"{clock.error_ns / 1000:,.1f}", f"{clock.drift_ppm:+.2f}")
        table.add_row(str(clock.node), *row)
    return table


def verdict(result: RunResult) -> list[str]:
    """The last lines: round trip, accuracy, bit-exact or not."""
    trip = result.host_round_trip_ms
    lines = [f"Round trip seen by the host: {trip.median:.1f} ms (p95 {trip.p95:.1f}), this PC's clock"]
    lines += [f"Link {describe_link(link)}" for link in result.probed]
    if result.relayed:
        pairs = ", ".join(f"{board} - {node}" for board, node in result.relayed)
        lines.append(f"Relayed by this PC, which every figure includes: {pairs}")
    if result.accuracy is not None:
        lines.append(f"Accuracy: {100 * result.accuracy:.2f} % of {result.inferences} inferences")
    runs = result.inferences + result.warmup
    what = "every output" if result.checked == "outputs" else "every op's output"
    if result.bit_exact:
        golden = "the golden" if result.kernels == REFERENCE else "that of the whole model in XNNPACK on this PC"
        lines.append(f"[bold green]Bit-exact[/]: {what} of {runs} inferences equals {golden}")
    else:
        lines.append(f"[bold red]NOT bit-exact[/]: {result.mismatches} of {runs} inferences differ")
    if result.first_difference is not None:
        lines.append(escape(describe(result.first_difference)))
    return lines


def describe(difference: Difference) -> str:
    """The first difference in one sentence."""
    where = f"First difference: inference {difference.inference} (input {difference.input_index})"
    if difference.output >= 0:
        position = ", ".join(str(index) for index in difference.position)
        text = (
            f"{where}, output {difference.output} [{position}] from node {difference.node}: expected "
            f"{difference.expected}, got {difference.got}; {difference.differing} of "
            f"{difference.values} values differ"
        )
    else:
        text = f"{where}: the outputs agree, but tensors inside of the network do not"
    if difference.op is not None:
        return f"{text}; the first op that differs is {difference.op} on node {difference.op_node}"
    return text if difference.output < 0 else f"{text}; --check tensors names the first op"


def _caption(result: RunResult) -> str | None:
    if any(node.unit == "instructions" for node in result.nodes):
        return (
            "Emulated boards count instructions, which are no time. How many a board spends on waiting and sending "
            "depends on how fast this PC emulates: only the compute of the same input repeats."
        )
    if any(node.unit == "cycles-estimate" for node in result.nodes):
        return (
            "Cycles as the emulator's plugin estimates them, for memory without wait states: no cycles of a real board "
            "and no time. A board that sleeps takes none; only the compute of the same input repeats."
        )
    return None


def _range(summary: Summary) -> str:
    return "\n".join(_count(value) for value in (summary.median, summary.min, summary.max))


def _count(value: float) -> str:
    return f"{value:,.0f}"
