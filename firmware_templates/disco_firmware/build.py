"""Builds the firmware of a bundle's nodes with CMake."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from disco_firmware.bundle import BUILD_DIRECTORY
from disco_firmware.project import FIRMWARE_DIRECTORY, HOSTED_BSP, TOOLCHAIN_FILE
from disco_targets.children import missing_program, run_child
from disco_targets.errors import DiscoError

BUILD_TIMEOUT_S = 300.0
LOCK_POLL_S = 0.1
_CMAKE_BREAKS_AT = ';":$\\\n'
"""Characters that CMake and its makefiles cannot carry in the path of a source."""
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
    bundle: Path,
    node: int,
    *,
    port: str = "board",
    sanitize: bool = False,
    stream_lines: bool = False,
    build_dir: Path | None = None,
) -> FirmwareImage:
    """Configures and builds one node; what is up to date is not built again.

    Args:
        bundle: The bundle's folder.
        node: Which node.
        port: "board" for the target that the bundle was exported for, "posix" for a process on this PC.
        sanitize: ASan and UBSan (posix only).
        stream_lines: Frames for lines that lose nothing, instead of the boards' frames (posix only).
        build_dir: Default BUNDLE/build/<port>/node<N>.

    Raises:
        DiscoError: A tool is missing (with its package), or the build failed (with the compiler's last lines).
    """
    source = (bundle / f"node{node}").resolve()
    if source.is_dir() and not (source / "CMakeLists.txt").is_file():
        raise DiscoError(
            f"{bundle} has no C sources for node {node}: the model is too big for them; use the engine tflite, or more "
            "nodes"
        )
    _check_path(source)
    hosted = port == "posix" or not (source / "link.ld").is_file()
    prefix = "" if hosted else "arm-none-eabi-"
    for program in ("cmake", "make", f"{prefix}gcc", f"{prefix}size"):
        if shutil.which(program) is None:
            raise missing_program(program, _PACKAGES[program], "build firmware")
    name = ("posix" if hosted else "board") + ("-sanitized" if sanitize else "") + ("-stream" if stream_lines else "")
    directory = build_dir or bundle / BUILD_DIRECTORY / name / f"node{node}"
    image = directory / (f"node{node}" if hosted else f"node{node}.elf")
    directory.mkdir(parents=True, exist_ok=True)
    configure = ["cmake", "-S", str(source), "-B", str(directory.resolve()), "-G", "Unix Makefiles"]
    configure += [f"-DDISCO_SANITIZE={_switch(sanitize)}", f"-DDISCO_STREAM_LINES={_switch(stream_lines)}"]
    if hosted:
        configure += [f"-DDISCO_PORT={HOSTED_BSP}", "-DCMAKE_C_COMPILER=gcc"]
    else:
        configure += [f"-DCMAKE_TOOLCHAIN_FILE={(bundle / FIRMWARE_DIRECTORY / TOOLCHAIN_FILE).resolve()}"]
    with _locked(directory.parent / f"node{node}.lock") as lock:
        _build(configure, directory, source, node, lock)
        return _measure(image, f"{prefix}size")


def _switch(on: bool) -> str:
    return "ON" if on else "OFF"


def _build(configure: list[str], directory: Path, source: Path, node: int, lock: int) -> None:
    """Continues the build of before where it can, and begins anew where that is not in order."""
    build = ["cmake", "--build", str(directory), "--parallel", "2"]
    if _configured(directory, source):
        try:
            _run(build, node, lock)
            return
        except DiscoError:  # what an end in the middle or a full disk left may be damaged
            pass
    shutil.rmtree(directory)
    directory.mkdir()
    _run(configure, node, lock)
    _run(build, node, lock)


def _configured(directory: Path, source: Path) -> bool:
    """Is it a whole build folder of this place? A bundle that was moved or copied brings one of another place along."""
    cache = directory / "CMakeCache.txt"
    if not (directory / "Makefile").is_file() or not cache.is_file():
        return False
    lines = set(cache.read_text(encoding="utf-8", errors="replace").splitlines())
    here = {f"CMAKE_CACHEFILE_DIR:INTERNAL={directory.resolve()}", f"CMAKE_HOME_DIRECTORY:INTERNAL={source}"}
    return here <= lines


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """One build of a folder at a time, also across processes. Gives the lock's descriptor, for compilers to inherit.

    A lock lasts until the last process closes it: so what a killed build leaves running cannot meet the next build.
    """
    with path.open("w") as lock:
        end = time.monotonic() + BUILD_TIMEOUT_S
        while not _try_lock(lock):
            if time.monotonic() > end:
                raise DiscoError(f"{path} has been held by another build for {BUILD_TIMEOUT_S:.0f} s: end that one")
            time.sleep(LOCK_POLL_S)
        yield lock.fileno()


def _try_lock(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _check_path(source: Path) -> None:
    odd = sorted(set(str(source)) & set(_CMAKE_BREAKS_AT))
    if odd:
        raise DiscoError(f"{source} has {odd[0]!r} in its path, which CMake cannot build: move the bundle elsewhere")


def _run(command: list[str], node: int, lock: int) -> None:
    try:
        # The compilers inherit the lock: should we be killed, the next build waits for them.
        result = run_child(command, BUILD_TIMEOUT_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[lock])
    except subprocess.TimeoutExpired as error:
        raise DiscoError(
            f"building node {node} took longer than {BUILD_TIMEOUT_S:.0f} s: {' '.join(command)}"
        ) from error
    if result.returncode != 0:
        lines = result.stdout.decode(errors="replace").splitlines()
        last = "\n".join([line for line in lines if line.strip()][-12:])
        raise DiscoError(f"building node {node} failed ({' '.join(command)}):\n{last}")


def _measure(image: Path, size: str) -> FirmwareImage:
    """Sizes by binutils' size (Berkeley format: text, data, bss)."""
    result = subprocess.run([size, str(image)], capture_output=True, text=True)
    if result.returncode != 0:
        raise DiscoError(f"{image} is missing or damaged: remove the folder {image.parent} and try again")
    text, data, bss = (int(field) for field in result.stdout.splitlines()[1].split()[:3])
    return FirmwareImage(image, text, data, bss)
