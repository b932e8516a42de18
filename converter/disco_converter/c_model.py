"""Lowers one node's slice to the context of the C templates (disco_model.c, disco_model.h, disco_channels.h)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from disco_converter import accounting
from disco_converter.c_kernels import CArray, CFunction, CParameters, KernelWriter
from disco_converter.kernel_choice import Kernel
from disco_converter.lowering import LoweredOp
from disco_converter.memory import MemoryPlan
from disco_converter.node_kernels import NodeKernels
from disco_converter.partition import NodeSlice, Partition
from disco_converter.streaming import last_op_of_send, row_steps, step_count
from disco_firmware.c_literals import array_body, comment, identifier, initialiser
from disco_firmware.protocol import MODEL_ABI, PROTOCOL_VERSION


@dataclass(frozen=True)
class Provenance:
    """Front matter: what made the file, from what."""

    tool_version: str
    model_name: str
    model_sha256: str
    bundle_id: str


@dataclass(frozen=True)
class CTensor:
    """One entry of `tensors`."""

    comment: str
    initialiser: str


@dataclass(frozen=True)
class COp:
    """One entry of `ops` and its operand list."""

    comment: str
    operands_name: str
    operands: str
    initialiser: str


@dataclass(frozen=True)
class CRoute:
    """One channel list of disco_channels.h."""

    exchange: int
    comment: str
    name: str
    macro: str
    count: int
    body: str


@dataclass(frozen=True)
class ModelSource:
    """Everything that the three templates of one node show."""

    tool_version: str
    model_name: str
    model_sha256: str
    bundle_id: str
    target: str
    abi: int
    protocol_version: int
    node: int
    node_count: int
    bundle_id_bytes: str
    arrays: tuple[CArray, ...]
    parameters: tuple[CParameters, ...]
    headers: tuple[str, ...]
    functions: tuple[CFunction, ...]
    tensors: tuple[CTensor, ...]
    ops: tuple[COp, ...]
    sends: tuple[str, ...]
    receives: tuple[str, ...]
    inputs: str
    outputs: str
    output_count: int
    exchange_count: int
    step_count: int
    arena_bytes: int
    routes: tuple[CRoute, ...]
    bytes_sent: int
    bytes_received: int
    code_bytes: int
    """Estimate of the specialised kernels' code."""

    @property
    def constant_bytes(self) -> int:
        """Flash taken by the generated constants and kernels (structure sizes as on a 32-bit board)."""
        arrays = sum(array.bytes for array in self.arrays)
        structures = 20 * len(self.tensors) + 28 * len(self.ops) + 16 * len(self.sends) + 12 * len(self.receives)
        return arrays + structures + 64 * len(self.parameters) + self.code_bytes


def model_source(
    partition: Partition,
    slice_: NodeSlice,
    program: NodeKernels,
    plan: MemoryPlan,
    target: str,
    provenance: Provenance,
    *,
    records_steps: bool,
) -> ModelSource:
    """The template context of one node; `records_steps`: which records what each step of rows computes."""
    return _Lowering(partition, slice_, program, plan).source(target, provenance, records_steps)


@dataclass
class _Links:
    """The sends and receives of a node, in program order, and where each tensor's begin."""

    sends: list[str] = field(default_factory=list)
    receives: list[str] = field(default_factory=list)
    of_tensor: dict[str, dict[str, int]] = field(default_factory=dict)


class _Lowering:
    def __init__(self, partition: Partition, slice_: NodeSlice, program: NodeKernels, plan: MemoryPlan) -> None:
        self._partition, self._slice, self._program, self._plan = partition, slice_, program, plan
        self._names = list(plan.placements)
        self._kernels = KernelWriter()
        self._arrays: list[CArray] = []
        self._steps = dict(zip((op.name for op in slice_.ops), row_steps(partition, slice_, program), strict=True))

    def source(self, target: str, provenance: Provenance, records_steps: bool) -> ModelSource:
        links = self._links()
        joined = self._program.joined
        ops = tuple(self._op(op, kernel, place in joined) for place, (op, kernel) in enumerate(self._program))
        node = self._slice.node
        sent = accounting.bytes_between(self._partition)
        return ModelSource(
            tool_version=provenance.tool_version,
            model_name=comment(provenance.model_name),
            model_sha256=provenance.model_sha256,
            bundle_id=provenance.bundle_id,
            target=target,
            abi=MODEL_ABI,
            protocol_version=PROTOCOL_VERSION,
            node=node,
            node_count=self._partition.nodes,
            bundle_id_bytes=", ".join(f"0x{b:02x}" for b in bytes.fromhex(provenance.bundle_id)),
            arrays=tuple(self._kernels.arrays + self._arrays),
            parameters=tuple(self._kernels.parameters),
            headers=tuple(sorted(self._kernels.headers)),
            functions=tuple(self._kernels.functions),
            tensors=tuple(self._tensor(name, links.of_tensor.get(name, {})) for name in self._names),
            ops=ops,
            sends=tuple(links.sends),
            receives=tuple(links.receives),
            inputs=str(self._index(self._partition.graph.input)),
            outputs=", ".join(self._output(name) for name in self._partition.graph.outputs),
            output_count=len(self._partition.graph.outputs),
            exchange_count=len(self._partition.exchanges),
            step_count=step_count(self._program, list(self._steps.values())) if records_steps else 0,
            arena_bytes=max(self._plan.arena_bytes, 1),
            routes=tuple(self._routes()),
            bytes_sent=sum(size for (sender, _), size in sent.items() if sender == node),
            bytes_received=sum(size for (_, receiver), size in sent.items() if receiver == node),
            code_bytes=sum(kernel.code_bytes for kernel in self._program.kernels),
        )

    def _index(self, buffer: str) -> int:
        return self._names.index(buffer)

    def _output(self, tensor: str) -> str:
        return str(self._index(tensor)) if self._partition.output_channels(tensor, self._slice.node) else "DISCO_NONE"

    def _tensor(self, name: str, links: Mapping[str, int]) -> CTensor:
        buffer = self._slice.buffers[name]
        tensor = self._partition.graph.tensors[buffer.tensor]
        height, width = tensor.plane
        text = f"{name}, scale {tensor.scale:.9g}, zero point {tensor.zero_point}, channels {_ranges(buffer.computed)}"
        if buffer.halo:
            text += "; halo " + ", ".join(f"{_ranges(channels)} of node {sender}" for sender, channels in buffer.halo)
        fields: dict[str, object] = {
            "arena_offset": self._plan.placements[name].offset,
            "height": height,
            "width": width,
            "channels": len(buffer.computed),
            "stride": buffer.stride,
            **links,
        }
        return CTensor(comment(text), initialiser(fields))

    def _op(self, lowered: LoweredOp, chosen: Kernel, joined: bool) -> COp:
        op = lowered.op
        offsets = tuple(self._plan.placements[o.buffer].offset for o in op.operands)
        scratch = self._plan.scratch.get(op.name)
        kernel = self._kernels.write(
            lowered,
            chosen,
            (*offsets, self._plan.placements[op.output].offset),
            None if scratch is None else scratch.offset,
        )
        name = f"{identifier(op.name)}_operands"
        operands = ", ".join(f"{{{self._index(o.buffer)}, {len(o.channels)}}}" for o in op.operands)
        output = self._partition.graph.tensors[op.source.output]
        computed = len(self._slice.buffers[op.output].computed)
        text = f"{op.name}: {op.kind} -> {op.output} {list(output.shape[:-1])} x {computed} channels"
        fields: dict[str, object] = {
            "kind": kernel.kind,
            "inputs": name,
            "input_count": len(op.operands),
            "output": self._index(op.output),
            "params": kernel.params,
            "run": kernel.run,
            "row_step": self._steps[op.name],
            "joined": int(joined),
        }
        return COp(comment(text), name, operands, initialiser(fields))

    def _links(self) -> _Links:
        links = _Links()
        node = self._slice.node
        for exchange in self._partition.exchanges:
            sends = [(receiver, c) for (sender, receiver), c in sorted(exchange.routes.items()) if sender == node]
            buffer = self._slice.buffers.get(exchange.tensor)
            halo = buffer.halo if buffer is not None else ()
            first = {"first_send": len(links.sends), "send_count": len(sends)}
            first |= {"first_receive": len(links.receives), "receive_count": len(halo)}
            links.of_tensor[exchange.tensor] = first
            links.sends += [
                self._send(exchange.index, exchange.tensor, receiver, channels) for receiver, channels in sends
            ]
            links.receives += self._receives(
                exchange.index, exchange.tensor, self._plan.opened.get(exchange.tensor, 0), halo
            )
        return links

    def _send(self, exchange: int, tensor: str, receiver: int, channels: Sequence[int]) -> str:
        computed = self._slice.buffers[tensor].computed
        positions = [computed.index(channel) for channel in channels]
        name = f"sent_{exchange}_to_{receiver}"
        text = f"Positions sent to node {receiver} in exchange {exchange}"
        self._arrays.append(
            CArray(f"uint16_t {name}[{len(positions)}]", text, array_body(positions), 2 * len(positions))
        )
        return initialiser(
            {
                "exchange": exchange,
                "tensor": self._index(tensor),
                "last_op": last_op_of_send(self._plan, tensor),
                "peer": receiver,
                "channel_count": len(channels),
                "channels": name,
            }
        )

    def _receives(
        self, exchange: int, tensor: str, open_op: int, halo: Sequence[tuple[int, Sequence[int]]]
    ) -> list[str]:
        result = []
        position = len(self._slice.buffers[tensor].computed) if halo else 0
        for sender, channels in halo:
            fields = {
                "exchange": exchange,
                "tensor": self._index(tensor),
                "open_op": open_op,
                "peer": sender,
                "channel_count": len(channels),
                "first_channel": position,
            }
            result.append(initialiser(fields))
            position += len(channels)
        return result

    def _routes(self) -> list[CRoute]:
        node = self._slice.node
        routes = []
        for exchange in self._partition.exchanges:
            for (sender, receiver), channels in sorted(exchange.routes.items()):
                if node in (sender, receiver):
                    direction, other = ("to", receiver) if sender == node else ("from", sender)
                    name = f"disco_exchange_{exchange.index}_{direction}_{other}"
                    text = f"{direction} node {other}, tensor {exchange.tensor}"
                    routes.append(
                        CRoute(exchange.index, comment(text), name, name.upper(), len(channels), array_body(channels))
                    )
        return routes


def _ranges(values: Sequence[int]) -> str:
    """0-7, 9: consecutive numbers drawn together."""
    parts: list[list[int]] = []
    for value in values:
        if parts and value == parts[-1][1] + 1:
            parts[-1][1] = value
        else:
            parts.append([value, value])
    text = [str(a) if a == b else f"{a}-{b}" for a, b in parts]
    return ", ".join(text[:12]) + (f", ... ({len(values)} in all)" if len(text) > 12 else "") if text else "none"
