"""The firmware benchmark's two pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from firmware_targets import target_table, targets_of

_HEAD = """\
Made by `make bench-firmware`: instructions counted on emulated boards, of the busiest node, for one inference, every
tensor equal to TFLite's reference kernels; [layer by layer]({layers_page}). `ic` (ResNet-8), `vww` (MobileNetV1 0.25),
`kws` (DS-CNN) and `ad` (an autoencoder) are the int8 models of MLPerf Tiny, exported with `--keep-constants`;
`vww_without_zero_filters` is what `disco-export` makes of vww by default. `S_comm`: communication sparsity, the share
of sub-rows that are pruned. `instructions` are those of the kernels, which repeat to 0.1 %; `with protocol` adds what
the firmware records as its work on frames and links, the emulated UARTs' driver included, but not what it does while it
waits, nor interrupts: it depends on when bytes come in, and repeats to some 2 %. `constants`: weights as the kernels
want them, biases and requantisation, which the flash holds beside code. Flash as linked; RAM as linked and the stack in
use.
`per MAC` is of the MACs that the node executes; `dense` are those of the whole model. `CMSIS-NN`: the same model with
CMSIS-NN of July 2026 at `-O3`, counted on the same emulated boards (`-icount`), every layer's output equal to the
reference kernels too; `-` where it was not counted."""
_PROJECTED = """\
*Projected* from these counts onto modelled boards and links (`disco-run --project examples/clusters/...`), not
measured. `speed-up`: over one board with the dense model and the same `--optimize`. Exposed communication is what
exchanging adds to the time of the kernels: waiting for links, and protocol work on the boards."""
_LIMITS = """\
What the project has set itself: whole networks, and ResNet-8 at 90 % (`balanced`) on two Cortex-M4."""
_LAYERS = """\
Rows of [the networks]({networks_page}), op by op: on one board, or of node 0 of several. `per MAC (limit)`:
instructions for a MAC, and what the body of the kernel's innermost loop alone takes, loads included; what is above it
is spent on requantisation, on the loops, on moving and extending inputs, and on outputs that do not fill a block.
`CMSIS-NN`: as on that page, where its layers were counted."""
COLUMNS = (
    "model, board, optimize, nodes, S_comm, instructions, with protocol, CMSIS-NN, per MAC, MACs, dense, constants, "
    "flash, RAM, bit-exact"
)
PROJECTED_COLUMNS = "model, S_comm, optimize, boards, latency ms, speed-up, exposed, of it waiting, of it protocol work"
CMSIS_NN = {
    ("ic", "qemu-mps2-an386"): 29_870_000,
    ("ic", "qemu-mps2-an500"): 29_930_000,
    ("ic", "qemu-mps2-an505"): 29_900_000,
    ("ic", "qemu-mps3-an547"): 4_810_000,
    ("vww", "qemu-mps2-an386"): 24_710_000,
    ("vww", "qemu-mps2-an505"): 24_530_000,
    ("vww", "qemu-mps3-an547"): 6_430_000,
    ("kws", "qemu-mps2-an386"): 7_840_000,
    ("kws", "qemu-mps2-an505"): 7_800_000,
    ("kws", "qemu-mps3-an547"): 1_780_000,
    ("ad", "qemu-mps2-an386"): 580_000,
    ("ad", "qemu-mps2-an505"): 580_000,
    ("ad", "qemu-mps3-an547"): 280_000,
}
"""Instructions of the whole network, as they were noted: to 10 thousand."""
CMSIS_NN_LAYERS = {
    ("ic", "qemu-mps2-an386"): {
        "conv_2d_0": 2_134_000,
        "conv_2d_1": 5_488_000,
        "conv_2d_2": 5_488_000,
        "add_3": 1_334_000,
        "conv_2d_4": 2_519_000,
        "conv_2d_5": 4_542_000,
        "conv_2d_6": 563_000,
        "conv_2d_8": 2_189_000,
        "conv_2d_9": 4_155_000,
        "conv_2d_10": 421_000,
    }
}
"""Of ops, to a thousand."""


def page(document: dict[str, Any], layers_page: str) -> str:
    """Networks, and projections, as Markdown."""
    lines = ["# Firmware: instructions, flash, RAM", "", _HEAD.format(layers_page=layers_page), ""]
    lines += [f"- {name}: {text}" for name, text in document["versions"].items()]
    lines += ["", *_head(COLUMNS)]
    for row in document["rows"]:
        theirs = CMSIS_NN.get((row["model"], row["board"])) if row["nodes"] == 1 else None
        protocol = f"{row['instructions_with_protocol']:,}" if row["nodes"] > 1 else "-"
        lines.append(
            f"| {row['model']} | {row['board']} | {row['optimize']} | {row['nodes']} | {row['sparsity']:.0%} | "
            f"{row['instructions']:,} | {protocol} | {_millions(theirs)} | {row['instructions'] / row['macs']:.2f} | "
            f"{row['macs']:,} | {row['macs_dense']:,} | {row['constant_bytes']:,} | {row['flash_bytes']:,} | "
            f"{row['ram_bytes']:,} | {'yes' if row['bit_exact'] else 'NO'} |"
        )
    lines += ["", "## Latency", "", _PROJECTED, ""]
    lines += [*_head(PROJECTED_COLUMNS), *_latencies(document["rows"])]
    lines += ["", "## Limits", "", _LIMITS, "", *target_table(targets_of(document["rows"]))]
    return "\n".join(lines) + "\n"


def _head(names: str) -> list[str]:
    """The first lines of a table."""
    return [f"| {names.replace(', ', ' | ')} |", f"|{'---|' * (names.count(',') + 1)}"]


def _latencies(rows: list[dict[str, Any]]) -> Iterator[str]:
    alone = {
        row["optimize"]: one["latency_ms_projected"]
        for row in rows
        if row["nodes"] == 1 and row["sparsity"] == 0
        for one in row["projections"]
    }
    for row in rows:
        for one in row["projections"]:
            latency = one["latency_ms_projected"]
            faster = f"{alone[row['optimize']] / latency:.2f}" if row["optimize"] in alone else "-"
            exposed, waiting = one["exposed_ms_projected"], one["waiting_ms_projected"]
            parts = (exposed, waiting, exposed - waiting)
            shares = " | ".join(f"{part / latency:.1%}" if one["cluster"] else "-" for part in parts)
            boards = f"two, {one['cluster']}" if one["cluster"] else "one"
            yield (
                f"| {row['model']} | {row['sparsity']:.0%} | {row['optimize']} | {boards} | {latency:.2f} | {faster} "
                f"| {shares} |"
            )


def layer_page(document: dict[str, Any], networks_page: str) -> str:
    """One table for each network and board, with all modes side by side."""
    lines = ["# Firmware, layer by layer", "", _LAYERS.format(networks_page=networks_page)]
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in document["rows"]:
        groups.setdefault((row["model"], row["board"], row["nodes"]), []).append(row)
    for (model, board, nodes), rows in groups.items():
        if len(rows) == 1:  # no kernels of their own, or no modes that were compared
            continue
        of = "" if nodes == 1 else f", node 0 of {nodes}"
        theirs = CMSIS_NN_LAYERS.get((model, board), {}) if nodes == 1 else {}
        lines += ["", f"## {model}, {board}{of}", "", *_layer_table(rows, theirs)]
    return "\n".join(lines) + "\n"


def _layer_table(rows: list[dict[str, Any]], theirs: dict[str, int]) -> Iterator[str]:
    shown = "".join(f" {row['optimize']} | instructions | per MAC (limit) |" for row in rows)
    yield f"| op | MACs |{' CMSIS-NN |' if theirs else ''}{shown}"
    yield "|---|---|" + "---|" * (bool(theirs) + 3 * len(rows))
    for same in zip(*(row["layers"] for row in rows), strict=True):
        cells = [same[0]["op"], f"{same[0]['macs']:,}" if same[0]["macs"] else "-"]
        cells += [_millions(theirs.get(same[0]["op"]), 3)] if theirs else []
        for layer in same:
            cells += [layer["kernel"], f"{layer['instructions']:,}", _per_mac(layer)]
        yield f"| {' | '.join(cells)} |"
    total = ["all", f"{sum(layer['macs'] for layer in rows[0]['layers']):,}"]
    total += [_millions(CMSIS_NN[rows[0]["model"], rows[0]["board"]])] if theirs else []
    for row in rows:
        macs, instructions = (sum(layer[name] for layer in row["layers"]) for name in ("macs", "instructions"))
        total += ["", f"{instructions:,}", f"{instructions / macs:.2f}"]
    yield f"| {' | '.join(total)} |"


def _per_mac(layer: dict[str, Any]) -> str:
    if not layer["macs"]:
        return "-"
    limit = f" ({layer['limit_per_mac']:.2f})" if layer["limit_per_mac"] else ""
    return f"{layer['instructions'] / layer['macs']:.2f}{limit}"


def _millions(count: int | None, digits: int = 2) -> str:
    return "-" if count is None else f"{count / 1e6:.{digits}f} M"
