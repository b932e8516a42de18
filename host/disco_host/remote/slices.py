"""What an agent is sent of a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from disco_firmware.build import BUILD_TIMEOUT_S
from disco_firmware.bundle import MANIFEST_NAME, sha256_of
from disco_host.firmware import check_hosted
from disco_host.node.cache import PART_NAME
from disco_host.node.frames import MAX_BYTES
from disco_host.node.messages import NATIVE, Need, Part, Prepare, Prepared
from disco_host.remote.watch import ANSWER_S
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_firmware.bundle import Bundle
    from disco_host.remote.watch import Watch

PREPARED_S = 2 * BUILD_TIMEOUT_S + ANSWER_S
"""CMake and the compiler have so long each."""
_NATIVE_PARTS = ("disco_model.c", "disco_model.h", "disco_channels.h")


@dataclass(frozen=True)
class PartFile:
    """A part of a slice and where it lies."""

    part: Part
    path: Path


def slice_of(bundle: Bundle, node: int, engine: str) -> tuple[PartFile, ...]:
    """The files that a node needs for an engine.

    Raises:
        DiscoError: The bundle has nothing for it.
    """
    if engine == NATIVE:
        check_hosted(bundle, (node,))
        if not (bundle.path / f"node{node}" / _NATIVE_PARTS[0]).is_file():
            raise DiscoError(
                f"{bundle.path} has no C sources for node {node}: the model is too big for them; use --engine tflite, "
                "or more nodes"
            )
        return tuple(_part(bundle.path / f"node{node}" / name, name) for name in _NATIVE_PARTS)
    stages = bundle.manifest.programs[node].stages
    files = [_part(bundle.path / stage.file, PART_NAME.format(place)) for place, stage in enumerate(stages)]
    return (_part(bundle.path / MANIFEST_NAME, MANIFEST_NAME), *files)


def _part(path: Path, name: str) -> PartFile:
    return PartFile(Part(name, path.stat().st_size, sha256_of(path)), path)


def send_slice(watch: Watch, bundle: Bundle, node: int, engine: str, mode: str, *, framed: bool) -> int:
    """Brings a node's slice to its agent, as far as it is not there; how many parts were sent.

    Args: as in `messages.Prepare`.

    Raises:
        DiscoError: The agent refuses it or cannot build it, or is gone.
    """
    files = slice_of(bundle, node, engine)
    manifest = bundle.manifest
    parts = tuple(file.part for file in files)
    request = Prepare(manifest.bundle_id, node, manifest.nodes, engine, mode, parts, framed)
    need = watch.request(node, request, Need)
    if len(set(need.parts)) < len(need.parts) or not set(need.parts) <= set(range(len(files))):
        raise watch.nonsense(node, f"asks for parts {need.parts} of {len(files)}")
    for place in need.parts:
        content = files[place].path.read_bytes()
        for at in range(0, len(content), MAX_BYTES):
            watch.send_bytes(node, content[at : at + MAX_BYTES])
    return watch.answer(node, Prepared, PREPARED_S).uploaded
