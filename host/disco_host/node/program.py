"""A node's program as TFLite runs it: the stages' interpreters, and the copies between them and the exchanges."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from disco_firmware.reference import XNNPACK, TfliteModel
from disco_host.node.channels import ChannelCopy
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_firmware.bundle import Bundle
    from disco_firmware.manifest import Manifest, NodeProgram, NodeSend, NodeStage

Int8Array = npt.NDArray[np.int8]


@dataclass(frozen=True)
class NodeSlice:
    """What a node needs of a bundle, and how it is to compute."""

    manifest: Manifest
    node: int
    stages: tuple[bytes, ...]
    """The .tflite files that its program lists, in that order."""
    mode: str = XNNPACK
    """One of disco_firmware.reference.MODES."""
    threads: int = 1

    @property
    def program(self) -> NodeProgram:
        """The node's part of the manifest."""
        return self.manifest.programs[self.node]


def slice_of(bundle: Bundle, node: int, mode: str = XNNPACK, threads: int = 1) -> NodeSlice:
    """The slice of one node of a bundle on this machine."""
    files = (bundle.path / stage.file for stage in bundle.manifest.programs[node].stages)
    return NodeSlice(bundle.manifest, node, tuple(file.read_bytes() for file in files), mode, threads)


def sends_in_order(program: NodeProgram) -> list[NodeSend]:
    """A node's sends in the order in which its stages compute what is sent: what their receivers rely on."""
    return [send for stage in program.stages for name in stage.outputs for send in program.sends if send.tensor == name]


class Stage:
    """One stage's interpreter, plain and, when it is asked for, with the output of every op."""

    def __init__(self, slice_: NodeSlice, place: int) -> None:
        """Stage `place` of the node's program; DiscoError when TFLite does not take its file."""
        self.info: NodeStage = slice_.program.stages[place]
        self._slice = slice_
        self._place = place
        self._plain = self.model = self._load(observe=False)
        self._observed: TfliteModel | None = None
        ops = slice_.program.ops
        self.main_op = max(self.info.ops, key=lambda op: (ops[op].macs_executed, op))
        """The op with most MACs, the last of several."""
        self.exchanges = tuple(dict.fromkeys(part.exchange for x in self.info.inputs for part in x.halo))
        """Those that it awaits."""

    def observe(self, on: bool) -> None:
        """Whether the next run keeps the output of every op."""
        if on and self._observed is None:
            self._observed = self._load(observe=True)
        self.model = self._observed if on and self._observed else self._plain

    def checksum(self, buffer: str) -> int:
        """CRC-32 of what an op wrote in the last run; needs `observe`."""
        return zlib.crc32(np.ascontiguousarray(self.model.tensor(self.model.tensor_index(buffer))).tobytes())

    def _load(self, *, observe: bool) -> TfliteModel:
        content, name = self._slice.stages[self._place], f"stage {self._place} of node {self._slice.node}"
        return TfliteModel(content, name, mode=self._slice.mode, threads=self._slice.threads, observe=observe)


@dataclass(frozen=True)
class Gather:
    """What one send takes of a stage's output."""

    op: int
    """That computes it."""
    buffer: str
    place: int
    """In the program's `sends`."""
    exchange: int
    receiver: int
    copy: ChannelCopy
    stream: Int8Array
    """[pixels, channels]: what goes out."""


class StagedProgram:
    """All stages of a node and the memory of its exchanges."""

    def __init__(self, slice_: NodeSlice) -> None:
        """Loads everything.

        Raises:
            DiscoError: The files and the manifest do not fit each other.
        """
        self.slice = slice_
        self.program = slice_.program
        if len(slice_.stages) != len(self.program.stages):
            raise DiscoError(
                f"node {slice_.node} has {len(slice_.stages)} stages, its bundle lists {len(self.program.stages)}: "
                "export the model again"
            )
        try:
            self._build()
        except (LookupError, ValueError) as error:  # whatever a manifest with wrong numbers or names leads to
            raise DiscoError(
                f"the stages of node {slice_.node} do not fit its bundle ({error}): export the model again"
            ) from error

    def _build(self) -> None:
        manifest = self.slice.manifest
        self.stages = tuple(Stage(self.slice, place) for place in range(len(self.program.stages)))
        self.input = np.zeros((self._pixels(manifest.input), manifest.tensor(manifest.input).shape[-1]), np.int8)
        self._sources = {name: (stage, i) for stage in self.stages for i, name in enumerate(stage.info.outputs)}
        self.received = {
            (receive.exchange, receive.sender): self._stream(receive.exchange, receive.sender, self.slice.node)
            for receive in self.program.receives
        }
        self.gathers = tuple(tuple(self._gathers(stage)) for stage in self.stages)
        """By stage."""

    def _pixels(self, tensor: str) -> int:
        return prod(self.slice.manifest.tensor(tensor).shape[:-1])

    def _channels(self, exchange: int, sender: int, receiver: int) -> tuple[int, ...]:
        routes = self.slice.manifest.exchanges[exchange].routes
        return next(route.channels for route in routes if (route.sender, route.receiver) == (sender, receiver))

    def _stream(self, exchange: int, sender: int, receiver: int) -> Int8Array:
        pixels = self._pixels(self.slice.manifest.exchanges[exchange].tensor)
        return np.zeros((pixels, len(self._channels(exchange, sender, receiver))), np.int8)

    def _gathers(self, stage: Stage) -> list[Gather]:
        gathers = []
        for buffer in stage.info.outputs:
            op = stage.info.ops[stage.info.buffers.index(buffer)]
            places = {channel: place for place, channel in enumerate(self.program.ops[op].channels)}
            for place, send in enumerate(self.program.sends):
                if send.tensor == buffer:
                    channels = self._channels(send.exchange, self.slice.node, send.receiver)
                    copy = ChannelCopy(self._pixels(buffer), [places[channel] for channel in channels])
                    stream = self._stream(send.exchange, self.slice.node, send.receiver)
                    gathers.append(Gather(op, buffer, place, send.exchange, send.receiver, copy, stream))
        return gathers

    # ---- in a run. TFLite refuses to compute while anybody holds a view of its tensors: none leaves these methods.

    def computed_channels(self, buffer: str) -> Int8Array:
        """What the node has computed (or was given) of a buffer: [pixels, channels], not to be kept."""
        if buffer == self.slice.manifest.input:
            return self.input
        stage, place = self._sources[buffer]
        view = stage.model.output_view(place)
        return view.reshape(-1, view.shape[-1])

    def scatter_computed(self, stage: Stage) -> None:
        """Copies what the node has computed into the inputs of a stage."""
        for place, info in enumerate(stage.info.inputs):
            if info.computed:
                view = stage.model.input_view(place)
                view.reshape(-1, view.shape[-1])[:, : info.computed] = self.computed_channels(info.buffer)[
                    :, : info.computed
                ]

    def scatter_halo(self, stage: Stage) -> None:
        """Copies what has been received into the inputs of a stage."""
        for place, info in enumerate(stage.info.inputs):
            first = info.computed
            for part in info.halo:
                view = stage.model.input_view(place)
                stream = self.received[part.exchange, part.sender]
                view.reshape(-1, view.shape[-1])[:, first : first + part.channels] = stream[:, : part.channels]
                first += part.channels

    def gather(self, gather: Gather) -> None:
        """Copies what is sent out of a stage's output."""
        gather.copy(self.computed_channels(gather.buffer), gather.stream)
