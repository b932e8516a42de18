"""What `disco-export` prints: a table per node, the communication, and the totals beside the whole model's."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from disco_converter.export import ExportResult
from disco_converter.firmware import records_steps
from disco_firmware.footprint import RUNTIME_FLASH_BYTES, ram_bytes
from disco_firmware.manifest import Manifest, NodeOp, NodeProgram, steps_of
from disco_targets.board import Board
from disco_targets.tables import report_table


def print_report(result: ExportResult, console: Console) -> None:
    """Tables a person can read."""
    manifest = result.bundle.manifest
    for program, board in zip(manifest.programs, result.boards, strict=True):
        console.print(_node_table(manifest, program, board))
        if board.chip is not None:
            console.print(_kernel_table(program, board))
    if manifest.nodes > 1:
        console.print(_layer_table(manifest))
    console.print(_totals_table(result))
    console.print(
        f"Proved on the host: {result.proof.elements:,} values of {result.proof.inferences} inferences, owned "
        "channels of all nodes equal to the whole model in TFLite's reference kernels"
        + (f" (a big model: {result.inputs_left_out} more inputs were left out)." if result.inputs_left_out else "."),
        highlight=False,
    )
    recomputed = sum(op.sub_rows_recomputed for op in manifest.ops)
    if recomputed:
        console.print(
            f"{recomputed} sub-rows are not sent: the node that needs the channel computes it from the network's input "
            "(--recompute 0: sent).",
            highlight=False,
        )
    constants = sum(len(tensor.constants) for tensor in manifest.tensors)
    if constants:
        console.print(f"{constants} channels are constant and computed by no node (--keep-constants: by their owners).")
    console.print(f"Bundle {manifest.bundle_id} in {result.bundle.path}", highlight=False)


def summary(result: ExportResult) -> dict[str, Any]:
    """The same for machines."""
    manifest = result.bundle.manifest
    return {
        "bundle": str(result.bundle.path),
        "bundle_id": manifest.bundle_id,
        "nodes": manifest.nodes,
        "warnings": list(result.warnings),
        "inferences_proved": result.proof.inferences,
        "values_proved": result.proof.elements,
        "communication_sparsity": {op.name: op.communication_sparsity for op in manifest.ops if op.sub_rows},
        "macs_dense": sum(op.macs_dense for op in manifest.ops),
        "programs": [
            _program_summary(manifest.nodes, program, board)
            for program, board in zip(manifest.programs, result.boards, strict=True)
        ],
        "alone": _program_summary(1, result.alone, result.boards[0]),
    }


def _program_summary(nodes: int, program: NodeProgram, board: Board) -> dict[str, Any]:
    """Flash and RAM are null for a process on a PC, where nothing bounds them."""
    on_board = board.chip is not None
    return {
        "node": program.node,
        "target": program.target,
        "macs_executed": sum(op.macs_executed for op in program.ops),
        "bytes_sent": {str(peer): _bytes_to(program, peer) for peer in range(nodes) if peer != program.node},
        "flash_bytes_at_most": flash_estimate(program) if on_board else None,
        "ram_bytes_at_most": ram_estimate(nodes, program, board) if on_board else None,
        "ops": [asdict(op) for op in program.ops],
    }


def _bytes_to(program: NodeProgram, peer: int) -> int:
    return sum(send.bytes for send in program.sends if send.receiver == peer)


def flash_estimate(program: NodeProgram) -> int:
    """Upper bound of a node's flash before it is built."""
    return program.constant_bytes + RUNTIME_FLASH_BYTES


def ram_estimate(nodes: int, program: NodeProgram, board: Board) -> int:
    """Upper bound of a node's RAM before it is built."""
    steps = len(steps_of(program.ops)) if records_steps(board, nodes) else 0
    return ram_bytes(program.arena_bytes, len(program.ops), nodes, steps)


def _node_table(manifest: Manifest, program: NodeProgram, board: Board) -> Table:
    table = _table(
        f"Node {program.node} on {board.name}",
        ("op", "output"),
        ("MACs of\nmodel", "of\nnode", "channels\nsent", "channels\nreceived", "flash\nbytes", "RAM\nbytes"),
    )
    dense = {op.name: op.macs_dense for op in manifest.ops}
    for op in program.ops:
        macs = (_thousands(dense.get(op.name, 0)), _thousands(op.macs_executed))
        sizes = (op.channels_sent, op.channels_received, op.constant_bytes, op.output_bytes + op.scratch_bytes)
        table.add_row(op.name, _shape(op), *macs, *(f"{size:,}" if size else "" for size in sizes))
    return table


def _kernel_table(program: NodeProgram, board: Board) -> Table:
    table = _table(
        f"Kernels of node {program.node} ({board.core})",
        ("op", "kernel"),
        ("constants\nbytes", "scratch\nbytes", "instructions\n(predicted)"),
    )
    for op in program.ops:
        cells = (op.constant_bytes, op.scratch_bytes, op.instructions_predicted)
        table.add_row(op.name, op.kernel, *(f"{cell:,}" if cell else "" for cell in cells))
    table.add_section()
    totals = [sum(getattr(op, name) for op in program.ops) for name in ("constant_bytes", "instructions_predicted")]
    table.add_row("all", "", f"{totals[0]:,}", "", f"{totals[1]:,}")
    return table


def _thousands(count: int) -> str:
    return f"{count / 1000:,.0f}k" if count >= 1000 else str(count or "")


def _shape(op: NodeOp) -> str:
    return "x".join(str(size) for size in op.output_shape[1:])


def _table(title: str, texts: tuple[str, ...], numbers: tuple[str, ...]) -> Table:
    return report_table(title, texts, numbers, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)


def _layer_table(manifest: Manifest) -> Table:
    table = _table("Communication", ("layer",), ("sub-rows", "pruned", "S_comm", "recomputed"))
    fields = ("sub_rows", "sub_rows_pruned", "sub_rows_recomputed")
    for op in manifest.ops:
        if op.sub_rows:
            table.add_row(op.name, *_sparsity(*(getattr(op, field) for field in fields)))
    total, pruned, recomputed = (sum(getattr(op, field) for op in manifest.ops) for field in fields)
    if total:
        table.add_section()
        table.add_row("all", *_sparsity(total, pruned, recomputed))
    return table


def _sparsity(sub_rows: int, pruned: int, recomputed: int) -> tuple[str, ...]:
    return f"{sub_rows:,}", f"{pruned:,}", f"{100 * pruned / sub_rows:.1f} %", f"{recomputed:,}" if recomputed else ""


def _totals_table(result: ExportResult) -> Table:
    manifest = result.bundle.manifest
    numbers = (
        "MACs",
        "of the\nmodel",
        "bytes sent /\ninference",
        "arena\n(over least)",
        "flash at most\n(of the board)",
        "RAM at most\n(of the board)",
    )
    table = _table("Totals", ("node",), numbers)
    for program, board in zip(manifest.programs, result.boards, strict=True):
        table.add_row(str(program.node), *_totals(manifest, manifest.nodes, program, board))
    if manifest.nodes > 1:
        table.add_section()
        table.add_row("one board alone", *_totals(manifest, 1, result.alone, result.boards[0]))
    return table


def _totals(manifest: Manifest, nodes: int, program: NodeProgram, board: Board) -> tuple[str, ...]:
    dense = sum(op.macs_dense for op in manifest.ops)
    executed = sum(op.macs_executed for op in program.ops)
    sent = "\n".join(f"{_bytes_to(program, peer):,} to {peer}" for peer in range(nodes) if peer != program.node)
    return (
        f"{executed:,}",
        f"{100 * executed / dense:.1f} %" if dense else "",
        sent or "-",
        f"{program.arena_bytes:,} ({100 * (program.arena_bytes / max(program.arena_bound_bytes, 1) - 1):.1f} %)",
        _of(flash_estimate(program), board.flash_bytes),
        _of(ram_estimate(nodes, program, board), board.ram_bytes),
    )


def _of(count: int, limit: int | None) -> str:
    """Nothing for a process on a PC: the bounds are those of a board's firmware."""
    return "-" if limit is None else f"{count:,} ({100 * count / limit:.1f} %)"
