"""A bundle on disk: `bundle.json` and the files that it lists by SHA-256. Written whole or not at all.

Everything below `build/` in a bundle is made from it (firmware builds) and is neither listed nor checked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disco_firmware.manifest import SCHEMA_VERSION, Manifest
from disco_targets.disk import FREE_SPACE, writing_to
from disco_targets.errors import DiscoError

MANIFEST_NAME = "bundle.json"
BUILD_DIRECTORY = "build"
REFERENCE_NAME = "reference.tflite"


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files were checked against their hashes."""

    path: Path
    manifest: Manifest

    @property
    def reference(self) -> Path:
        """The whole int8 model: the golden."""
        return self.path / REFERENCE_NAME

    @property
    def vector_inputs(self) -> Path:
        """Self-check inputs, int8 [n, h, w, c]."""
        return self.path / "vectors" / "inputs.npy"

    def vector_outputs(self, output: int) -> Path:
        """Expected int8 values of model output `output` for the self-check inputs."""
        return self.path / "vectors" / f"outputs{output}.npy"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_bundle(path: Path) -> Bundle:
    """Reads and checks a bundle. DiscoError when it is missing, of another version, or when any file was changed."""
    manifest_path = path / MANIFEST_NAME
    if not manifest_path.is_file():
        raise DiscoError(f"{path} is not a bundle (no {MANIFEST_NAME} in it): make one with disco-export")
    try:
        document = json.loads(manifest_path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DiscoError(f"{manifest_path} is damaged ({error}): export the model again") from error
    if not isinstance(document, dict) or not isinstance(document.get("files"), dict):
        raise DiscoError(f"{manifest_path} is damaged (not an object with a list of files): export the model again")
    files = document.pop("files")
    digest = document.pop("manifest_sha256", None)
    if document.get("schema") == SCHEMA_VERSION and digest != _digest(document, files):
        raise DiscoError(f"{manifest_path} was changed after the export: export the model again")
    manifest = Manifest.from_json(document)
    _check_files(path, files)
    return Bundle(path, manifest)


@contextlib.contextmanager
def new_bundle(path: Path) -> Iterator[Path]:
    """Gives an empty folder beside `path` that takes its place when the block ends well, and vanishes when it does not.

    DiscoError when `path` exists and is neither empty nor a bundle (so that no foreign file is ever deleted), and when
    the disk is full.
    """
    _check_replaceable(path)
    path = path.resolve()
    with writing_to(path.parent, f"{FREE_SPACE}, or name a folder on another disk"), _parents(path):
        work = Path(tempfile.mkdtemp(prefix=".disco-export-", dir=path.parent))
        try:
            work.chmod(0o755)
            yield work
            _replace(path, work)
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _parents(path: Path) -> Iterator[None]:
    """Makes the folders above `path`, and takes those that it made away again when the block does not end well."""
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for folder in missing:
                folder.rmdir()
        raise


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Writes bundle.json over all files that lie in `directory`; the last step of an export."""
    files = {
        file.relative_to(directory).as_posix(): sha256_of(file)
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }
    document = manifest.to_json()
    digest = _digest(document, files)
    document = {**document, "files": files, "manifest_sha256": digest}
    text = json.dumps(document, indent=1) + "\n"
    (directory / MANIFEST_NAME).write_text(text, encoding="utf-8")


def _digest(document: dict[str, Any], files: Any) -> str:
    text = json.dumps([document, files], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check_files(path: Path, files: Any) -> None:
    for name, expected in files.items():
        file = path / name
        if not file.is_file():
            raise DiscoError(f"{file} is missing from the bundle: export the model again")
        if sha256_of(file) != expected:
            raise DiscoError(f"{file} was changed after the export: export the model again")


def _check_replaceable(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        if Path.cwd().is_relative_to(path.resolve()):
            raise DiscoError(f"{path} is or holds the current folder and cannot be replaced: name another folder")
        if not any(path.iterdir()) or (path / MANIFEST_NAME).is_file():
            return
        raise DiscoError(f"{path} exists and is not a bundle: name another folder or empty it")
    if path.exists() or path.is_symlink():
        raise DiscoError(f"{path} exists and is not a folder: name another one")


def _replace(path: Path, work: Path) -> None:
    """Swaps the finished folder in; an old bundle is moved aside first, so that there is never a half one."""
    if not path.exists():
        os.replace(work, path)
        return
    aside = Path(tempfile.mkdtemp(prefix=".disco-export-old-", dir=path.parent))
    old = aside / path.name
    try:
        os.replace(path, old)
        os.replace(work, path)
    except BaseException:
        if old.exists() and not path.exists():
            os.replace(old, path)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
