"""Builds the firmware of all nodes of a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from disco_firmware.build import FirmwareImage, build_node
from disco_firmware.bundle import BUILD_DIRECTORY
from disco_targets.board import load_board
from disco_targets.disk import writing_to
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disco_firmware.bundle import Bundle


def build_images(
    bundle: Bundle, port: str, nodes: Sequence[int], *, sanitize: bool = False
) -> tuple[FirmwareImage, ...]:
    """Builds what is not up to date.

    Args:
        bundle: The bundle; the build goes below its `build` folder.
        port: "board" or "posix".
        nodes: Which ones.
        sanitize: With ASan and UBSan ("posix" only).

    Raises:
        DiscoError: A tool is missing, the compiler fails, the bundle cannot be written, or no PC runs its kernels.
    """
    if port == "posix":
        check_hosted(bundle, nodes)
    try:
        with writing_to(bundle.path / BUILD_DIRECTORY):
            return tuple(build_node(bundle.path, node, port=port, sanitize=sanitize) for node in nodes)
    except OSError as error:
        raise DiscoError(
            f"firmware cannot be built in {error.filename or bundle.path}: {error.strerror}; copy the bundle to a "
            "folder that you may write to"
        ) from error


def check_hosted(bundle: Bundle, nodes: Sequence[int]) -> None:
    """Instructions of the DSP extension have portable twins, those of Helium have none."""
    for node in nodes:
        target = bundle.manifest.targets[node]
        if load_board(target).instruction_set == "mve":
            raise DiscoError(
                f"node {node} was exported for {target}, whose Helium kernels no PC can run: export it with "
                "--target posix"
            )
