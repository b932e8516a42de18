"""Whole runs on Linux nodes: agents on this machine's loopback, with either engine, with TLS, among emulated boards.

DISCO_LINUX_INFERENCES raises the number of inferences, and lets more numbers of native nodes (each is compiled) run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from disco_converter.export import ExportConfig, export
from disco_firmware.reference import XNNPACK
from disco_host.config import RunConfig
from disco_host.node.messages import NATIVE, TFLITE
from disco_host.node.tls import TlsFiles, listening_context
from disco_host.remote import slices
from disco_host.run import Progress, RunOutcome
from disco_host.run import run as run_bundle
from disco_host.trace import chrome_trace
from disco_targets.errors import DiscoError, UsageError
from helpers.agents import TOKEN, AgentProcess, cluster_file, write_token
from helpers.bundles import EXAMPLE
from helpers.tiny_bundle import export_tiny, tiny_model

from .conftest import BundleMaker

pytestmark = pytest.mark.timeout(900)

PATIENCE_S = 20.0  # these tests are about values, and the machine may be busy
INFERENCES = int(os.environ.get("DISCO_LINUX_INFERENCES", "8"))
NATIVE_NODES = (2,) if INFERENCES <= 8 else (1, 2, 3, 4, 8)


def run(config: RunConfig, progress: Progress | None = None) -> RunOutcome:
    return run_bundle(replace(config, exchange_deadline_s=PATIENCE_S), progress)


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_tiny(tmp_path_factory.mktemp("linux") / "bundle", 2, "linux").path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agents")
    write_token(folder)
    return folder


@pytest.fixture(scope="module")
def agents(folder: Path) -> Iterator[list[AgentProcess]]:
    with AgentProcess(folder) as one, AgentProcess(folder) as other:
        yield [one, other]


# ---- bit for bit


@pytest.mark.parametrize(
    ("nodes", "engine"),
    [
        (nodes, engine)
        for engine in (NATIVE, TFLITE)
        for nodes in (1, 2, 3, 4, 8)
        if engine == TFLITE or nodes in NATIVE_NODES
    ],
)
def test_linux_nodes_are_bit_exact(make_bundle: BundleMaker, tmp_path: Path, nodes: int, engine: str) -> None:
    images = np.load(EXAMPLE / "test_images.npy")[:8]
    np.save(tmp_path / "images.npy", images)
    config = RunConfig(
        bundle=make_bundle(nodes, "linux"),
        boards="linux",
        inputs=tmp_path / "images.npy",
        repeat=max(1, INFERENCES // len(images)),
        check_tensors=INFERENCES <= 8,
        engine=engine,
    )
    result = run(config).result
    assert (result.mismatches, result.inferences) == (0, len(images) * config.repeat)
    assert [(node.board, node.unit) for node in result.nodes] == [("linux", "ns")] * nodes


def test_xnnpack_nodes_equal_xnnpack_on_one_device(make_bundle: BundleMaker) -> None:
    config = RunConfig(bundle=make_bundle(2, "linux"), boards="linux", engine=TFLITE, mode=XNNPACK)
    assert run(config).result.bit_exact


def test_both_engines_in_one_network_are_refused_before_anything_is_started(
    make_bundle: BundleMaker, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.toml"
    table = '[[node]]\nboard = "linux"\nport = "disco://127.0.0.1:{}"\nengine = "{}"\n'
    path.write_text(table.format(1, "native") + table.format(2, "tflite"))
    with pytest.raises(DiscoError, match="take one engine"):
        run(RunConfig(bundle=make_bundle(2, "linux"), boards=str(path)))
    path.write_text((table + 'mode = "{}"\n').format(1, "tflite", "xnnpack") + table.format(2, "tflite"))
    with pytest.raises(UsageError, match="take one mode"):
        run(RunConfig(bundle=make_bundle(2, "linux"), boards=str(path)))


@pytest.mark.parametrize(
    ("nodes", "options", "message"),
    [
        ('engine = "native"', {"engine": TFLITE}, "says the engine of each Linux node, none is tflite"),
        ('engine = "native"\nmode = "xnnpack"', {}, 'node 0: mode = "xnnpack" is for engine tflite alone'),
        ('mode = "xnnpack"', {"engine": NATIVE}, 'node 0: mode = "xnnpack" is for engine tflite alone'),
        ("", {"logs": Path("logs")}, "has no board that runs on this PC"),
    ],
)
def test_what_no_node_of_a_cluster_would_follow_is_refused(
    make_bundle: BundleMaker, tmp_path: Path, nodes: str, options: dict, message: str
) -> None:
    path = tmp_path / "cluster.toml"
    table = f'[[node]]\nboard = "linux"\nport = "disco://127.0.0.1:{{}}"\n{nodes}\n'
    path.write_text(table.format(1) + table.format(2))
    with pytest.raises(UsageError, match=message):
        run(RunConfig(bundle=make_bundle(2, "linux"), boards=str(path), **options))


@pytest.mark.parametrize(("boards", "engine"), [("linux", NATIVE), ("posix", None)])
def test_kernels_that_no_node_has_are_refused(make_bundle: BundleMaker, boards: str, engine: str | None) -> None:
    with pytest.raises(UsageError, match="no node computes with xnnpack"):
        run(RunConfig(bundle=make_bundle(2, "linux"), boards=boards, engine=engine, mode=XNNPACK))


@pytest.mark.slow
def test_boards_and_linux_nodes_in_one_network(tmp_path: Path, folder: Path, agents: list[AgentProcess]) -> None:
    (tmp_path / "tiny.tflite").write_bytes(tiny_model())
    targets = ("linux", "qemu-mps2-an386", "linux")
    bundle = export(ExportConfig(tmp_path / "tiny.tflite", 3, targets, tmp_path / "bundle", recomputed_macs=0)).bundle
    assert bundle.manifest.exchanges
    board = '[[node]]\nboard = "qemu-mps2-an386"\nport = "emulated"\n'
    cluster = cluster_file(folder, agents)
    one, other = cluster.read_text().split("[[node]]")[1:]
    cluster.write_text(f"[[node]]{one}{board}[[node]]{other}")
    result = run(RunConfig(bundle=bundle.path, boards=str(cluster), check_tensors=True)).result
    assert result.bit_exact
    assert [node.unit for node in result.nodes] == ["ns", "instructions", "ns"]
    assert sorted(result.relayed) == [(1, 0), (1, 2)]
    assert [clock.node for clock in result.clocks] == [0, 2]


def test_clocks_are_aligned_within_the_error_that_is_told(tiny: Path, folder: Path, agents: list[AgentProcess]) -> None:
    outcome = run(RunConfig(bundle=tiny, boards=str(cluster_file(folder, agents)), probe_links=True))
    assert [(link.caller, link.listener) for link in outcome.result.probed] == [(0, 1), (1, 0)]
    data = json.loads(json.dumps(outcome.to_json()))
    assert [clock["node"] for clock in data["clocks"]] == [0, 1]
    for clock in data["clocks"]:  # one machine, one clock
        assert abs(clock["offset_ns"]) <= clock["error_ns"]
    trace = chrome_trace(outcome.bundle.manifest, outcome.result, *outcome.captures)
    assert trace["metadata"]["clocks"].startswith("aligned to within")
    starts = [
        min(event["ts"] for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == node)
        for node in (0, 1)
    ]
    true = (outcome.captures[0].nodes[1].start - outcome.captures[0].nodes[0].start) / 1000
    error = sum(clock["error_ns"] for clock in data["clocks"]) / 1000
    assert starts[1] - starts[0] == pytest.approx(true, abs=error + 50)  # ops begin a moment after the run


class _Memory:
    """Progress that looks at the resident memory of agents and engines, in kB."""

    def __init__(self, agents: list[AgentProcess], at: int) -> None:
        self._agents = agents
        self._at = at
        self.early: list[int] = []
        self.late: list[int] = []

    def step(self, text: str) -> None:
        pass

    def inference(self, done: int, total: int) -> None:
        if done in (self._at, total):
            pids = [pid for agent in self._agents for pid in (agent.process.pid, *agent.children())]
            sizes = [_resident(pid) for pid in pids]
            self.early, self.late = (sizes, []) if done == self._at else (self.early, sizes)


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


@pytest.mark.parametrize("engine", [NATIVE, TFLITE])
def test_the_memory_of_agents_and_engines_does_not_grow(
    tiny: Path, folder: Path, agents: list[AgentProcess], engine: str
) -> None:
    memory = _Memory(agents, 100)
    repeat = max(300, INFERENCES) // 8
    run(RunConfig(bundle=tiny, boards=str(cluster_file(folder, agents)), repeat=repeat, engine=engine), memory)
    sys.stderr.write(f"kB of agents and engines ({engine}): {memory.early}, after {repeat * 8}: {memory.late}\n")
    assert len(memory.late) == len(memory.early) == 4
    assert max(late - early for early, late in zip(memory.early, memory.late, strict=True)) < 512


# ---- one clear error each


def test_a_second_run_is_told_who_is_busy(tiny: Path, folder: Path, agents: list[AgentProcess]) -> None:
    cluster = cluster_file(folder, agents)
    command = [sys.executable, "-m", "disco_host.cli_run", str(tiny), "--boards", str(cluster), "--repeat", "100000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        try:
            while not all(agent.children() for agent in agents):
                time.sleep(0.02)
            with pytest.raises(DiscoError, match=r"node \d: .*: busy with a job of 127.0.0.1:\d+ for"):
                run(RunConfig(bundle=tiny, boards=str(cluster)))
        finally:
            first.send_signal(signal.SIGTERM)
    assert run(RunConfig(bundle=tiny, boards=str(cluster))).result.bit_exact  # free again
    end = time.monotonic() + 10
    while any(agent.children() for agent in agents):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_wrong_token_is_told(tiny: Path, folder: Path, tmp_path: Path, agents: list[AgentProcess]) -> None:
    write_token(tmp_path, TOKEN[::-1])
    cluster = cluster_file(folder, agents)
    cluster.write_text(cluster.read_text().replace(str(folder / "token"), str(tmp_path / "token")))
    with pytest.raises(DiscoError, match=r"node \d: 127.0.0.1:\d+: it refuses our token"):
        run(RunConfig(bundle=tiny, boards=str(cluster)))


def test_a_peer_that_cannot_be_reached_is_told(tiny: Path, folder: Path, agents: list[AgentProcess]) -> None:
    cluster = cluster_file(folder, agents)
    text = cluster.read_text().replace("[[node]]\n", '[[node]]\npeer_address = "127.0.0.1:1"\n', 1)
    cluster.write_text(text)
    message = r"node 1 .* it cannot connect to node 0: 127.0.0.1:1 cannot be reached: Connection refused"
    with pytest.raises(DiscoError, match=message):
        run(RunConfig(bundle=tiny, boards=str(cluster)))


def test_a_slice_of_another_bundle_is_told(
    tiny: Path, folder: Path, tmp_path: Path, agents: list[AgentProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = export_tiny(tmp_path / "other", 2, "posix")
    right = slices.slice_of
    monkeypatch.setattr(slices, "slice_of", lambda _, node, engine: right(other, node, engine))
    with pytest.raises(DiscoError, match=rf"node \d .* runs bundle {other.manifest.bundle_id}, this one is"):
        run(RunConfig(bundle=tiny, boards=str(cluster_file(folder, agents))))


def test_a_program_in_the_cache_that_was_damaged_is_built_again(
    tiny: Path, folder: Path, agents: list[AgentProcess]
) -> None:
    config = RunConfig(bundle=tiny, boards=str(cluster_file(folder, agents)), engine=NATIVE)
    assert run(config).result.bit_exact
    images = list(folder.rglob("project/build/node[01]"))
    assert images
    for image in images:
        damaged = image.read_bytes()[:1000]
        image.unlink()  # an engine may still be about to end
        image.write_bytes(damaged)  # as after a power cut
    assert run(config).result.bit_exact


def test_a_node_without_a_compiler_runs_tflite_alone(tiny: Path, folder: Path, tmp_path: Path) -> None:
    write_token(tmp_path)
    with AgentProcess(tmp_path, path="/nonexistent") as one, AgentProcess(tmp_path, path="/nonexistent") as other:
        cluster = str(cluster_file(tmp_path, [one, other]))
        with pytest.raises(
            DiscoError, match=r"node \d .* cannot be built: cmake is not installed, .* apt install cmake"
        ):
            run(RunConfig(bundle=tiny, boards=cluster, engine=NATIVE))
        assert run(RunConfig(bundle=tiny, boards=cluster)).result.bit_exact


def test_nothing_is_left_of_an_interrupted_run(tiny: Path) -> None:
    """Ctrl-C while agents of our own run: the command, its agents and their engines end."""
    mark = f"DISCO_TEST_MARK={os.urandom(8).hex()}"
    command = [sys.executable, "-m", "disco_host.cli_run", str(tiny), "--boards", "linux", "--repeat", "100000"]
    name, value = mark.split("=")
    with subprocess.Popen(
        command, env={**os.environ, name: value}, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as first:
        while len(_marked(mark)) < 5:  # itself, two agents, two engines
            assert first.poll() is None
            time.sleep(0.02)
        first.send_signal(signal.SIGTERM)
        assert first.stderr is not None
        assert first.stderr.read().strip() == "disco-run: interrupted"
    assert first.returncode == 130
    assert not _marked(mark)


def _marked(mark: str) -> list[int]:
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in environ.read_bytes():
                found.append(int(environ.parent.name))
    return found


# ---- TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem, and node.pem with node.key, signed by it for 127.0.0.1; other.pem signed nothing."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    for name in ("ca", "other"):
        openssl("req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
    openssl("req", *key, "-keyout", "node.key", "-out", "node.csr", "-subj", "/CN=node")
    (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\n")
    sign = ("x509", "-req", "-in", "node.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
    openssl(*sign, "-extfile", "extensions", "-out", "node.pem")
    return folder


def test_tls(tiny: Path, folder: Path, certificates: Path, agents: list[AgentProcess]) -> None:
    names = (("cert", "node.pem"), ("key", "node.key"), ("ca", "ca.pem"))
    options = [text for name, file in names for text in (f"--tls-{name}", str(certificates / file))]
    with AgentProcess(folder, *options) as one, AgentProcess(folder, *options) as other:

        def attempt(ends: list[AgentProcess], authority: str | None, engine: str = NATIVE) -> None:
            more = f'tls_ca = "{certificates / authority}"' if authority else ""
            config = RunConfig(bundle=tiny, boards=str(cluster_file(folder, ends, more)), engine=engine)
            assert run(config).result.bit_exact

        attempt([one, other], "ca.pem")
        attempt([one, other], "ca.pem", TFLITE)
        with pytest.raises(DiscoError, match="its certificate is not trusted"):
            attempt([one, other], "other.pem")
        with pytest.raises(DiscoError, match="does one side want TLS"):
            attempt([one, other], None)
        with pytest.raises(DiscoError, match="no TLS with it: the other side does not speak it"):
            attempt(agents, "ca.pem")


def test_an_encrypted_key_is_refused_without_a_question(certificates: Path) -> None:
    locked = certificates / "locked.key"
    aes = ["-aes256", "-passout", "pass:word", "-out", str(locked)]
    subprocess.run(["openssl", "ec", "-in", str(certificates / "node.key"), *aes], check=True, capture_output=True)
    with pytest.raises(DiscoError, match=r"locked\.key is encrypted"):
        listening_context(TlsFiles(certificates / "node.pem", locked, certificates / "ca.pem"))
