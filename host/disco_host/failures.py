"""What to say when a node fails: which one, what was awaited, for how long, what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from disco_firmware import protocol
from disco_firmware.protocol import Status
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_firmware.manifest import Manifest
    from disco_host.node_end import NodeEnd

_UNITS = frozenset(unit.value for unit in protocol.Unit)
_MEANINGS = {
    Status.ERR_ARGUMENT: "an argument was out of range",
    Status.ERR_TIMEOUT: "a deadline passed",
    Status.ERR_PROTOCOL: "a message made no sense in its state",
    Status.ERR_VERSION: "the peer speaks another protocol version",
    Status.ERR_BUNDLE: "the peer was built from another bundle",
    Status.ERR_PEER: "the peer is not the node that this line should lead to",
    Status.ERR_UNSUPPORTED: "the model names an operator that its runtime lacks",
    Status.ERR_PORT: "its port layer failed",
    Status.ERR_LINE: "the line to its peer broke",
}
_ADVICE = {
    Status.ERR_TIMEOUT: "check that peer and the line to it, or allow more with --deadline",
    Status.ERR_VERSION: "flash all nodes again with disco-flash",
    Status.ERR_BUNDLE: "flash all nodes again with disco-flash",
    Status.ERR_PEER: "check which board is wired to which",
    Status.ERR_LINE: "see what became of that peer",
}


_SUSPECTS = {
    Status.ERR_TIMEOUT: "keeps another one waiting",
    Status.ERR_LINE: "cannot be reached by another one",
}
"""What a peer's report says about the peer that it names."""


class NodeError(DiscoError):
    """A node that is silent, gone, foreign or reports a failure."""

    def __init__(
        self, node: int, message: str, *, reported: bool = False, waited: str | None = None, broke: bool = False
    ) -> None:
        """`node`: whose fault it seems to be.

        `reported`: a node says so itself; `waited`: which node waited for it, and in which exchange; `broke`: a line to
        it broke, so that something has become of it.
        """
        super().__init__(message)
        self.node = node
        self.reported = reported
        self.waited = waited
        self.broke = broke


def silence(end: NodeEnd, waited_s: float) -> NodeError:
    """Nothing (or nothing that can be understood) came in time."""
    name = f"node {end.node} ({end.line.transport.name})"
    awaited = f"{end.awaited} was awaited for {waited_s:.1f} s"
    ended = end.line.process.epitaph(0.0) if end.line.process is not None else None
    if ended is not None:
        return NodeError(end.node, f"{name} is gone while {awaited}: {ended}")
    if end.bytes_received == 0:
        return NodeError(end.node, f"{name} does not answer: {awaited}; {end.line.hint}")
    if end.awaited == "WELCOME":
        return NodeError(
            end.node,
            f"{name} answers garbage: {awaited}, {end.bytes_received} bytes came that are no answer "
            f"in this protocol, the first {end.first_bytes.hex(' ')}; is that the right port, baud "
            "rate and firmware?",
        )
    damaged = end.link.statistics.frames_damaged
    noise = f" ({damaged} damaged frames so far)" if damaged else ""
    return NodeError(
        end.node,
        f"{name} went silent: {awaited}{noise}; {end.line.hint}, or allow more with --deadline",
    )


def lost_line(end: NodeEnd, reason: str) -> NodeError:
    """The line broke: the process behind it ended, or a cable was pulled."""
    name = f"node {end.node} ({end.line.transport.name})"
    awaited = f"while {end.awaited or 'nothing'} was awaited"
    ended = end.line.process.epitaph() if end.line.process is not None else None
    if ended is not None:
        return NodeError(end.node, f"{name} died {awaited}: {ended}")
    return NodeError(end.node, f"the line to {name} broke {awaited}: {reason}; {end.line.hint}", broke=True)


def halted(end: NodeEnd) -> NodeError:
    """Its process was stopped, by a signal or a debugger."""
    name = f"node {end.node} ({end.line.transport.name})"
    return NodeError(
        end.node, f"{name} hangs: its process was halted, while {end.awaited or 'nothing'} was awaited; {end.line.hint}"
    )


def error_report(manifest: Manifest, end: NodeEnd, report: protocol.ErrorReport) -> NodeError:
    """A node's own account of its failure."""
    known = report.status in list(Status)
    status = Status(report.status) if known else None
    meaning = _MEANINGS.get(status, "") if status is not None else ""
    parts = [meaning or f"status {report.status}"]
    program = manifest.programs[end.node]
    if report.op < len(program.ops):
        op = program.ops[report.op]
        parts.append(f"in op {report.op} ({op.kind} {op.name})")
    waited = None
    if report.exchange < len(manifest.exchanges):
        tensor = manifest.exchanges[report.exchange].tensor
        parts.append(f"in exchange {report.exchange} of {tensor}")
        waited = (
            f"node {end.node} waited for it in exchange {report.exchange} of {tensor} "
            f"({report.missing_bytes} bytes missing)"
        )
    if report.peer != protocol.NO_PEER:
        parts.append(f"with node {report.peer}")
    if report.missing_bytes:
        parts.append(f"{report.missing_bytes} bytes missing")
    if report.waited_ms:
        parts.append(f"after waiting {report.waited_ms / 1000:.1f} s")
    advice = _ADVICE.get(status) if status is not None else None
    fault = report.peer if report.peer < manifest.nodes else end.node
    suspect = _SUSPECTS.get(status) if status is not None and fault != end.node else None
    return NodeError(
        fault,
        (f"node {fault} {suspect}: " if suspect else "")
        + f"node {end.node} ({end.line.transport.name}) reports, while {end.awaited} was awaited: "
        f"{', '.join(parts)}; {advice or end.line.hint}",
        reported=True,
        waited=waited,
        broke=status == Status.ERR_LINE,
    )


def greeting_problem(manifest: Manifest, end: NodeEnd, welcome: protocol.Welcome) -> str | None:
    """What is wrong with a node at its place in the cluster; None when it fits."""
    line = end.line
    program = manifest.programs[line.node]
    checks = [
        (
            welcome.bundle_id.hex() == manifest.bundle_id,
            f"runs bundle {welcome.bundle_id.hex()}, this one is {manifest.bundle_id}: flash it with disco-flash",
        ),
        (
            welcome.node == line.node,
            f"answers as node {welcome.node}: swap the ports, or flash it as node {line.node}",
        ),
        (
            welcome.node_count == manifest.nodes,
            f"was built for {welcome.node_count} nodes, the bundle has {manifest.nodes}: flash it with disco-flash",
        ),
        (
            welcome.model_abi == protocol.MODEL_ABI,
            f"has model ABI {welcome.model_abi}, this program knows {protocol.MODEL_ABI}: flash it with disco-flash",
        ),
        (
            welcome.board == line.board,
            f"says it is board {welcome.board!r}, expected {line.board!r} (node {line.node} was "
            f"exported for {program.target}): correct the cluster file or flash the right board",
        ),
        (
            welcome.endianness == protocol.LITTLE_ENDIAN,
            "is not little-endian, which no target of this version is: flash it with disco-flash",
        ),
        (
            welcome.max_payload >= end.link.max_payload,
            f"takes payloads of {welcome.max_payload} bytes only, {end.link.max_payload} are sent: "
            "flash it with disco-flash",
        ),
        (
            welcome.unit in _UNITS,
            f"counts in unit {welcome.unit}, which is unknown: flash it with disco-flash",
        ),
        (
            welcome.resolution_ticks > 0,
            "does not count instructions: start QEMU with -icount shift=6",
        ),
        (
            welcome.link_count >= manifest.nodes,
            f"has {welcome.link_count} lines, {manifest.nodes} are needed (the host's and one per "
            "peer): use another board",
        ),
    ]
    return next((problem for good, problem in checks if not good), None)
