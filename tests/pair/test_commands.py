"""disco-run and disco-flash as commands: exit codes, messages, and nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from disco_firmware.build import build_node
from disco_firmware.bundle import load_bundle
from disco_firmware.inputs import load_labels, load_npy
from disco_host.boards_local import emulator_command
from disco_host.processes import ChildProcess
from disco_targets.board import load_board
from disco_targets.errors import DiscoError
from helpers.tiny_bundle import export_tiny

MARK = "DISCO_TEST_MARK"
TARGET = "qemu-mps2-an386"
INPUT = (6, 5, 3)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny network for two emulated boards."""
    return export_tiny(tmp_path_factory.mktemp("tiny") / "bundle", target=TARGET).path


@pytest.fixture
def mark() -> Iterator[str]:
    """Marks processes; those that a failed test leaves behind are ended after it."""
    mark = uuid.uuid4().hex
    yield mark
    for pid in _marked_pids(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _command(command: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", f"disco_host.cli_{command}", *map(str, arguments)]


def _call(command: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(command, *arguments),
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "200", **environment},
    )


def _refused(result: subprocess.CompletedProcess[str], *words: str, code: int = 1) -> None:
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in " ".join(result.stderr.split())


def _marked_pids(mark: str) -> list[int]:
    """Living processes that inherited our mark."""
    return [
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if f"{MARK}={mark}".encode() in _bytes(folder / "environ")
    ]


def _marked(mark: str) -> list[str]:
    """Their command names."""
    names = [_bytes(Path(f"/proc/{pid}/comm")).decode().strip() for pid in _marked_pids(mark)]
    return [name for name in names if name]


def _bytes(file: Path) -> bytes:
    """Nothing where the process is gone, or not ours."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _wait_for_listeners(port: int, path: Path) -> None:
    end = time.monotonic() + 30
    while not path.exists() or f":{port:04X} 00000000:0000 0A" not in Path("/proc/net/tcp").read_text():
        assert time.monotonic() < end
        time.sleep(0.01)


def _run_marked(bundle: Path, mark: str, *arguments: object) -> subprocess.Popen[str]:
    command = _command("run", bundle, *arguments)
    return subprocess.Popen(
        command,
        env={**os.environ, MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_take_signals,  # noqa: PLW1509 - nothing but system calls
    )


def _take_signals() -> None:
    """As from a terminal: where the tests run in the background, SIGINT is ignored, and children inherit that."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _wait_for(mark: str, name: str, count: int) -> None:
    end = time.monotonic() + 60
    while sum(found.startswith(name) for found in _marked(mark)) < count:
        assert time.monotonic() < end, f"no {count} {name}"
        time.sleep(0.01)


def test_both_boards_and_both_files(bundle: Path, tmp_path: Path) -> None:
    images = np.random.default_rng(1).uniform(-1, 1, (5, *INPUT)).astype(np.float32)
    np.save(tmp_path / "inputs.npy", images)
    for boards in ("emulated", "posix"):
        report, trace = tmp_path / f"{boards}.json", tmp_path / f"{boards}.trace.json"
        files = ["--json", report, "--trace", trace, "--keep-logs", tmp_path / boards]
        more = ["--inputs", tmp_path / "inputs.npy", "--repeat", 2, "--check", "tensors"]
        result = _call("run", bundle, "--boards", boards, *more, *files)
        assert result.returncode == 0, result.stderr
        assert "Bit-exact" in result.stdout
        data = json.loads(report.read_text())
        assert (data["inferences"], data["mismatches"], data["bit_exact"]) == (10, 0, True)
        assert {node["unit"] for node in data["nodes"]} == {"instructions" if boards == "emulated" else "ns"}
        assert json.loads(trace.read_text())["traceEvents"]
        assert (tmp_path / boards / "node1.log").read_text().startswith("$ ")


def test_counts_are_projected_onto_boards_and_links(bundle: Path, tmp_path: Path, repository: Path) -> None:
    model = repository / "examples" / "clusters" / "m4-168mhz-uart-3mbaud.toml"
    report, trace = tmp_path / "run.json", tmp_path / "trace.json"
    arguments = ["run", bundle, "--project", model, "--json", report, "--trace", trace]
    result = _call(*arguments, "--boards", "emulated")
    assert result.returncode == 0, result.stderr
    assert "Projected latency" in result.stdout
    assert "Nothing of this was measured" in result.stdout
    data = json.loads(report.read_text())
    projection = data["projection"]
    assert projection["label"] == "projected"
    compute = [sum(op["compute"]["median"] for op in node["ops"]) for node in data["nodes"]]
    expected = [c * 1.6 / 168e3 for c in compute]  # but for medians of steps, which need not add up to those of ops
    assert [node["compute_ms"] for node in projection["nodes"]] == pytest.approx(expected, rel=1e-3)
    # Every node sends 2 of 4 channels of 6x5 pixels, and waits for the other's.
    assert all(link["wire_bytes"] > 60 for link in projection["links"])
    assert projection["latency_ms"] >= projection["without_communication_ms"]
    path = projection["critical_path"]
    assert (path[0]["start_ms"], path[-1]["end_ms"]) == (0, projection["latency_ms"])
    assert "projected" in json.loads(trace.read_text())["metadata"]
    _refused(_call(*arguments, "--boards", "posix"), "posix nodes measure time", code=2)
    _refused(_call(*arguments[:2], "--boards", "emulated", "--project", tmp_path / "none.toml"), "does not exist")


def test_helium_kernels_are_refused_on_a_pc(tmp_path: Path) -> None:
    helium = export_tiny(tmp_path / "bundle", target="qemu-mps3-an547").path
    _refused(_call("run", helium, "--boards", "posix"), "whose Helium kernels no PC can run", "--target posix")


def test_two_runs_of_one_bundle_at_the_same_time(bundle: Path, mark: str) -> None:
    runs = [_run_marked(bundle, mark, "--boards", "emulated", "--repeat", 3) for _ in range(2)]
    for run in runs:
        out, err = run.communicate(timeout=120)
        assert run.returncode == 0, err
        assert "Bit-exact" in out
    assert _marked(mark) == []


@pytest.mark.parametrize(("boards", "process"), [("emulated", "qemu"), ("posix", "node")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_an_interrupted_run_leaves_nothing_running(
    bundle: Path, mark: str, boards: str, process: str, number: signal.Signals
) -> None:
    run = _run_marked(bundle, mark, "--boards", boards, "--repeat", 100_000)
    _wait_for(mark, process, 2)
    run.send_signal(number)
    out, err = run.communicate(timeout=30)
    assert run.returncode == (130 if number != signal.SIGKILL else -signal.SIGKILL)
    if number != signal.SIGKILL:
        assert "disco-run: interrupted" in err
        assert "Traceback" not in err
    assert "Bit-exact" not in out
    end = time.monotonic() + 10
    while _marked(mark) and time.monotonic() < end:  # the kernel's part after SIGKILL
        time.sleep(0.01)
    assert _marked(mark) == []


@pytest.mark.parametrize("delay", [0.15, 0.4, 0.8, 1.6])
def test_ctrl_c_at_any_moment_leaves_nothing_running(bundle: Path, mark: str, delay: float) -> None:
    run = _run_marked(bundle, mark, "--boards", "emulated", "--repeat", 100_000)
    time.sleep(delay)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=30)
    assert run.returncode in (130, -signal.SIGINT)  # the latter while Python itself still starts
    assert _marked(mark) == []


def test_a_killed_board_is_named_with_its_signal(bundle: Path, mark: str) -> None:
    run = _run_marked(bundle, mark, "--boards", "emulated", "--repeat", 100_000)
    _wait_for(mark, "qemu", 2)
    victims = [pid for pid in _marked_pids(mark) if b"node1.elf" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(victims) == 1
    os.kill(victims[0], signal.SIGKILL)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "node 1" in err
    assert "was killed by SIGKILL" in " ".join(err.split())
    assert _marked(mark) == []


def test_a_changed_byte_is_refused(bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy, ignore=shutil.ignore_patterns("build"))
    source = copy / "node0" / "disco_model.c"
    source.write_bytes(source.read_bytes()[:-2] + b" \n")
    _refused(_call("run", copy, "--boards", "posix"), "disco_model.c was changed after the export")
    _refused(_call("flash", copy), "disco_model.c was changed after the export")


def test_a_bundle_of_another_version_is_refused(bundle: Path, tmp_path: Path) -> None:
    data = json.loads((bundle / "bundle.json").read_text())
    (tmp_path / "bundle.json").write_text(json.dumps({**data, "schema": 99}))
    _refused(_call("run", tmp_path, "--boards", "posix"), "bundle.json has schema 99", "export the model again")


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["--boards", "emulated", "--repeat", "0"], "repeat is 0, it must be at least 1", 2),
        (["--boards", "emulated", "--warmup", "-1"], "warmup is -1", 2),
        (["--boards", "emulated", "--limit", "0"], "limit is 0", 2),
        (["--boards", "emulated", "--deadline", "nan"], "deadline is nan s", 2),
        (["--boards", "emulated", "--repeat", "many"], "invalid int value", 2),
        ([], "--boards", 2),
        (["--boards", "none.toml"], "cluster file none.toml does not exist", 1),
        (["--boards", "emulated", "--inputs", "none.npy"], "inputs file none.npy does not exist", 1),
        (["--boards", "emulated", "--json", "/none/x.json"], "/none/x.json cannot be written", 1),
        (["--boards", "emulated", "--json", "x", "--trace", "x"], "--json and --trace name the same file", 2),
        (
            ["--boards", "linux", "--json", "x.toml", "--probe-links", "./x.toml"],
            "--json and --probe-links name the same file",
            2,
        ),
        (["--boards", "linux", "--probe-links", "x.json"], "a system for disco-latency is a file NAME.toml", 2),
        (["--boards", "linux", "--project", "x.toml"], "linux nodes measure time, which is not projected", 2),
        (["--boards", "posix", "--engine", "native"], "engine native is for Linux nodes", 2),
        (["--boards", "posix", "--mode", "xnnpack"], "no node computes with xnnpack", 2),
        (["--boards", "linux", "--engine", "native", "--mode", "xnnpack"], "no node computes with xnnpack", 2),
        (["--boards", "emulated", "--repeat", "9" * 30], "are too many for one run", 2),
        (["--boards", "emulated", "--warmup", "9" * 12], "are too many for one run", 2),
        (["--boards", "emulated", "--inputs", "x" * 300], "File name too long", 1),
        (["--boards", "x" * 300], "File name too long", 1),
    ],
)
def test_options_that_make_no_sense(bundle: Path, arguments: list[str], words: str, code: int) -> None:
    _refused(_call("run", bundle, *arguments), words, code=code)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((2, 3, 6, 5), np.float32), "channels first (NCHW)"),
        (np.zeros((2, 6, 5, 4), np.float32), "the model needs [n, 6, 5, 3]"),
        (np.zeros((6, 5, 3), np.float32), "one sample [6, 5, 3] without a batch axis"),
        (np.zeros((0, 6, 5, 3), np.float32), "hold no samples"),
        (np.zeros((2, 6, 5, 3), np.uint8), "are uint8: give float32"),
        (np.full((2, 6, 5, 3), 255, np.float32), "range from 255 to 255, the model's input holds"),
        (np.full((2, 6, 5, 3), np.nan, np.float32), "NaN or infinity, the first at index (0, 0, 0, 0)"),
    ],
)
def test_inputs_that_do_not_fit(bundle: Path, tmp_path: Path, array: np.ndarray, words: str) -> None:
    np.save(tmp_path / "x.npy", array)
    _refused(_call("run", bundle, "--boards", "emulated", "--inputs", tmp_path / "x.npy"), words)


def _npy(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(100)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04" + bytes(100),
        pickle.dumps([1]),
        _npy("{'shape': ((2,"),
        _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (True, 6, 5, 3)}"),
        _npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10**13}, 6, 5, 3)}}"),
        _npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10**30}, 6, 5, 3)}}"),
    ],
)
def test_inputs_that_are_no_npy(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(DiscoError, match=r"inputs file .* is not a readable \.npy"):
        load_npy(tmp_path / "x.npy", "inputs")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.zeros(3), "give one whole number per input"),
        (np.full(4, -1), "range from -1 to -1: the model has the classes 0 to 9"),
        (np.arange(7, 11), "range from 7 to 10: the model has the classes 0 to 9"),
        (np.full(4, 2**64 - 1, np.uint64), "the model has the classes 0 to 9"),
    ],
)
def test_labels_that_do_not_fit(tmp_path: Path, labels: np.ndarray, words: str) -> None:
    np.save(tmp_path / "labels.npy", labels)
    with pytest.raises(DiscoError, match=words):
        load_labels(tmp_path / "labels.npy", 4, 10)


def test_labels_of_a_run_are_checked(bundle: Path, tmp_path: Path) -> None:
    count = len(np.load(bundle / "vectors" / "inputs.npy"))
    np.save(tmp_path / "labels.npy", np.full(count, 120))
    labels = ("--labels", tmp_path / "labels.npy")
    _refused(_call("run", bundle, "--boards", "emulated", *labels), "the model has the classes 0 to 119")


def test_a_damaged_manifest_is_refused(tmp_path: Path) -> None:
    for text in ("", "{", "[" * 100_000, "3"):
        (tmp_path / "bundle.json").write_text(text)
        with pytest.raises(DiscoError, match=r"bundle\.json is damaged"):
            load_bundle(tmp_path)


def test_a_folder_that_cannot_be_built_in(bundle: Path, tmp_path: Path) -> None:
    copy = _unbuilt(bundle, tmp_path)
    (copy / "build").touch()
    _refused(_call("run", copy, "--boards", "posix"), "firmware cannot be built in", "copy the bundle")


def test_an_interrupted_build_leaves_nothing_running(bundle: Path, tmp_path: Path, mark: str) -> None:
    copy = _unbuilt(bundle, tmp_path)
    run = _run_marked(copy, mark, "--boards", "posix")
    _wait_for(mark, "cc1", 1)
    run.send_signal(signal.SIGTERM)
    _, err = run.communicate(timeout=30)
    assert (run.returncode, err) == (130, "disco-run: interrupted\n")
    assert _marked(mark) == []


def _unbuilt(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy", ignore=shutil.ignore_patterns("build")))


def test_closed_and_full_and_narrow_streams(bundle: Path, tmp_path: Path) -> None:
    run = shlex.join(_command("run", bundle, "--boards", "posix", "--json", tmp_path / "run.json"))
    assert subprocess.run(["sh", "-c", f"{run} <&- >&- 2>&-"], timeout=120).returncode == 0
    assert json.loads((tmp_path / "run.json").read_text())["bit_exact"]
    full = subprocess.run(["sh", "-c", f"{run} >/dev/full"], capture_output=True, text=True, timeout=120)
    assert full.returncode == 1
    assert (
        full.stderr == "disco-run: the disk is full: free some space where this command writes its output and files\n"
    )
    narrow = _call("run", bundle, "--boards", "posix", PYTHONIOENCODING="ascii", COLUMNS="60")
    assert narrow.returncode == 0, narrow.stderr
    assert "Bit-exact" in narrow.stdout


def test_missing_tools_name_their_package(bundle: Path, tmp_path: Path) -> None:
    empty = str(tmp_path)
    _refused(
        _call("run", bundle, "--boards", "emulated", PATH=empty),
        "qemu-system-arm is not installed",
        "apt install qemu-system-arm",
    )
    _refused(_call("run", bundle, "--boards", "posix", PATH=empty), "is not installed", "sudo apt install")
    _refused(_call("flash", bundle, PATH=empty), "is not installed", "sudo apt install")


def test_cycles_are_estimated(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    result = _call("run", bundle, "--boards", "emulated", "--count", "cycles-estimate", "--json", file)
    assert result.returncode == 0, result.stderr
    text = " ".join(result.stdout.split())  # tables wrap their titles
    assert "medians in cycles-estimate" in text
    assert "no cycles of a real board" in text
    assert {node["unit"] for node in json.loads(file.read_text())["nodes"]} == {"cycles-estimate"}


def test_cycles_that_cannot_be_estimated(bundle: Path, tmp_path: Path) -> None:
    estimate = ("--boards", "emulated", "--count", "cycles-estimate")
    _refused(_call("run", bundle, "--boards", "posix", "--count", "cycles-estimate"), "on emulated boards only", code=2)
    m33 = export_tiny(tmp_path / "m33", target="qemu-mps2-an505").path
    _refused(_call("run", m33, *estimate), "node 0 (qemu-mps2-an505) has a cortex-m33", "cortex-m4 and cortex-m7 only")
    program = shutil.which("qemu-system-arm")
    if program is None:
        pytest.skip("qemu-system-arm is not installed")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "qemu-system-arm").symlink_to(program)
    unbuilt = _unbuilt(bundle, tmp_path)
    _refused(_call("run", unbuilt, *estimate, PATH=str(tools)), "needs a C compiler", "apt install gcc")
    (tools / "gcc").write_text("#!/bin/sh\necho broken; exit 1\n")
    (tools / "gcc").chmod(0o755)
    _refused(_call("run", unbuilt, *estimate, PATH=str(tools)), "cannot build the cycle estimate's plugin: broken")
    (tools / "qemu-system-arm").unlink()
    (tools / "qemu-system-arm").write_text("#!/bin/sh\necho usage\n")
    (tools / "qemu-system-arm").chmod(0o755)
    _refused(_call("run", unbuilt, *estimate, PATH=str(tools)), "was built without plugins")


def test_boards_that_somebody_else_started(bundle: Path, tmp_path: Path) -> None:
    """A cluster file: one board behind a pyserial URL, one behind a unix socket."""
    images = [build_node(bundle, node).path for node in range(2)]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    hosts = [f"tcp:127.0.0.1:{port}", f"unix:{tmp_path}/line"]
    board = load_board(TARGET)
    with ExitStack() as stack:
        ends = socket.socketpair()
        for node, (image, host, end) in enumerate(zip(images, hosts, ends, strict=True)):
            command = emulator_command(board, image, {})
            command += ["-serial", f"{host},server=on,wait=off"]
            command += ["-chardev", f"socket,id=peer,fd={end.fileno()}", "-serial", "chardev:peer"]
            child = ChildProcess(command, tmp_path / f"{node}.log", [end.fileno()])
            stack.callback(child.stop)
            end.close()
        names = (f"socket://127.0.0.1:{port}", f"unix:{tmp_path}/line")
        cluster = tmp_path / "cluster.toml"
        cluster.write_text("".join(f'[[node]]\nboard = "{TARGET}"\nport = "{name}"\n' for name in names))
        _wait_for_listeners(port, tmp_path / "line")
        for _ in range(2):  # the boards outlive a run and take the next one
            result = _call("run", bundle, "--boards", cluster, "--check", "tensors", "--json", tmp_path / "run.json")
            assert result.returncode == 0, result.stderr
            assert json.loads((tmp_path / "run.json").read_text())["boards"] == "cluster"
        swapped = tmp_path / "swapped.toml"
        swapped.write_text("".join(f'[[node]]\nboard = "{TARGET}"\nport = "{name}"\n' for name in reversed(names)))
        _refused(_call("run", bundle, "--boards", swapped), "answers as node", "swap the ports")


def test_posix_targets_are_not_emulated(tmp_path: Path) -> None:
    single = export_tiny(tmp_path / "single", nodes=1).path
    _refused(_call("run", single, "--boards", "emulated"), "node 0 was exported for posix, which is not emulated")
    many = export_tiny(tmp_path / "one", nodes=1, target=TARGET).path
    cluster = tmp_path / "cluster.toml"
    cluster.write_text('[[node]]\nboard = "posix"\nport = "a"\n[[node]]\nboard = "posix"\nport = "b"\n')
    _refused(_call("run", many, "--boards", cluster), "lists 2 nodes, the bundle has 1")


def test_flash_builds_and_says_what_is_next(bundle: Path) -> None:
    result = _call("flash", bundle)
    assert result.returncode == 0, result.stderr
    assert "node1.elf" in result.stdout
    assert "nothing to flash" in result.stdout
    result = _call("flash", bundle, "--node", 1, "--boards", "posix")
    assert result.returncode == 0, result.stderr
    assert "node 0:" not in result.stdout
    assert "a process on this PC" in result.stdout
    _refused(_call("flash", bundle, "--node", 2), "nodes 0 to 1", code=2)
