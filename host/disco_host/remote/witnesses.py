"""What the agents and the other nodes say when a Linux node fails: who it was, and which exchange waited for it."""

from __future__ import annotations

import selectors
import time
from typing import TYPE_CHECKING

from disco_firmware import protocol
from disco_firmware.protocol import MessageError, Opcode
from disco_host.failures import NodeError, error_report
from disco_host.transport import LineClosedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disco_firmware.manifest import Manifest
    from disco_host.node_end import NodeEnd
    from disco_host.remote.watch import Fault, Watch

WITNESS_S = 0.3
"""So long others are heard after a failure; less when one has said which exchange waited."""
LATE_S = 0.4
"""What comes to that after a silence, beside a quarter of it: others notice it when their own waits end."""
AGENT_S = 0.1
"""So long after what a node reported its agent's end may be seen."""
BROKEN_S = 1.0
"""So long after the end of a line the agent at its other end may take, on a busy machine, to say what became of its
engine: it does so at once, or there is nothing to say."""
LOOK_S = 0.02


def check_faults(watch: Watch, ends: Sequence[NodeEnd]) -> None:
    """Raises NodeError for the first agent that failed."""
    for node, fault in watch.faults().items():
        raise NodeError(node, f"{fault.what}{_awaited(ends, node)}")


def with_witnesses(manifest: Manifest, error: NodeError, watch: Watch, ends: Sequence[NodeEnd]) -> NodeError:
    """The same failure, with what the agents know of it and the exchange that waited for the node."""
    start = time.monotonic()
    waited = [error.waited] if error.waited is not None else []
    faults = watch.faults()
    with selectors.DefaultSelector() as selector:
        for end in ends:
            selector.register(end.line.transport, selectors.EVENT_READ, end)
        while not _complete(error, watch, faults, waited, time.monotonic() - start):
            for key, _ in selector.select(LOOK_S):
                report = _report(manifest, key.data)
                if isinstance(report, NodeError) and report.waited is not None:
                    waited.append(report.waited)
                if report is not None:
                    selector.unregister(key.fileobj)
            faults = watch.faults()
    return _combined(error, faults, waited or _waiting(manifest, watch, faults), ends)


def _complete(error: NodeError, watch: Watch, faults: dict[int, Fault], waited: list[str], heard_s: float) -> bool:
    """Whether nothing more is to be expected. Where no agent fails, there is nothing behind what a node reported."""
    if any(fault.silent for fault in faults.values()):
        limit = watch.silence_s / 4 + LATE_S
    elif error.broke and not faults:
        limit = BROKEN_S
    else:
        limit = WITNESS_S if faults or not waited else AGENT_S
    return heard_s >= limit or bool(faults and waited)


def _waiting(manifest: Manifest, watch: Watch, faults: dict[int, Fault]) -> list[str]:
    """What the heartbeats of the others say."""
    return [
        f"node {node} has waited for it in exchange {beat.exchange} of {manifest.exchanges[beat.exchange].tensor}"
        for node, beat in sorted(watch.beats().items())
        if beat.peer in faults and beat.exchange is not None and 0 <= beat.exchange < len(manifest.exchanges)
    ]


def _combined(error: NodeError, faults: dict[int, Fault], waited: list[str], ends: Sequence[NodeEnd]) -> NodeError:
    node = error.node if error.node in faults or not faults else min(faults)
    parts = [f"{faults[node].what}{_awaited(ends, node)}"] if node in faults else []
    if error.node in faults:
        parts += waited
    else:
        parts += [str(error), *(text for text in waited if text != error.waited)]
    if not waited:
        parts.append("no exchange was seen to wait for it")
    return NodeError(node, "; ".join(parts), reported=error.reported, waited=waited[0] if waited else None)


def _awaited(ends: Sequence[NodeEnd], node: int) -> str:
    return next((f", while {end.awaited} was awaited" for end in ends if end.node == node and end.awaited), "")


def _report(manifest: Manifest, end: NodeEnd) -> NodeError | LineClosedError | None:
    """A node's ERROR, or that its line has closed; None while nothing of that has come."""
    try:
        for message in end.read(time.monotonic()):
            if message.opcode == Opcode.ERROR:
                return error_report(manifest, end, protocol.ErrorReport.unpack(message.payload))
    except LineClosedError as error:
        return error
    except (MessageError, ValueError) as error:
        return LineClosedError(str(error))
    return None
