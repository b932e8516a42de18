"""Agents on this machine's loopback, for one run: Linux nodes without a second machine."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from disco_host.cluster import LINUX, ClusterNode
from disco_host.node.address import SCHEME
from disco_host.node.auth import write_token
from disco_host.processes import ChildProcess, stop_all
from disco_targets.errors import DiscoError
from disco_targets.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 20.0


@contextlib.contextmanager
def start_agents(nodes: int, logs: Path | None = None) -> Iterator[tuple[ClusterNode, ...]]:
    """One agent process per node, with a token of this run alone; all are ended with the block.

    Args:
        nodes: How many.
        logs: Folder that keeps what they print; default a temporary one.

    Raises:
        DiscoError: They do not start.
    """
    children: list[ChildProcess] = []
    with scratch_folder("agents") as folder:
        token = folder / "token"
        write_token(token)
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)
        try:
            ready = [_start(node, token, logs or folder, children) for node in range(nodes)]
            yield tuple(
                ClusterNode(node, LINUX, SCHEME + _address(node, end, children[node]), token_file=token)
                for node, end in enumerate(ready)
            )
        finally:
            stop_all(children)


def _start(node: int, token: Path, logs: Path, children: list[ChildProcess]) -> int:
    """Starts an agent; the end of a pipe that will tell its address."""
    ours, theirs = os.pipe()
    command = [sys.executable, "-m", "disco_host.cli_node", "--listen", "127.0.0.1:0", "--token-file", str(token)]
    try:
        children.append(ChildProcess([*command, "--ready-fd", str(theirs)], logs / f"agent{node}.log", [theirs]))
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return ours


def _address(node: int, end: int, child: ChildProcess) -> str:
    try:
        readable, _, _ = select.select([end], [], [], START_S)
        text = os.read(end, 200).decode().strip() if readable else ""
    finally:
        os.close(end)
    if not text:
        how = child.epitaph() or f"it said nothing for {START_S:g} s"
        raise DiscoError(f"the agent of node {node} does not start: {how}")
    return text
