"""Describes a partition as the manifest of a bundle."""

from __future__ import annotations

import hashlib
from importlib.metadata import version

from disco_converter import accounting, streaming
from disco_converter.firmware import NodeFirmware, Origin
from disco_converter.memory import buffer_bytes
from disco_converter.partition import NodeSlice, Operand, Partition
from disco_converter.stages import Stage, stage_file, stages_of
from disco_firmware import manifest as m
from disco_firmware.c_literals import comment


def manifest_of(cut: Partition, nodes: tuple[NodeFirmware, ...], origin: Origin) -> m.Manifest:
    """The manifest of a bundle that holds these slices."""
    return m.Manifest(
        schema=m.SCHEMA_VERSION,
        tool_version=version("disco-edge"),
        bundle_id=nodes[0].provenance.bundle_id,
        model=m.ModelInfo(comment(origin.name), origin.sha256, hashlib.sha256(origin.content).hexdigest()),
        nodes=cut.nodes,
        targets=tuple(node.board.name for node in nodes),
        input=cut.graph.input,
        outputs=cut.graph.outputs,
        tensors=tuple(_tensor(cut, name) for name in cut.graph.tensors),
        ops=tuple(_op(cut, index) for index in range(len(cut.graph.ops))),
        exchanges=tuple(_exchange(cut, index) for index in range(len(cut.exchanges))),
        programs=tuple(program_of(cut, node) for node in nodes),
    )


def _tensor(cut: Partition, name: str) -> m.TensorInfo:
    tensor, owners = cut.graph.tensors[name], cut.ownership[name].owners
    return m.TensorInfo(
        name,
        tensor.index,
        tensor.shape,
        tensor.scale,
        tensor.zero_point,
        m.REPLICATED if owners is None else tuple(owners.tolist()),
        tuple(value for _, value in sorted(cut.graph.constants.get(name, {}).items())),
    )


def _op(cut: Partition, index: int) -> m.OpInfo:
    op = cut.graph.ops[index]
    rows = accounting.sub_rows(cut, op)
    return m.OpInfo(
        index=op.index,
        name=op.name,
        kind=op.kind,
        inputs=op.inputs,
        output=op.output,
        macs_dense=accounting.dense_macs(cut.graph, op),
        stage=cut.stages[op.index],
        sub_rows=rows.total,
        sub_rows_pruned=rows.pruned,
        sub_rows_recomputed=rows.recomputed,
    )


def _exchange(cut: Partition, index: int) -> m.Exchange:
    exchange = cut.exchanges[index]
    routes = tuple(
        m.Route(sender, receiver, channels, accounting.route_bytes(cut.graph, exchange, sender, receiver))
        for (sender, receiver), channels in sorted(exchange.routes.items())
    )
    return m.Exchange(index, exchange.tensor, routes)


def program_of(cut: Partition, node: NodeFirmware) -> m.NodeProgram:
    """One node's part of the manifest."""
    slice_ = node.slice_
    sends = tuple(
        m.NodeSend(
            exchange.index,
            exchange.tensor,
            receiver,
            accounting.route_bytes(cut.graph, exchange, sender, receiver),
            streaming.last_op_of_send(node.plan, exchange.tensor),
        )
        for exchange in cut.exchanges
        for sender, receiver in sorted(exchange.routes)
        if sender == slice_.node
    )
    steps = streaming.row_steps(cut, slice_, node.program)
    return m.NodeProgram(
        node=slice_.node,
        target=node.board.name,
        ops=tuple(_node_op(cut, node, place, step) for place, step in enumerate(steps)),
        sends=sends,
        receives=streaming.receives(cut, slice_, node.plan),
        outputs=tuple(m.NodeOutput(name, cut.output_channels(name, slice_.node)) for name in cut.graph.outputs),
        stages=tuple(_stage(cut, slice_, stage) for stage in stages_of(cut, slice_)),
        arena_bytes=node.plan.arena_bytes,
        arena_bound_bytes=node.plan.needed_bytes,
        constant_bytes=node.constant_bytes,
    )


def _stage(cut: Partition, slice_: NodeSlice, stage: Stage) -> m.NodeStage:
    places = {op.name: place for place, op in enumerate(slice_.ops)}
    return m.NodeStage(
        file=stage_file(stage),
        inputs=tuple(_stage_input(cut, slice_, operand) for operand in stage.inputs),
        outputs=stage.outputs,
        ops=tuple(places[op.name] for op in stage.ops),
        buffers=tuple(op.output for op in stage.ops),
    )


def _stage_input(cut: Partition, slice_: NodeSlice, operand: Operand) -> m.StageInput:
    buffer = slice_.buffers[operand.buffer]
    computed = min(len(buffer.computed), len(operand.channels))
    left = len(operand.channels) - computed
    halo: list[m.HaloPart] = []
    for sender, channels in buffer.halo:
        if taken := min(left, len(channels)):
            halo.append(m.HaloPart(_exchange_of(cut, buffer.tensor), sender, taken))
        left -= taken
    return m.StageInput(operand.buffer, computed, tuple(halo))


def _exchange_of(cut: Partition, tensor: str) -> int:
    return next(exchange.index for exchange in cut.exchanges if exchange.tensor == tensor)


def _node_op(cut: Partition, node: NodeFirmware, place: int, step: int) -> m.NodeOp:
    slice_, lowered, kernel = node.slice_, node.program.ops[place], node.program.kernels[place]
    op = lowered.op
    buffer = slice_.buffers[op.output]
    shape = cut.graph.tensors[buffer.tensor].shape
    return m.NodeOp(
        name=op.name,
        kind=op.kind,
        output=buffer.tensor,
        channels=buffer.computed,
        output_shape=(*shape[:-1], len(buffer.computed)),
        output_bytes=buffer_bytes(cut, slice_, op.output),
        macs_executed=accounting.executed_macs(cut.graph, op),
        channels_received=accounting.received_channels(slice_, op),
        channels_sent=accounting.sent_channels(cut, slice_, op),
        bytes_sent=accounting.sent_bytes(cut, slice_, op),
        kernel=kernel.name,
        constant_bytes=kernel.constants.bytes,
        scratch_bytes=kernel.scratch_bytes,
        instructions_predicted=kernel.instructions,
        row_step=step,
        joined=place in node.program.joined,
        waits=streaming.halo_waits(cut, slice_, lowered, step),
    )
