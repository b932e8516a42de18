"""`disco-flash` as functions: firmware of a bundle's nodes, built and measured; which nodes need an agent instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from disco_firmware.bundle import load_bundle
from disco_host.firmware import build_images
from disco_targets.board import Board, load_board
from disco_targets.errors import DiscoError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from disco_firmware.build import FirmwareImage
    from disco_firmware.bundle import Bundle
    from disco_host.cluster import ClusterNode

BOARD, POSIX = "board", "posix"


@dataclass(frozen=True)
class NodeFirmware:
    """One built node."""

    node: int
    board: Board
    image: FirmwareImage

    @property
    def next_step(self) -> str:
        """What is left to do to get it running."""
        name = self.board.name
        if self.board.emulator is not None:
            return f"{name} is emulated: nothing to flash, disco-run --boards emulated starts it."
        if self.board.tflite:
            return f"{name} needs no firmware: an agent, which a cluster file names or disco-run --boards linux starts."
        if self.board.chip is None:
            return f"{name} is a process on this PC: nothing to flash, disco-run --boards posix starts it."
        return f"{name} has no flash method yet: write {self.image.path} with the board's own tool."


def flash(bundle: Path, node: int | None = None, boards: str = BOARD) -> tuple[NodeFirmware, ...]:
    """Builds the firmware of one node or of all.

    Args:
        bundle: The bundle's folder.
        node: Which one; None for all.
        boards: BOARD for the boards that the bundle was exported for, POSIX for processes on this PC.

    Raises:
        UsageError: No such node.
        DiscoError: The bundle is not in order, a tool is missing, or the compiler fails.
    """
    loaded = load_bundle(bundle)
    return _build(loaded, _chosen(loaded, node), boards)


def flash_boards(bundle: Path, nodes: Sequence[int]) -> tuple[NodeFirmware, ...]:
    """Builds the firmware of some nodes for the boards of the bundle; raises as `flash`."""
    return _build(load_bundle(bundle), nodes, BOARD) if nodes else ()


def pick_nodes(
    bundle: Path, cluster: Sequence[ClusterNode], node: int | None = None
) -> tuple[tuple[int, ...], tuple[ClusterNode, ...]]:
    """Of a cluster, the nodes that need firmware, and the Linux nodes that ssh reaches.

    Raises:
        UsageError: No such node.
        DiscoError: The cluster is of another size than the bundle, or says of no Linux node how to get there.
    """
    loaded = load_bundle(bundle)
    if len(cluster) != loaded.manifest.nodes:
        raise DiscoError(f"the cluster file has {len(cluster)} nodes, the bundle {loaded.manifest.nodes}")
    chosen = _chosen(loaded, node)
    boards = tuple(k for k in chosen if not cluster[k].is_linux)
    linux = tuple(cluster[k] for k in chosen if cluster[k].ssh is not None)
    if not linux and not boards:
        raise DiscoError('the cluster file says of none of its Linux nodes how to get there: write ssh = "USER@HOST"')
    return boards, linux


def _chosen(bundle: Bundle, node: int | None) -> Sequence[int]:
    count = bundle.manifest.nodes
    if node is not None and not 0 <= node < count:
        raise UsageError(f"node {node} does not exist: the bundle has nodes 0 to {count - 1}")
    return range(count) if node is None else [node]


def _build(bundle: Bundle, nodes: Sequence[int], boards: str) -> tuple[NodeFirmware, ...]:
    images = build_images(bundle, boards, nodes)
    return tuple(
        NodeFirmware(k, load_board(POSIX if boards == POSIX else bundle.manifest.targets[k]), image)
        for k, image in zip(nodes, images, strict=True)
    )
