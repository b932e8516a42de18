"""Building a node: sizes, what is built again, what is said when it cannot be built."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from disco_firmware import build
from disco_firmware.build import build_node
from disco_targets.errors import DiscoError
from helpers.c_build import tool
from helpers.link_stub import build_stub


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tool("cmake")
    folder = tmp_path_factory.mktemp("bundle")
    build_stub(folder, "qemu-mps2-an386", nodes=1)
    return folder


def test_an_image_is_measured_and_not_built_twice(bundle: Path) -> None:
    image = build_node(bundle, 0)
    assert image.path == bundle / "build" / "board" / "node0" / "node0.elf"
    assert 2_000 < image.text_bytes < 24_000
    assert image.flash_bytes == image.text_bytes + image.data_bytes
    assert image.ram_bytes == image.data_bytes + image.bss_bytes
    before = image.path.stat().st_mtime_ns
    assert build_node(bundle, 0) == image
    assert image.path.stat().st_mtime_ns == before
    model = bundle / "node0" / "disco_model.c"
    model.write_text("const char payload[4096] = {1};\nextern const char payload[4096];\n")
    assert build_node(bundle, 0).path.stat().st_mtime_ns > before


def test_debuggers_and_loaders_find_where_it_begins(bundle: Path) -> None:
    image = build_node(bundle, 0).path
    header = image.read_bytes()[:28]
    listed = subprocess.run([tool("arm-none-eabi-nm"), str(image)], capture_output=True, text=True, check=True).stdout
    (reset,) = (int(line.split()[0], 16) for line in listed.splitlines() if line.endswith(" T reset"))
    assert int.from_bytes(header[24:28], "little") == reset | 1  # Thumb code


def test_a_warning_of_the_linker_ends_the_build(bundle: Path) -> None:
    script = bundle / "node0" / "link.ld"
    good = script.read_text()
    script.write_text(good.replace("ENTRY(reset)", "ENTRY(nowhere)"))
    try:
        with pytest.raises(DiscoError, match="cannot find entry symbol nowhere"):
            build_node(bundle, 0)
    finally:
        script.write_text(good)
    build_node(bundle, 0)


def test_a_failed_build_shows_what_the_compiler_said(bundle: Path) -> None:
    model = bundle / "node0" / "disco_model.c"
    good = model.read_text()
    model.write_text("int broken = missing;\n")
    try:
        with pytest.raises(DiscoError, match=r"building node 0 failed") as caught:
            build_node(bundle, 0)
        assert "missing" in str(caught.value)
    finally:
        model.write_text(good)
    build_node(bundle, 0)  # and the next one succeeds


@pytest.mark.parametrize(
    ("port", "present", "package"),
    [
        ("board", (), "cmake"),
        ("board", ("cmake", "make"), "gcc-arm-none-eabi libnewlib-arm-none-eabi"),
        ("posix", ("cmake", "make"), "gcc"),
        ("posix", ("cmake", "make", "gcc"), "binutils"),
    ],
)
def test_a_missing_tool_is_named_with_its_package(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: str, present: tuple[str, ...], package: str
) -> None:
    for name in present:
        (tmp_path / name).symlink_to(tool(name))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DiscoError, match=f"sudo apt install {package}"):
        build_node(bundle, 0, port=port)


def test_a_bundle_that_was_moved_or_copied_is_built_where_it_is(bundle: Path, tmp_path: Path) -> None:
    original = build_node(bundle, 0).path
    before = original.stat().st_mtime_ns
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    model = copy / "node0" / "disco_model.c"
    good = model.read_text()
    model.write_text("int broken = missing;\n")
    with pytest.raises(DiscoError, match="missing"):  # the copy's source, not the original's
        build_node(copy, 0)
    model.write_text(good)
    assert build_node(copy, 0).path.is_file()
    assert original.stat().st_mtime_ns == before
    moved = tmp_path / "moved"
    copy.rename(moved)
    assert build_node(moved, 0).path.is_file()
    assert not copy.exists()


@pytest.mark.parametrize("odd", [";", '"', ":", "$", "\\", "\n"])
def test_a_path_that_cmake_cannot_carry_is_refused(bundle: Path, tmp_path: Path, odd: str) -> None:
    elsewhere = tmp_path / f"a{odd}b"
    shutil.copytree(bundle, elsewhere)
    with pytest.raises(DiscoError, match="in its path, which CMake cannot build"):
        build_node(elsewhere, 0)


def test_a_damaged_image_is_named(bundle: Path) -> None:
    image = build_node(bundle, 0).path
    image.write_bytes(image.read_bytes()[:1000])
    with pytest.raises(DiscoError, match=r"node0\.elf is missing or damaged: remove the folder"):
        build_node(bundle, 0)
    image.unlink()


def test_another_build_is_not_awaited_for_ever(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_node(bundle, 0)
    monkeypatch.setattr(build, "BUILD_TIMEOUT_S", 0.2)
    with (bundle / "build" / "board" / "node0.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DiscoError, match=r"node0\.lock has been held by another build for 0 s: end that one"):
            build_node(bundle, 0)


def test_sources_and_project_are_the_same_for_the_same_input(bundle: Path, tmp_path: Path) -> None:
    build_stub(tmp_path / "again", "qemu-mps2-an386", nodes=1)
    for name in ("CMakeLists.txt", "disco_board.h", "link.ld"):
        text = (bundle / "node0" / name).read_text()
        assert text == (tmp_path / "again" / "node0" / name).read_text()
        assert os.fspath(tmp_path.parent) not in text


def test_a_moved_bundle_and_a_damaged_build_are_built_anew(tmp_path: Path) -> None:
    tool("cmake")
    build_stub(tmp_path / "one", "qemu-mps2-an386", nodes=1)
    size = build_node(tmp_path / "one", 0).flash_bytes
    (tmp_path / "one").rename(tmp_path / "two")
    build = tmp_path / "two" / "build" / "board" / "node0"
    assert build_node(tmp_path / "two", 0).flash_bytes == size
    largest = max(build.rglob("*.obj"), key=lambda file: file.stat().st_size)
    largest.write_bytes(b"")  # what a killed compiler leaves, newer than its source
    (build / "node0.elf").unlink()
    assert build_node(tmp_path / "two", 0).flash_bytes == size
