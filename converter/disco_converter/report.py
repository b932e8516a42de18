"""What `disco-export` prints: a table per node, the communication, and the totals beside the whole model's."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from disco_converter.export import ExportResult
from disco_firmware.footprint import RUNTIME_FLASH_BYTES, ram_bytes
from disco_firmware.manifest import Manifest, NodeProgram
from disco_targets.board import Board


def print_report(result: ExportResult, console: Console) -> None:
    """Tables a person can read."""
    manifest = result.bundle.manifest
    for program, board in zip(manifest.programs, result.boards, strict=True):
        console.print(_node_table(program, board))
    if manifest.nodes > 1:
        console.print(_layer_table(manifest))
    console.print(_totals_table(result))
    console.print(
        f"Proved on the host: {result.proof.elements:,} values of {result.proof.inferences} inferences, owned "
        "channels of all nodes equal to "
        "the whole model in TFLite's reference kernels.",
        highlight=False,
    )
    console.print(f"Bundle {manifest.bundle_id} in {result.bundle.path}", highlight=False)


def summary(result: ExportResult) -> dict[str, Any]:
    """The same for machines."""
    manifest = result.bundle.manifest
    return {
        "bundle": str(result.bundle.path),
        "bundle_id": manifest.bundle_id,
        "nodes": manifest.nodes,
        "inferences_proved": result.proof.inferences,
        "values_proved": result.proof.elements,
        "communication_sparsity": {op.name: op.communication_sparsity for op in manifest.ops if op.sub_rows},
        "macs_dense": sum(op.macs_dense for op in manifest.ops),
        "programs": [
            {
                "node": program.node,
                "target": program.target,
                "macs_executed": sum(op.macs_executed for op in program.ops),
                "bytes_sent": sum(send.bytes for send in program.sends),
                "flash_bytes_estimated": flash_estimate(program),
                "ram_bytes_estimated": ram_estimate(manifest, program),
            }
            for program in manifest.programs
        ],
    }


def flash_estimate(program: NodeProgram) -> int:
    """Upper bound of a node's flash before it is built."""
    return program.constant_bytes + RUNTIME_FLASH_BYTES


def ram_estimate(manifest: Manifest, program: NodeProgram) -> int:
    """Upper bound of a node's RAM before it is built."""
    return ram_bytes(program.arena_bytes, len(program.ops), manifest.nodes)


def _node_table(program: NodeProgram, board: Board) -> Table:
    table = Table(title=f"Node {program.node} on {board.name}", title_justify="left")
    table.add_column("op", no_wrap=True)  # its name says its kind
    table.add_column("output")
    for name in ("MACs", "channels received", "bytes sent", "weight bytes"):
        table.add_column(name, justify="right")
    for op in program.ops:
        shape = "x".join(str(size) for size in op.output_shape[1:])
        cells = (op.macs_executed, op.channels_received, op.bytes_sent, op.weight_bytes)
        table.add_row(op.name, shape, *(f"{cell:,}" if cell else "" for cell in cells))
    return table


def _layer_table(manifest: Manifest) -> Table:
    table = Table(title="Communication", title_justify="left")
    table.add_column("layer")
    for name in ("sub-rows", "pruned", "S_comm"):
        table.add_column(name, justify="right")
    for op in manifest.ops:
        if op.sub_rows:
            table.add_row(
                op.name, str(op.sub_rows), str(op.sub_rows_pruned), f"{100 * op.sub_rows_pruned / op.sub_rows:.1f} %"
            )
    total, pruned = (sum(getattr(op, field) for op in manifest.ops) for field in ("sub_rows", "sub_rows_pruned"))
    if total:
        table.add_section()
        table.add_row("all", str(total), str(pruned), f"{100 * pruned / total:.1f} %")
    return table


def _totals_table(result: ExportResult) -> Table:
    manifest = result.bundle.manifest
    dense = sum(op.macs_dense for op in manifest.ops)
    table = Table(title="Totals", title_justify="left")
    table.add_column("node")
    for name in ("MACs", "of the whole model", "bytes sent / inference", "flash (estimate)", "RAM (estimate)"):
        table.add_column(name, justify="right")
    for program, board in zip(manifest.programs, result.boards, strict=True):
        executed = sum(op.macs_executed for op in program.ops)
        share = f"{100 * executed / dense:.1f} %" if dense else ""
        sent = "\n".join(
            f"{sum(s.bytes for s in program.sends if s.receiver == peer):,} to {peer}"
            for peer in range(manifest.nodes)
            if peer != program.node
        )
        flash = _of(flash_estimate(program), board.flash_bytes)
        ram = _of(ram_estimate(manifest, program), board.ram_bytes)
        table.add_row(str(program.node), f"{executed:,}", share, sent or "-", flash, ram)
    return table


def _of(count: int, limit: int | None) -> str:
    """Nothing for a process on a PC: the bounds are those of a board's firmware."""
    return "-" if limit is None else f"{count:,} of {limit:,}"
