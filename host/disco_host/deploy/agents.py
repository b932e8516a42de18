"""Agents of the Linux nodes of a cluster: installed, started, reached; or stopped."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disco_host.deploy.ssh import INSTALL_S, Remote
from disco_host.deploy.wheel import build_wheel
from disco_host.node.address import Endpoint, connect_to, parse_endpoint
from disco_host.node.auth import load_token, prove_to_listener
from disco_host.node.tls import calling_context, secured_caller
from disco_targets.errors import DiscoError
from disco_targets.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from disco_host.cluster import ClusterNode


@dataclass(frozen=True)
class Access:
    """How nodes are reached and what they get."""

    ssh_config: Path | None = None
    """None: the user's own."""
    python: str = "python3"
    """The interpreter on the nodes."""
    wheel: Path | None = None
    """None: this very installation."""


@dataclass(frozen=True)
class AgentStatus:
    """What was done on one node."""

    node: int
    where: str
    """Its ssh destination."""
    what: str
    note: str = ""
    """What the user should know about it."""


def start_agents(nodes: Sequence[ClusterNode], access: Access, say: Callable[[str], None]) -> tuple[AgentStatus, ...]:
    """Installs this disco-edge where it is not yet, and starts agents that do not run yet as they should.

    Args:
        nodes: Those with an `ssh` destination; one after the other.
        access: How to get there.
        say: Told what begins.

    Raises:
        DiscoError: A node cannot be served; those before it are.
    """
    tokens = [_token(node) for node in nodes]
    with scratch_folder("flash") as folder:
        wheel = access.wheel or build_wheel(folder)
        if wheel.suffix != ".whl" or not wheel.is_file():
            raise DiscoError(f"{wheel} is no wheel: name a disco_edge-*.whl file, or leave --wheel out")
        return tuple(_start(node, token, wheel, access, say) for node, token in zip(nodes, tokens, strict=True))


def stop_agents(nodes: Sequence[ClusterNode], access: Access) -> tuple[AgentStatus, ...]:
    """Ends the agents; what is installed stays.

    Raises:
        DiscoError: A node cannot be reached.
    """
    done = []
    for node in nodes:
        answer = _ask(node, access, {"action": "stop", "port": parse_endpoint(node.port).port})
        done.append(AgentStatus(node.node, _destination(node), "stopped" if answer["stopped"] else "did not run"))
    return tuple(done)


def _token(node: ClusterNode) -> bytes:
    if node.token_file is None:
        raise DiscoError(
            f'node {node.node}: write token_file = "FILE" in its table, a secret for all nodes; make one with: '
            "(umask 077; head -c 32 /dev/urandom | base64 > FILE)"
        )
    return load_token(node.token_file)


def _start(node: ClusterNode, token: bytes, wheel: Path, access: Access, say: Callable[[str], None]) -> AgentStatus:
    endpoint = parse_endpoint(node.port)
    listen = _listen_host(endpoint.host)
    say(f"node {node.node}: {_destination(node)}")
    there = _ask(node, access, {"action": "look", "port": endpoint.port})
    wanted = {"wheel": _hash(wheel.read_bytes()), "token": _hash(token)}
    folder = ""
    if missing := [kind for kind in wanted if there[kind] != wanted[kind]]:
        what = "installs disco-edge (minutes the first time)" if "wheel" in missing else "takes the new token"
        say(f"node {node.node}: {what}")
        folder = _copy(node, access, wheel if "wheel" in missing else None, token if "token" in missing else None)
    request = {
        "action": "flash",
        "port": endpoint.port,
        "listen": listen,
        "address": str(Endpoint(listen, endpoint.port)),
        "tls": node.tls_ca is not None,
        "folder": folder,
        "file": wheel.name,
        "unit": (files("disco_host.deploy") / "disco-node@.service").read_text(encoding="utf-8"),
        **wanted,
    }
    answer = _ask(node, access, request, INSTALL_S)
    _reach(node, endpoint, token)
    what = "installed" if answer["installed"] else "up to date"
    return AgentStatus(
        node.node, _destination(node), f"{what}, {'started' if answer['started'] else 'runs already'}", answer["note"]
    )


def _copy(node: ClusterNode, access: Access, wheel: Path | None, token: bytes | None) -> str:
    """Copies what is missing there; returns the folder."""
    with scratch_folder("flash") as folder, _naming(node):
        sources = [wheel] if wheel is not None else []
        if token is not None:
            copy = folder / "token"  # the folder is this user's alone
            copy.write_bytes(token)
            sources.append(copy)
        remote = _remote(node, access)
        place = str(remote.ask({"action": "stage"})["folder"])
        remote.copy(sources, place)
    return place


def _listen_host(host: str) -> str:
    """Where an agent listens that is reached as `host`: a name may mean the node's loopback there."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return "127.0.0.1" if host == "localhost" else "0.0.0.0"


def _reach(node: ClusterNode, endpoint: Endpoint, token: bytes) -> None:
    """Whether the agent answers from here, and knows the token."""
    try:
        with _naming(node), contextlib.ExitStack() as stack:
            line = connect_to(endpoint)
            stack.callback(line.close)
            if node.tls_ca is not None:
                line = secured_caller(line, calling_context(node.tls_ca), endpoint.host)
                stack.callback(line.close)
            prove_to_listener(line, token)
    except OSError as error:
        raise DiscoError(
            f"node {node.node}: its agent runs, but {endpoint} cannot be reached from here "
            f"({error.strerror or error}): open TCP port {endpoint.port} in its firewall, or check the address in the "
            "cluster file"
        ) from error


def _remote(node: ClusterNode, access: Access) -> Remote:
    return Remote(_destination(node), access.ssh_config, access.python)


def _destination(node: ClusterNode) -> str:
    assert node.ssh is not None  # the caller's choice
    return node.ssh


def _ask(node: ClusterNode, access: Access, request: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
    with _naming(node):
        remote = _remote(node, access)
        return remote.ask(request) if timeout_s is None else remote.ask(request, timeout_s)


@contextlib.contextmanager
def _naming(node: ClusterNode) -> Iterator[None]:
    """Errors within it name the node."""
    try:
        yield
    except DiscoError as error:
        raise DiscoError(f"node {node.node}: {error}") from error


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
