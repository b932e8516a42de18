"""Brings the boards of a run to where they can be greeted, wherever they are."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from disco_host.boards import NodeLine, open_cluster
from disco_host.boards_local import check_emulators, start_emulated, start_emulated_among, start_posix
from disco_host.cluster import EMULATED_PORT
from disco_host.config import CYCLES_ESTIMATE, DEFAULT_EXCHANGE_DEADLINE_S, LINUX, MIXED_EXCHANGE_DEADLINE_S, POSIX
from disco_host.estimate import build_plugin, check_estimate
from disco_host.firmware import build_images
from disco_host.node.messages import TFLITE
from disco_host.remote.local import start_agents
from disco_host.remote.nodes import Defaults, LinuxNodes, open_linux
from disco_targets.board import load_board
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from disco_firmware.build import FirmwareImage
    from disco_firmware.bundle import Bundle
    from disco_host.cluster import ClusterNode
    from disco_host.config import RunConfig
    from disco_host.remote.watch import Watch
    from disco_host.run import Progress


SILENCE_SHARE = 0.8


@dataclass(frozen=True)
class Boards:
    """What a run needs of its boards."""

    lines: tuple[NodeLine, ...]
    images: Sequence[FirmwareImage | None] = ()
    """By node, where their firmware was built here."""
    linux: LinuxNodes | None = None
    """Where some are Linux nodes."""
    exchange_deadline_s: float | None = None
    """Of the nodes' waits for each other; None: as any other."""
    relayed: tuple[tuple[int, int], ...] = ()
    """Boards and the Linux nodes that they reach through this host."""
    silence_s: float = SILENCE_SHARE * DEFAULT_EXCHANGE_DEADLINE_S
    """So long Linux nodes may not be heard of: less than they wait for each other, so that both are told."""

    @property
    def watch(self) -> Watch | None:
        """Over the agents of Linux nodes."""
        return self.linux.watch if self.linux is not None else None


@contextlib.contextmanager
def open_boards(
    config: RunConfig, bundle: Bundle, cluster: tuple[ClusterNode, ...] | None, progress: Progress
) -> Iterator[Boards]:
    """The boards of a run, which are left (and ended, if they were started here) with the block.

    Raises:
        DiscoError: A board cannot be started or reached; the message says which and why.
    """
    with contextlib.ExitStack() as stack:
        if config.boards == LINUX:
            progress.step("starting agents")
            cluster = stack.enter_context(start_agents(bundle.manifest.nodes, config.logs))
        if cluster is None:
            yield stack.enter_context(_local(config, bundle, progress))
        elif any(node.is_linux for node in cluster):
            yield stack.enter_context(_with_linux(config, bundle, cluster, progress))
        else:
            lines = stack.enter_context(open_cluster(cluster))
            yield Boards(lines, exchange_deadline_s=config.exchange_deadline_s)


@contextlib.contextmanager
def _with_linux(
    config: RunConfig, bundle: Bundle, cluster: Sequence[ClusterNode], progress: Progress
) -> Iterator[Boards]:
    """Linux nodes, and emulated boards among them: their firmware is built first."""
    defaults = Defaults(config.engine or TFLITE, config.mode)
    deadline = config.exchange_deadline_s or DEFAULT_EXCHANGE_DEADLINE_S
    silence = SILENCE_SHARE * deadline
    emulated = {node.node: load_board(node.board) for node in cluster if not node.is_linux}
    if not emulated:
        progress.step("preparing the Linux nodes")
        with open_linux(bundle, cluster, defaults) as linux:
            yield Boards(linux.lines, linux=linux, exchange_deadline_s=deadline, silence_s=silence)
        return
    _check_mixed(bundle, cluster)
    check_emulators([emulated[node] for node in sorted(emulated)], len(cluster))
    progress.step("building the firmware")
    images = dict(zip(sorted(emulated), build_images(bundle, "board", sorted(emulated)), strict=True))
    paths = {node: image.path for node, image in images.items()}
    progress.step("booting the boards and preparing the Linux nodes")
    with (
        start_emulated_among(emulated, paths, len(cluster), logs=config.logs) as (board_lines, relayed),
        open_linux(bundle, cluster, defaults, relayed) as linux,
    ):
        yield Boards(
            tuple(sorted([*board_lines, *linux.lines], key=lambda line: line.node)),
            [images.get(node.node) for node in cluster],
            linux,
            config.exchange_deadline_s or MIXED_EXCHANGE_DEADLINE_S,
            tuple(relayed),
            silence,
        )


def _check_mixed(bundle: Bundle, cluster: Sequence[ClusterNode]) -> None:
    for node in cluster:
        target = bundle.manifest.targets[node.node]
        if not node.is_linux and node.port != EMULATED_PORT:
            raise DiscoError(
                f'node {node.node}: in one network with Linux nodes a board needs port = "{EMULATED_PORT}", so that '
                "disco-run can carry its bytes"
            )
        if not node.is_linux and node.board != target:
            raise DiscoError(
                f"node {node.node} was exported for {target}, the cluster file says {node.board}: correct it, or "
                "export the model again"
            )


@contextlib.contextmanager
def _local(config: RunConfig, bundle: Bundle, progress: Progress) -> Iterator[Boards]:
    """Boards that are processes of this PC: their firmware is built first."""
    targets = bundle.manifest.targets
    hosted = config.boards == POSIX
    boards = [] if hosted else [load_board(target) for target in targets]
    check_emulators(boards)
    plugin = None
    if config.count == CYCLES_ESTIMATE:
        check_estimate(boards)
        plugin = build_plugin(bundle.path)
    progress.step("building the firmware")
    port = "posix" if hosted else "board"
    images = build_images(bundle, port, range(len(targets)), sanitize=config.sanitize)
    paths = [image.path for image in images]
    progress.step("booting the boards")
    with (
        start_posix(paths, peer_line=config.peer_line, logs=config.logs)
        if hosted
        else start_emulated(boards, paths, peer_line=config.peer_line, logs=config.logs, plugin=plugin)
    ) as lines:
        yield Boards(lines, images, exchange_deadline_s=config.exchange_deadline_s)
