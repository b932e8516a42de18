"""Builds the firmware of a bundle's nodes with CMake."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from disco_firmware.bundle import BUILD_DIRECTORY
from disco_firmware.project import FIRMWARE_DIRECTORY, HOSTED_BSP, TOOLCHAIN_FILE
from disco_targets.children import run_child
from disco_targets.errors import DiscoError

BUILD_TIMEOUT_S = 300.0
_PACKAGES = {
    "cmake": "cmake",
    "make": "make",
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "gcc": "gcc",
    "size": "binutils",
    "arm-none-eabi-size": "binutils-arm-none-eabi",
}


@dataclass(frozen=True)
class FirmwareImage:
    """A built node and its sizes as the linker made them."""

    path: Path
    text_bytes: int
    """Code and constants: flash."""
    data_bytes: int
    """Initialised data: flash and RAM."""
    bss_bytes: int
    """Zeroed data, the arena among it: RAM."""

    @property
    def flash_bytes(self) -> int:
        """Flash in use."""
        return self.text_bytes + self.data_bytes

    @property
    def ram_bytes(self) -> int:
        """RAM in use, without the stack."""
        return self.data_bytes + self.bss_bytes


def build_node(
    bundle: Path, node: int, *, port: str = "board", sanitize: bool = False, build_dir: Path | None = None
) -> FirmwareImage:
    """Configures and builds one node; what is up to date is not built again.

    Args:
        bundle: The bundle's folder.
        node: Which node.
        port: "board" for the target that the bundle was exported for, "posix" for a process on this PC.
        sanitize: ASan and UBSan (posix only).
        build_dir: Default BUNDLE/build/<port>/node<N>.

    Raises:
        DiscoError: A tool is missing (with its package), or the build failed (with the compiler's last lines).
    """
    source = bundle / f"node{node}"
    hosted = port == "posix" or not (source / "link.ld").is_file()
    prefix = "" if hosted else "arm-none-eabi-"
    for program in ("cmake", "make", f"{prefix}gcc", f"{prefix}size"):
        _require(program)
    name = ("posix" if hosted else "board") + ("-sanitized" if sanitize else "")
    directory = build_dir or bundle / BUILD_DIRECTORY / name / f"node{node}"
    directory.mkdir(parents=True, exist_ok=True)
    configure = ["cmake", "-S", str(source), "-B", str(directory), "-G", "Unix Makefiles"]
    configure += [f"-DDISCO_SANITIZE={'ON' if sanitize else 'OFF'}"]
    if hosted:
        configure += [f"-DDISCO_PORT={HOSTED_BSP}", "-DCMAKE_C_COMPILER=gcc"]
    else:
        configure += [f"-DCMAKE_TOOLCHAIN_FILE={(bundle / FIRMWARE_DIRECTORY / TOOLCHAIN_FILE).resolve()}"]
    with _locked(directory.parent / f"node{node}.lock"):
        _build(configure, directory, node)
    return _measure(directory / (f"node{node}" if hosted else f"node{node}.elf"), f"{prefix}size")


def _build(configure: list[str], directory: Path, node: int) -> None:
    """Continues the build of before where it can, and begins anew where that is not in order."""
    build = ["cmake", "--build", str(directory), "--parallel", "2"]
    if _configured(directory):
        try:
            _run(build, node)
            return
        except DiscoError:  # what an end in the middle or a full disk left may be damaged
            pass
    shutil.rmtree(directory)
    directory.mkdir()
    _run(configure, node)
    _run(build, node)


def _configured(directory: Path) -> bool:
    """Whether it was configured at this very place: the files of CMake hold absolute paths."""
    cache = directory / "CMakeCache.txt"
    if not cache.is_file() or not (directory / "Makefile").is_file():
        return False
    return f"CMAKE_CACHEFILE_DIR:INTERNAL={directory.resolve()}\n" in cache.read_text(errors="replace")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One build of a folder at a time, also across processes."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise DiscoError(
            f"{program} is not installed, it is needed to build firmware: sudo apt install {_PACKAGES[program]}"
        )


def _run(command: list[str], node: int) -> None:
    try:
        result = run_child(command, BUILD_TIMEOUT_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired as error:
        raise DiscoError(
            f"building node {node} took longer than {BUILD_TIMEOUT_S:.0f} s: {' '.join(command)}"
        ) from error
    if result.returncode != 0:
        last = "\n".join(result.stdout.decode(errors="replace").strip().splitlines()[-12:])
        raise DiscoError(f"building node {node} failed ({' '.join(command)}):\n{last}")


def _measure(image: Path, size: str) -> FirmwareImage:
    """Sizes by binutils' size (Berkeley format: text, data, bss)."""
    _require_file(image)
    output = subprocess.run([size, str(image)], capture_output=True, text=True, check=True).stdout
    text, data, bss = (int(field) for field in output.splitlines()[1].split()[:3])
    return FirmwareImage(image, text, data, bss)


def _require_file(image: Path) -> None:
    if not image.is_file():
        raise DiscoError(f"the build made no {image}: remove its folder and try again")
