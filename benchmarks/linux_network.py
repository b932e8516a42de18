"""Two network namespaces of this machine, joined by a veth pair whose rate `tc tbf` limits, each with a line to us.

The agents' exchanges go over the pair; the host's control goes over lines of its own, without limit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

BURST_BYTES, BURST_S = 3200, 200e-6
"""Of the token bucket: two frames, or what the rate gives in so many seconds (the kernel's timers need some slack). A
large bucket, of which every pause sends much at once, would be no link of that rate."""
QUEUE_MS = 400
"""How much the filter holds back before it drops; TCP never fills it."""


@dataclass(frozen=True)
class Namespace:
    """One node's network."""

    name: str
    device: str
    """Its end of the pair."""
    host_address: str
    """Where the host reaches it."""
    pair_address: str
    """Where the other node reaches it."""


def why_not() -> str | None:
    """Why this machine cannot do it; None where it can."""
    for program in ("ip", "tc", "taskset"):
        if shutil.which(program) is None:
            return f"the program {program} is missing (iproute2, util-linux)"
    if (os.cpu_count() or 1) < 2:
        return "two nodes need a core each, this machine has one"
    try:
        with two_namespaces() as pair:
            set_rate(pair, 300)
    except subprocess.CalledProcessError as error:
        words = " ".join(error.stderr.split())
        return f"network namespaces are not allowed here ({' '.join(error.cmd)}: {words}); root can make them"
    return None


@contextlib.contextmanager
def two_namespaces() -> Iterator[tuple[Namespace, Namespace]]:
    """Makes both and removes them again; subprocess.CalledProcessError where that is not allowed."""
    number = os.getpid() % 200
    pair = tuple(
        Namespace(f"disco-{os.getpid()}-{k}", f"pair{k}", f"10.{number}.{k}.2", f"10.{number}.9.{k + 1}")
        for k in range(2)
    )
    with contextlib.ExitStack() as undo:
        for k, space in enumerate(pair):
            _do(f"ip netns add {space.name}")
            undo.callback(_do, f"ip netns del {space.name}")
            ours = f"disco{os.getpid()}h{k}"
            _do(f"ip link add {ours} type veth peer name host netns {space.name}")
            undo.callback(_do, f"ip link del {ours}")  # a namespace takes its devices along, but only some time later
            _do(f"ip addr add {space.host_address.removesuffix('2')}1/24 dev {ours}")
            _do(f"ip link set {ours} up")
            _up(space, "host", space.host_address)
            _do(f"ip -n {space.name} link set lo up")
        ends = [f"{space.device} netns {space.name}" for space in pair]
        _do(f"ip link add {ends[0]} type veth peer name {ends[1]}")
        for space in pair:
            _up(space, space.device, space.pair_address)
        yield pair[0], pair[1]


def set_rate(pair: tuple[Namespace, Namespace], rate_mbit: int | None) -> int:
    """Limits both directions of the pair, each by itself; None: no limit.

    Returns:
        The bytes that pass at once after a pause.
    """
    burst = max(BURST_BYTES, round(rate_mbit * 1e6 / 8 * BURST_S)) if rate_mbit else 0
    for space in pair:
        with contextlib.suppress(subprocess.CalledProcessError):  # there is none yet
            _do(f"tc -n {space.name} qdisc del dev {space.device} root")
        if rate_mbit is not None:
            limit = f"tbf rate {rate_mbit}mbit burst {burst} latency {QUEUE_MS}ms"
            _do(f"tc -n {space.name} qdisc add dev {space.device} root {limit}")
    return burst


def _up(space: Namespace, device: str, address: str) -> None:
    _do(f"ip -n {space.name} addr add {address}/24 dev {device}")
    _do(f"ip -n {space.name} link set {device} up")


def _do(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True, text=True)
