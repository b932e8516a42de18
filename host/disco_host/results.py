"""What a run gives back: plain values that the report, the JSON file and the trace are made from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from disco_firmware.reference import REFERENCE

if TYPE_CHECKING:
    from disco_host.remote.clocks import NodeClock
    from disco_host.remote.probes import ProbedLink
    from disco_host.stats import Summary

RESULT_SCHEMA = 3


@dataclass(frozen=True)
class OpResult:
    """One op of one node over all measured inferences; counts in the node's unit.

    `compute`, `wait` and `send` are None where TFLite computes the op with others as one stage: they are not measured
    one by one, and `NodeResult.stages` has the stage's.
    """

    name: str
    kind: str
    macs_dense: int
    """Multiplications of the op's share on this node if no sub-row were pruned."""
    macs_executed: int
    compute: Summary | None
    """Inside the kernels, interrupts taken out."""
    wait: Summary | None
    """Blocked on received rows or on a full line."""
    send: Summary | None
    """Packing, unpacking and looks at the links: protocol work, also that of frames that came during a wait."""
    bytes_sent: int
    """Payload bytes of the op's output that leave the node in one inference."""


@dataclass(frozen=True)
class StageResult:
    """One stage of a node that runs stages (TFLite), over all measured inferences; counts in the node's unit."""

    ops: tuple[str, ...]
    prepare: Summary
    """Copying what the node computed into the stage's inputs."""
    wait: Summary
    """For the halo."""
    scatter: Summary
    """Copying the halo into the inputs."""
    compute: Summary
    gather: Summary
    """Copying what is sent out of the outputs."""
    send: Summary
    """Handing it to the kernel."""


@dataclass(frozen=True)
class Memory:
    """What a node takes of its board, in bytes."""

    flash_bytes: int
    """As linked."""
    ram_bytes: int
    """As linked, and the stack that was in use."""
    stack_used_bytes: int
    """The most that was in use since the node started, interrupt handlers included: measured, not bounded."""
    stack_bytes: int
    """Room that is kept for the stack. Where all of it was in use, more may have been."""


@dataclass(frozen=True)
class NodeResult:
    """One node over all measured inferences; counts in `unit`."""

    node: int
    board: str
    core: str
    unit: str
    """"instructions", "cycles-estimate", "cycles" or "ns"."""
    ticks_per_second: int
    """Rate of the node's counter; 0 where its unit is no time."""
    resolution_ticks: int
    total: Summary
    """From the start of a run to its end on the node."""
    compute: Summary
    wait: Summary
    send: Summary
    ops: tuple[OpResult, ...]
    memory: Memory | None
    """None where the run did not build the node's firmware, or its stack is not bounded (a process)."""
    stages: tuple[StageResult, ...] = ()
    """Empty where the node runs op by op."""
    steps: tuple[float, ...] = ()
    """Medians of what each step computed, in the order of manifest.steps_of. Empty where they are not recorded."""


@dataclass(frozen=True)
class LinkResult:
    """One direction between two nodes, over all measured inferences."""

    sender: int
    receiver: int
    bytes: int
    """Payload."""
    frames: int
    """First transmissions."""
    retransmissions: int
    """Frames sent again. 0 where the sender has no channels for the receiver: only routes report."""


@dataclass(frozen=True)
class Difference:
    """The first place where the boards and the golden disagree."""

    inference: int
    """1-based, warm-up included."""
    input_index: int
    """Which of the inputs it was, 0-based."""
    output: int
    """Index of the model output; -1 where only tensors inside of the network differ."""
    node: int
    """Who sent the value."""
    position: tuple[int, ...]
    """Index into the output tensor."""
    expected: int
    got: int
    differing: int
    """How many values of this output differ in this inference."""
    values: int
    """How many values the node sent of it."""
    op: str | None
    """The first op that computed something else (`--check tensors` only)."""
    op_node: int | None
    """On which node."""


@dataclass(frozen=True)
class RunResult:
    """The outcome of one `disco-run`."""

    bundle_id: str
    model: str
    boards: str
    """"emulated", "posix", "linux" or "cluster"."""
    nodes: tuple[NodeResult, ...]
    links: tuple[LinkResult, ...]
    host_round_trip_ms: Summary
    """From the first input byte sent to the last node's DONE, on the host's clock; measured ones only."""
    inferences: int
    """Measured ones."""
    warmup: int
    """Run and checked before the measured ones."""
    mismatches: int
    """Inferences, warm-up included, of which any checked value differed."""
    bit_exact: bool
    checked: str
    """"outputs" or "tensors"."""
    first_difference: Difference | None
    accuracy: float | None
    """Share of the inputs whose largest output is the label; None without labels."""
    clocks: tuple[NodeClock, ...] = ()
    """Of Linux nodes, to the host's."""
    probed: tuple[ProbedLink, ...] = ()
    """The links between Linux nodes, where that was asked for."""
    relayed: tuple[tuple[int, int], ...] = ()
    """Pairs of nodes whose bytes went through the host, which is part of every latency."""
    kernels: str = REFERENCE
    """Of TFLite, in which the golden was computed: "reference" or "xnnpack"."""

    def to_json(self) -> dict[str, Any]:
        """Plain lists, dicts, strings and numbers; the links' ends are called `from` and `to`."""
        data: dict[str, Any] = {"schema": RESULT_SCHEMA, **asdict(self)}
        data["links"] = [with_ends(link) for link in data["links"]]
        return data


def with_ends(link: dict[str, Any]) -> dict[str, Any]:
    """A link's values with `sender` and `receiver` called `from` and `to`."""
    return {{"sender": "from", "receiver": "to"}.get(key, key): value for key, value in link.items()}
