"""Compares what the boards answered with the golden, value for value."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from disco_host.results import Difference
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disco_firmware.manifest import Manifest
    from disco_host.capture import InferenceCapture, NodeCapture
    from disco_host.golden import Golden

Int8Array = npt.NDArray[np.int8]


class Checker:
    """Judges every inference of a run and remembers the first difference."""

    def __init__(self, manifest: Manifest, golden: Golden, *, tensors: bool) -> None:
        """With `tensors` the checksum of what every op computes is compared too."""
        self._manifest = manifest
        self._golden = golden
        self._tensors = tensors
        self._op_order = {op.name: place for place, op in enumerate(manifest.ops)}
        self._expected: dict[int, tuple[Int8Array, ...]] = {}
        self.kernels = golden.mode
        """With which the expected values are computed."""
        self.mismatches = 0
        self.first: Difference | None = None
        check_coverage(manifest)

    def expected(self, input_index: int, sample: Int8Array) -> tuple[Int8Array, ...]:
        """The golden's outputs for an input; computed once where no inner tensors are compared."""
        if self._tensors or input_index not in self._expected:
            self._expected[input_index] = self._golden.run(sample)
        return self._expected[input_index]

    def judge(self, capture: InferenceCapture, sample: Int8Array) -> None:
        """Compares one inference."""
        expected = self.expected(capture.input_index, sample)
        differing_op = self._first_differing_op(capture) if self._tensors else None
        difference = self._first_differing_output(capture, expected, differing_op)
        if difference is None and differing_op is not None:
            op, node = differing_op
            difference = Difference(capture.inference, capture.input_index, -1, node, (), 0, 0, 0, 0, op, node)
        if difference is not None:
            self.mismatches += 1
            self.first = self.first or difference

    def _first_differing_output(
        self,
        capture: InferenceCapture,
        expected: tuple[Int8Array, ...],
        differing_op: tuple[str, int] | None,
    ) -> Difference | None:
        op, op_node = differing_op or (None, None)
        for node in capture.nodes:
            for output, golden in enumerate(expected):
                got = share_of(self._manifest, node, output)
                channels = self._manifest.programs[node.node].outputs[output].channels
                wanted = golden.reshape(-1, golden.shape[-1])[:, list(channels)]
                wrong = np.argwhere(got != wanted)
                if len(wrong) == 0:
                    continue
                pixel, channel = (int(i) for i in wrong[0])
                place = np.unravel_index(pixel, golden.shape[:-1])
                return Difference(
                    inference=capture.inference,
                    input_index=capture.input_index,
                    output=output,
                    node=node.node,
                    position=(*(int(i) for i in place), channels[channel]),
                    expected=int(wanted[pixel, channel]),
                    got=int(got[pixel, channel]),
                    differing=len(wrong),
                    values=got.size,
                    op=op,
                    op_node=op_node,
                )
        return None

    def _first_differing_op(self, capture: InferenceCapture) -> tuple[str, int] | None:
        """The op that comes first in the model, not the one that a node runs first."""
        differing = []
        for node in capture.nodes:
            program = self._manifest.programs[node.node]
            for place, (op, record) in enumerate(zip(program.ops, node.ops, strict=True)):
                if op.channels and record.checksum != self._golden.checksum(op.output, op.channels):
                    order = self._op_order.get(op.name, len(self._op_order))
                    differing.append((order, place, node.node, op.name))
        if not differing:
            return None
        *_, node_index, name = min(differing)
        return name, node_index


def share_of(manifest: Manifest, node: NodeCapture, output: int) -> Int8Array:
    """A node's channels of one output as int8 [pixels, own channels]."""
    channels = manifest.programs[node.node].outputs[output].channels
    values = np.frombuffer(node.outputs[output], dtype=np.int8)
    shape = manifest.tensor(manifest.outputs[output]).shape
    return values.reshape(prod(shape[:-1]), len(channels))


def whole_output(manifest: Manifest, capture: InferenceCapture, output: int) -> Int8Array:
    """One output put together from all nodes' channels, in its shape."""
    shape = manifest.tensor(manifest.outputs[output]).shape
    whole = np.zeros(shape, dtype=np.int8)
    flat = whole.reshape(-1, shape[-1])
    for node in capture.nodes:
        channels = manifest.programs[node.node].outputs[output].channels
        if channels:
            flat[:, list(channels)] = share_of(manifest, node, output)
    return whole


def share_right(manifest: Manifest, captures: Sequence[InferenceCapture], labels: npt.NDArray[np.int64]) -> float:
    """Share of the inferences whose largest value of output 0 is at the input's label."""
    right = [int(np.argmax(whole_output(manifest, capture, 0))) == labels[capture.input_index] for capture in captures]
    return float(sum(right) / len(right))


def check_coverage(manifest: Manifest) -> None:
    """Every channel of every output must come from some node, or nobody would have compared it."""
    for output, name in enumerate(manifest.outputs):
        sent = {c for program in manifest.programs for c in program.outputs[output].channels}
        missing = set(range(manifest.tensor(name).shape[-1])) - sent
        if missing:
            raise DiscoError(
                f"no node of this bundle sends channel {min(missing)} of output {output} ({name}): "
                "export the model again"
            )
