"""`disco-flash` as a function: the firmware of a bundle's nodes, built and measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from disco_firmware.bundle import load_bundle
from disco_host.firmware import build_images
from disco_targets.board import Board, load_board
from disco_targets.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from disco_firmware.build import FirmwareImage

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
    manifest = loaded.manifest
    if node is not None and not 0 <= node < manifest.nodes:
        raise UsageError(f"node {node} does not exist: the bundle has nodes 0 to {manifest.nodes - 1}")
    nodes = range(manifest.nodes) if node is None else [node]
    images = build_images(loaded, boards, nodes)
    return tuple(
        NodeFirmware(k, load_board(POSIX if boards == POSIX else manifest.targets[k]), image)
        for k, image in zip(nodes, images, strict=True)
    )
