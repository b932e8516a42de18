"""Linux nodes that die, hang, are slow or cut off in the middle of a run: named, and the next run is right.

DISCO_LINUX_KILLS raises the number of random kills, DISCO_LINUX_ENGINE chooses another engine for them.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from disco_host.config import RunConfig
from disco_host.run import run
from disco_targets.errors import DiscoError
from helpers.agents import AgentProcess, Wire, cluster_file, write_token
from helpers.tiny_bundle import export_tiny

NODES = 3
KILLS = int(os.environ.get("DISCO_LINUX_KILLS", "2"))
DEADLINE_S = 1.5 if KILLS >= 50 else 4.0  # the usual one, or one for busy machines
ENGINE = os.environ.get("DISCO_LINUX_ENGINE", "native")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_tiny(tmp_path_factory.mktemp("linux") / "bundle", NODES, "linux").path


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[AgentProcess]]:
    folder = tmp_path_factory.mktemp("agents")
    write_token(folder)
    with ExitStack() as stack:
        yield [stack.enter_context(AgentProcess(folder)) for _ in range(NODES)]


class _Counter:
    """Progress that tells when inferences are under way."""

    def __init__(self) -> None:
        self.running = threading.Event()

    def step(self, text: str) -> None:
        pass

    def inference(self, done: int, total: int) -> None:
        if done == 5:
            self.running.set()


def _fail(bundle: Path, cluster: Path, fault: Callable[[], None]) -> tuple[str, float]:
    """A long run that a fault ends: its message, and how many seconds after the fault it came."""
    counter, at = _Counter(), [0.0]

    def strike() -> None:
        counter.running.wait(60)
        at[0] = time.monotonic()
        fault()

    striker = threading.Thread(target=strike)
    striker.start()
    config = RunConfig(
        bundle=bundle, boards=str(cluster), repeat=100_000, engine=ENGINE, exchange_deadline_s=DEADLINE_S
    )
    try:
        with pytest.raises(DiscoError) as caught:
            run(config, counter)
    finally:
        counter.running.set()
        striker.join()
    return str(caught.value), time.monotonic() - at[0]


def _works(bundle: Path, cluster: Path) -> None:
    result = run(RunConfig(bundle=bundle, boards=str(cluster), engine=ENGINE, exchange_deadline_s=20)).result
    assert (result.mismatches, result.inferences) == (0, 8)


def test_a_killed_node_is_named_and_the_next_run_is_right(bundle: Path, agents: list[AgentProcess]) -> None:
    cluster = cluster_file(agents[0].folder, agents)
    chance = random.Random(5)
    latest, waited = 0.0, 0
    for _ in range(KILLS):
        victim = chance.randrange(NODES)
        pause = chance.random() * 0.3

        def kill(victim: int = victim, pause: float = pause) -> None:
            time.sleep(pause)
            agents[victim].kill()

        message, seconds = _fail(bundle, cluster, kill)
        assert f"node {victim} (" in message.split(",")[0], message
        latest = max(latest, seconds - pause)
        waited += "waited for it in exchange" in message or "in exchange" in message
        agents[victim].start()
        _works(bundle, cluster)
    sys.stderr.write(
        f"{KILLS} kills: named after at most {latest:.2f} s, {waited} times with an exchange that waited\n"
    )
    if KILLS >= 50:
        assert latest < 2


def test_a_node_that_hangs_is_named(bundle: Path, agents: list[AgentProcess]) -> None:
    cluster = cluster_file(agents[0].folder, agents)

    def freeze() -> None:
        """As a machine whose power supply fails: the agent and its engine at once."""
        for pid in (*agents[1].children(), agents[1].process.pid):
            os.kill(pid, signal.SIGSTOP)

    message, _ = _fail(bundle, cluster, freeze)
    agents[1].signal(signal.SIGCONT)
    assert "node 1 (" in message
    assert "hangs" in message
    # Frozen before its input came or after its last exchange, no other node waits for it: then the host alone does.
    alone = r"(of the input|DONE of inference \d+) was awaited; no exchange was seen to wait for it"
    assert "in exchange 0" in message or re.search(alone, message)
    _works(bundle, cluster)


def test_nothing_is_left_of_an_agent_that_is_told_to_end(bundle: Path, agents: list[AgentProcess]) -> None:
    cluster = cluster_file(agents[0].folder, agents)
    engines: list[int] = []

    def end() -> None:
        engines.extend(agents[2].children())
        agents[2].signal(signal.SIGTERM)

    message, _ = _fail(bundle, cluster, end)
    assert message.startswith("node 2 (")
    assert agents[2].process.wait(10) == 130
    assert engines
    assert not any(Path(f"/proc/{pid}").exists() for pid in engines)
    agents[2].start()
    _works(bundle, cluster)


def test_an_engine_that_is_halted_or_dies_is_named(bundle: Path, agents: list[AgentProcess]) -> None:
    cluster = cluster_file(agents[0].folder, agents)
    message, _ = _fail(bundle, cluster, lambda: os.kill(agents[2].children()[0], signal.SIGSTOP))
    assert message.startswith("node 2 (")
    message, _ = _fail(bundle, cluster, lambda: os.kill(agents[0].children()[0], signal.SIGSEGV))
    assert re.match(r"node 0 \([^)]*\) reports: its engine \w+ was killed by SIGSEGV", message)
    _works(bundle, cluster)


def test_a_node_that_is_cut_off_is_named_and_works_again_when_it_is_back(
    bundle: Path, agents: list[AgentProcess]
) -> None:
    with Wire(agents[1].endpoint) as wire:
        cluster = cluster_file(agents[0].folder, [agents[0].endpoint, wire.endpoint, agents[2].endpoint])
        message, _ = _fail(bundle, cluster, wire.cut)
        assert message.startswith("node 1 (")
        assert "hangs, or the network to it is cut" in message
        wire.mend()
        _works(bundle, cluster)


def test_a_slow_link_between_two_nodes_is_named_with_its_exchange(bundle: Path, agents: list[AgentProcess]) -> None:
    with Wire(agents[0].endpoint) as wire:
        path = cluster_file(agents[0].folder, agents)
        path.write_text(path.read_text().replace("[[node]]\n", f'[[node]]\npeer_address = "{wire.endpoint}"\n', 1))
        message, _ = _fail(bundle, path, wire.cut)
        assert "a deadline passed" in message
        assert "in exchange 0" in message
        wire.mend()
        _works(bundle, path)
