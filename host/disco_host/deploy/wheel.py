"""The wheel that a Linux node gets: of this very installation, whether it is a checkout or was installed from a wheel.

Same sources, same bytes, so that a hash of it says whether a node has it already.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

PACKAGES = (
    "disco_converter",
    "disco_firmware",
    "disco_host",
    "disco_planning",
    "disco_pruning",
    "disco_targets",
)
_OLDEST = (1980, 1, 1, 0, 0, 0)
"""Date of every file: zip archives know none before."""


def build_wheel(folder: Path) -> Path:
    """Writes the wheel into `folder`; returns its path."""
    installed = distribution("disco-edge")
    name = f"disco_edge-{installed.version}"
    files = {f"{name}.dist-info/{file}": data for file, data in _metadata(installed).items()}
    for package in PACKAGES:
        files.update(_package(package))
    record = f"{name}.dist-info/RECORD"
    listed = "".join(f"{file},sha256={_digest(data)},{len(data)}\n" for file, data in sorted(files.items()))
    files[record] = f"{listed}{record},,\n".encode()
    wheel = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(file, _OLDEST), data, zipfile.ZIP_DEFLATED)
    return wheel


def _metadata(installed: Distribution) -> dict[str, bytes]:
    texts = {file: installed.read_text(file) for file in ("METADATA", "entry_points.txt")}
    wheel = "Wheel-Version: 1.0\nGenerator: disco-flash\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {file: text.encode() for file, text in texts.items() if text is not None} | {"WHEEL": wheel.encode()}
    for entry in installed.files or ():
        if entry.parent.name == "licenses":
            files[f"licenses/{entry.name}"] = Path(str(entry.locate())).read_bytes()
    return files


def _package(package: str) -> dict[str, bytes]:
    """Its files by their names in the wheel; nothing is imported for it."""
    found = importlib.util.find_spec(package)
    assert found is not None  # it is part of this distribution
    (root,) = map(Path, found.submodule_search_locations or ())
    return {
        f"{package}/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
