"""Writes a node's disco_model.c from a short description, by hand and without the converter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from disco_firmware.protocol import MODEL_ABI

BUNDLE_ID = bytes(range(1, 17))
STEPS = 12
"""Room for so many step records: fewer than a run has."""


@dataclass
class Tensor:
    """An activation buffer; `offset` places it over another one."""

    height: int
    width: int
    channels: int
    halo: int
    offset: int


@dataclass
class Send:
    exchange: int
    tensor: int
    peer: int
    channels: Sequence[int]
    last_op: int


@dataclass
class Receive:
    exchange: int
    tensor: int
    peer: int
    first_channel: int
    count: int
    open_op: int


@dataclass
class ModelSource:
    """One node's model: add tensors, ops, sends and receives, then ask for `text()`."""

    node: int = 0
    node_count: int = 1
    exchange_count: int = 0
    abi: int = MODEL_ABI
    bundle_id: bytes = BUNDLE_ID
    tensors: list[Tensor] = field(default_factory=list)
    ops: list[tuple[str, list[tuple[int, int]], int, str]] = field(default_factory=list)
    joined: set[int] = field(default_factory=set)
    """Ops that are computed together with the one before."""
    sends: list[Send] = field(default_factory=list)
    receives: list[Receive] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int | None] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    arena_bytes: int = 0

    def tensor(self, height: int, width: int, channels: int, halo: int = 0, over: int | None = None) -> int:
        """Adds a tensor behind all others, or over the buffer of tensor `over`."""
        offset = self.arena_bytes if over is None else self.tensors[over].offset
        end = offset + height * width * (channels + halo)
        self.arena_bytes = max(self.arena_bytes, -(-end // 16) * 16)
        self.tensors.append(Tensor(height, width, channels, halo, offset))
        return len(self.tensors) - 1

    def array(self, c_type: str, values: object) -> str:
        """Adds a constant array and returns its name."""
        name = f"constant{len(self.constants)}"
        flat = ", ".join(str(int(v)) for v in np.asarray(values).reshape(-1))
        self.constants.append(f"static const {c_type} {name}[] = {{{flat}}};")
        return name

    def op(self, kind: str, inputs: list[tuple[int, int]], output: int, params: str) -> int:
        """Adds an op. `params`: the type of its structure and the initialiser, or NULL."""
        self.ops.append((kind, inputs, output, params))
        return len(self.ops) - 1

    def text(self) -> str:
        """The C file."""
        lines = ['#include "disco/executor.h"', '#include "disco/model.h"', "", *self.constants]
        lines += self._operators() + self._routes() + self._tensors()
        lines += [
            f"static int8_t arena[{self.arena_bytes}] __attribute__((aligned(16)));",
            f"static disco_op_record_t op_records[{len(self.ops)}];",
            f"static uint32_t step_ticks[{STEPS}];",
            f"static disco_send_state_t send_states[{len(self.sends) + 1}];",
            f"static disco_receive_state_t receive_states[{len(self.receives) + 1}];",
            f"static disco_link_t peer_links[{max(1, self.node_count - 1)}];",
            _indices("inputs", self.inputs),
            _indices("outputs", self.outputs),
            "const disco_model_t disco_model = {",
            f"    .abi = {self.abi}, .node = {self.node}, .node_count = {self.node_count},",
            f"    .bundle_id = {{{', '.join(str(b) for b in self.bundle_id)}}},",
            "    .tensors = tensors, .ops = ops, .sends = sends, .receives = receives,",
            "    .inputs = inputs, .outputs = outputs,",
            f"    .tensor_count = {len(self.tensors)}, .op_count = {len(self.ops)},",
            f"    .send_count = {len(self.sends)}, .receive_count = {len(self.receives)},",
            f"    .input_count = {len(self.inputs)}, .output_count = {len(self.outputs)},",
            f"    .exchange_count = {self.exchange_count}, .arena_bytes = {self.arena_bytes},",
            f"    .arena = arena, .op_records = op_records, .step_ticks = step_ticks, .step_count = {STEPS},",
            "    .send_states = send_states,",
            "    .receive_states = receive_states, .peer_links = peer_links};",
        ]
        return "\n".join(lines) + "\n"

    def _operators(self) -> list[str]:
        lines, rows = [], []
        for index, (kind, inputs, output, params) in enumerate(self.ops):
            operands = ", ".join(f"{{{tensor}, {channels}}}" for tensor, channels in inputs)
            lines.append(f"static const disco_operand_t operands{index}[] = {{{operands}}};")
            pointer = "NULL"
            if params != "NULL":
                c_type, _, value = params.partition(" ")
                lines.append(f"static const {c_type} params{index}[] = {{{value}}};")
                pointer = f"params{index}"
            kind = kind if kind.isdigit() else f"DISCO_OP_{kind}"
            values = f"{len(inputs)}, {output}, {pointer}, NULL, 0, {int(index in self.joined)}"
            rows.append(f"{{(disco_op_kind_t){kind}, operands{index}, {values}}},")
        return [*lines, "static const disco_op_t ops[] = {", *rows, "};"]

    def _routes(self) -> list[str]:
        lines, sends = [], []
        for index, send in enumerate(self.sends):
            values = ", ".join(map(str, send.channels))
            lines.append(f"static const uint16_t channels{index}[] = {{{values}}};")
            sends.append(
                f"{{{send.exchange}, {send.tensor}, {send.last_op}, {send.peer},"
                f" {len(send.channels)}, channels{index}}},"
            )
        receives = [
            f"{{{r.exchange}, {r.tensor}, {r.open_op}, {r.peer}, {r.count}, {r.first_channel}}}," for r in self.receives
        ]
        lines += ["static const disco_send_t sends[] = {", *(sends or ["{0}"]), "};"]
        return [*lines, "static const disco_receive_t receives[] = {", *(receives or ["{0}"]), "};"]

    def _tensors(self) -> list[str]:
        rows = []
        for index, t in enumerate(self.tensors):
            sends = [i for i, send in enumerate(self.sends) if send.tensor == index]
            receives = [i for i, receive in enumerate(self.receives) if receive.tensor == index]
            rows.append(
                f"{{{t.offset}, {t.height}, {t.width}, {t.channels}, {t.channels + t.halo},"
                f" {min(sends, default=0)}, {len(sends)}, {min(receives, default=0)},"
                f" {len(receives)}}},"
            )
        return ["static const disco_tensor_t tensors[] = {", *rows, "};"]


def _indices(name: str, values: Sequence[int | None]) -> str:
    text = ", ".join("DISCO_NONE" if v is None else str(v) for v in values)
    return f"static const uint16_t {name}[] = {{{text or 0}}};"
