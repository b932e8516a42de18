"""The golden: the whole int8 model on this PC, in TFLite's reference kernels or in those that all nodes have."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from disco_firmware.reference import REFERENCE, TfliteModel
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from disco_firmware.bundle import Bundle
    from disco_firmware.manifest import Manifest

Int8Array = npt.NDArray[np.int8]


class Golden:
    """Runs reference.tflite."""

    def __init__(self, bundle: Bundle, *, keep_tensors: bool = False, mode: str = REFERENCE) -> None:
        """Loads the model; `mode` says which kernels the nodes have.

        `keep_tensors` makes `checksum` possible, and every run compares the constant channels.

        Raises:
            DiscoError: TFLite does not take the file, or answers differently from what made the bundle.
        """
        self._manifest: Manifest = bundle.manifest
        self._keep_tensors = keep_tensors
        self.mode = mode
        content = bundle.reference.read_bytes()
        self._model = TfliteModel(content, str(bundle.reference), mode=mode, observe=keep_tensors)
        if mode == REFERENCE:
            self._check(bundle)

    def run(self, sample: Int8Array) -> tuple[Int8Array, ...]:
        """The model's outputs for one input [1, ...] or [...], in the order of the manifest."""
        shape = self._manifest.tensor(self._manifest.input).shape
        self._model.run([sample.reshape(shape)])
        if self._keep_tensors:
            self._check_constants()
        # The runtime's order of the outputs need not be that of the bundle: addressed by index.
        return tuple(self._model.tensor(self._manifest.tensor(name).index) for name in self._manifest.outputs)

    def checksum(self, tensor: str, channels: tuple[int, ...]) -> int:
        """CRC-32 of some channels [h][w][channels] of any tensor in the last run."""
        values = self._model.tensor(self._manifest.tensor(tensor).index)
        return zlib.crc32(np.ascontiguousarray(values[..., list(channels)]).tobytes())

    def _check_constants(self) -> None:
        """What no board computes is what the bundle says: the boards' channels and these are the whole tensor."""
        for tensor in self._manifest.tensors:
            channels = list(tensor.constant_channels)
            values = self._model.tensor(tensor.index)[..., channels]
            if len(channels) != len(tensor.constants) or (values != np.array(tensor.constants, np.int8)).any():
                raise DiscoError(
                    f"tensor {tensor.name!r} has channels that no node computes and that are not the constants of "
                    "bundle.json: export the model again"
                )

    def _check(self, bundle: Bundle) -> None:
        """This PC's reference kernels must answer as the exporter's did, or it cannot judge."""
        sample = np.load(bundle.vector_inputs)[0]
        for output, values in enumerate(self.run(sample)):
            expected = np.load(bundle.vector_outputs(output))[0]
            if not np.array_equal(values.ravel(), expected.ravel()):
                raise DiscoError(
                    "the TFLite reference kernels of this Python answer differently from those "
                    f"that made the bundle (self-check 0, output {output}): install the TFLite "
                    "runtime that disco-edge asks for (pip install --force-reinstall disco-edge)"
                )
