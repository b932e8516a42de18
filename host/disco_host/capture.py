"""What one inference left behind: each node's output channels, op records and route records."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from disco_firmware.manifest import steps_of
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_firmware.manifest import Manifest, NodeProgram
    from disco_firmware.protocol import (
        Done,
        OpRecord,
        OpRecords,
        OutputPart,
        RouteRecord,
        RouteRecords,
        StageRecord,
        StageRecords,
        StepRecord,
        StepRecords,
    )


@dataclass(frozen=True)
class NodeCapture:
    """One node's account of one inference; ticks in the node's unit."""

    node: int
    start: int
    end: int
    outputs: tuple[bytes, ...]
    """Own channels [h][w][own] of each model output, b"" where the node sends nothing of it."""
    ops: tuple[OpRecord, ...]
    routes: tuple[RouteRecord, ...]
    stack_used_bytes: int = 0
    """The most of its stack that was in use since the node started; 0 where unknown."""
    stages: tuple[StageRecord, ...] = ()
    """By stage of its program, where the node runs stages."""
    steps: tuple[int, ...] = ()
    """What each step computed, in the order of manifest.steps_of, where the node records it."""


@dataclass(frozen=True)
class InferenceCapture:
    """One inference on all nodes."""

    inference: int
    """1-based, warm-up included."""
    input_index: int
    round_trip_s: float
    """From the first input byte sent to the last node's DONE, on the host's clock."""
    nodes: tuple[NodeCapture, ...]


@dataclass
class Collector:
    """Puts one node's messages of one inference together and refuses what does not fit.

    Raises (all methods):
        DiscoError: A message belongs to another inference, repeats, skips or exceeds its place.
    """

    manifest: Manifest
    program: NodeProgram
    inference: int
    _outputs: list[bytearray] = field(default_factory=list)
    _ops: list[OpRecord] = field(default_factory=list)
    _routes: list[RouteRecord] = field(default_factory=list)
    _stages: list[StageRecord] = field(default_factory=list)
    _steps: list[StepRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._outputs = [bytearray() for _ in self.program.outputs]

    def output(self, message: OutputPart) -> None:
        """Takes a part of one output."""
        if message.index >= len(self._outputs):
            raise self._error(f"output {message.index}, the model has {len(self._outputs)}")
        stream = self._outputs[message.index]
        expected = self._output_bytes(message.index)
        end = message.offset + len(message.data)
        if message.offset != len(stream) or end > expected:
            raise self._error(
                f"bytes {message.offset} to {end} of output {message.index} after {len(stream)} of {expected}"
            )
        stream += message.data

    def ops(self, message: OpRecords) -> None:
        """Takes op records."""
        self._keep("op records", message, self._ops, len(self.program.ops))

    def routes(self, message: RouteRecords) -> None:
        """Takes route records."""
        self._keep("route records", message, self._routes, len(self.program.sends))

    def stages(self, message: StageRecords) -> None:
        """Takes stage records."""
        self._keep("stage records", message, self._stages, len(self.program.stages))

    def steps(self, message: StepRecords) -> None:
        """Takes step records."""
        self._keep("step records", message, self._steps, len(steps_of(self.program.ops)))

    def finish(self, message: Done) -> NodeCapture:
        """Takes DONE, the last message; everything must be there by then."""
        self._in_step("DONE", message.inference, 0, 0)
        for output, stream in enumerate(self._outputs):
            self._complete(f"bytes of output {output}", len(stream), self._output_bytes(output))
        self._complete("op records", len(self._ops), len(self.program.ops))
        self._complete("route records", len(self._routes), len(self.program.sends))
        if self._stages:
            self._complete("stage records", len(self._stages), len(self.program.stages))
        if self._steps:
            self._complete("step records", len(self._steps), len(steps_of(self.program.ops)))
        for send, route in zip(self.program.sends, self._routes, strict=True):
            what = f"bytes to node {send.receiver} in exchange {send.exchange}"
            self._complete(what, route.payload_bytes, send.bytes)
        return NodeCapture(
            self.program.node,
            message.start,
            message.end,
            tuple(bytes(stream) for stream in self._outputs),
            tuple(self._ops),
            tuple(self._routes),
            message.stack_used_bytes,
            tuple(self._stages),
            tuple(record.compute for record in self._steps),
        )

    def _output_bytes(self, output: int) -> int:
        share = self.program.outputs[output]
        shape = self.manifest.tensor(share.tensor).shape
        return math.prod(shape[1:-1]) * len(share.channels)

    def _keep(self, what: str, message: Any, kept: list[Any], most: int) -> None:
        """The records of a message after those before it, no more than the run has: a node cannot fill our memory."""
        self._in_step(what, message.inference, message.first, len(kept))
        if len(kept) + len(message.records) > most:
            raise self._error(f"{len(kept) + len(message.records)} {what}, a run has {most}")
        kept += message.records

    def _in_step(self, what: str, inference: int, first: int, have: int) -> None:
        if inference != self.inference:
            raise self._error(f"{what} of inference {inference}")
        if first != have:
            raise self._error(f"{what} from {first} on after {have} of them")

    def _complete(self, what: str, got: int, expected: int) -> None:
        if got != expected:
            raise self._error(f"DONE with {got} {what} instead of {expected}")

    def _error(self, what: str) -> DiscoError:
        return DiscoError(
            f"node {self.program.node} sent {what} in inference {self.inference}: its firmware does "
            "not match the bundle; build and flash it again with disco-flash"
        )
