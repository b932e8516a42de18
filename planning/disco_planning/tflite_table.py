"""The layer table of a .tflite file, float or quantised. Layers are called as disco-export calls its ops: conv_2d_3."""

from __future__ import annotations

import struct
from math import prod
from typing import Any

from disco_planning.layers import Layer
from disco_targets.errors import DiscoError

_DAMAGE = (struct.error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What offsets and counts that make no sense raise in the flatbuffers library and here."""
_ONE = (1, 1)


def read_tflite(content: bytes, where: str) -> tuple[Layer, ...]:
    """One row for each CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV and FULLY_CONNECTED of the first subgraph, in order.

    Padding in front of a layer belongs to it: the row has the tensor before it.

    Raises:
        DiscoError: No .tflite file, damaged, without such ops or with recurrent ones, or the package `tflite` is
            missing.
    """
    try:
        import tflite
    except ImportError as error:
        raise DiscoError(f"reading {where} needs the package {error.name}: pip install 'disco-edge[plan]'") from error
    if len(content) < 8 or not tflite.Model.ModelBufferHasIdentifier(content, 0):
        raise DiscoError(f"{where} is not a .tflite file")
    try:
        layers = _Reader(tflite, content, where).layers()
    except _DAMAGE as error:
        raise DiscoError(f"{where} is a damaged .tflite file ({str(error) or type(error).__name__})") from error
    if not layers:
        raise DiscoError(f"{where} has no convolution and no fully connected layer")
    return layers


class _Reader:
    def __init__(self, tflite: Any, content: bytes, where: str) -> None:
        self._where = where
        self._tflite = tflite
        self._model = tflite.Model.GetRootAsModel(content, 0)
        self._subgraph = self._model.Subgraphs(0)
        self._names = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
        self._padded: dict[int, int] = {}  # what a padding wrote -> what it read
        self._sources: dict[int, int] = {}

    def layers(self) -> tuple[Layer, ...]:
        found = []
        for index in range(self._subgraph.OperatorsLength()):
            op = self._subgraph.Operators(index)
            code = self._model.OperatorCodes(op.OpcodeIndex())
            kind = self._names.get(max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), "")
            name = f"{kind.lower()}_{index}"
            if kind in ("PAD", "PADV2"):
                self._padded[op.Outputs(0)] = op.Inputs(0)
            elif kind == "FULLY_CONNECTED":
                found.append(self._linear(op, name))
            elif kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
                found.append(self._convolution(op, name, kind))
            elif kind == "TRANSPOSE_CONV":
                found.append(self._transposed(op, name))
            elif kind == "CONV_3D" or kind.endswith(("LSTM", "RNN")):
                raise DiscoError(f"{self._where}: op {name} has no row in a layer table: build the model without it")
        return tuple(found)

    def _linear(self, op: Any, name: str) -> Layer:
        out_ch, in_ch = self._shape(op.Inputs(1))
        tensor = self._input(op.Inputs(0))
        shape = self._shape(tensor)
        # TFLite may flatten all axes but the batch by itself; else those between batch and features are tokens.
        axes = shape[1:-1] if shape[-1] == in_ch else ()
        height, width = (axes[0], prod(axes[1:])) if axes else _ONE
        macs = height * width * in_ch * out_ch
        return self._layer(name, tensor, in_ch, out_ch, (height, width), (height, width), macs)

    def _convolution(self, op: Any, name: str, kind: str) -> Layer:
        depthwise = kind == "DEPTHWISE_CONV_2D"
        options = self._options(op, "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions")
        tensor = self._input(op.Inputs(0))
        _, in_h, in_w, in_ch = self._shape(tensor)
        _, out_h, out_w, out_ch = self._shape(op.Outputs(0))
        weights = self._shape(op.Inputs(1))
        read = 1 if depthwise else weights[3]  # input channels of one output
        if not depthwise and read == 1 < in_ch:
            name = f"depthwise_{name}"  # as disco-export calls it
        return self._layer(
            name,
            tensor,
            in_ch,
            out_ch,
            (in_h, in_w),
            (out_h, out_w),
            out_h * out_w * prod(weights),
            kernel=(weights[1], weights[2]),
            stride=(options.StrideH(), options.StrideW()),
            dilation=(options.DilationHFactor(), options.DilationWFactor()),
            groups=in_ch // read,
        )

    def _transposed(self, op: Any, name: str) -> Layer:
        options = self._options(op, "TransposeConvOptions")
        tensor = self._input(op.Inputs(2))
        _, in_h, in_w, in_ch = self._shape(tensor)
        _, out_h, out_w, out_ch = self._shape(op.Outputs(0))
        weights = self._shape(op.Inputs(1))
        stride = (options.StrideH(), options.StrideW())
        planes = (in_h, in_w), (out_h, out_w)
        macs = in_h * in_w * prod(weights)
        return self._layer(name, tensor, in_ch, out_ch, *planes, macs, kernel=(weights[1], weights[2]), stride=stride)

    def _layer(
        self,
        name: str,
        tensor: int,
        in_ch: int,
        out_ch: int,
        in_plane: tuple[int, int],
        out_plane: tuple[int, int],
        macs: int,
        kernel: tuple[int, int] = _ONE,
        stride: tuple[int, int] = _ONE,
        dilation: tuple[int, int] = _ONE,
        groups: int = 1,
    ) -> Layer:
        source = self._sources.setdefault(tensor, len(self._sources))
        return Layer(name, in_ch, out_ch, kernel, stride, *in_plane, groups, macs, *out_plane, dilation, source)

    def _input(self, tensor: int) -> int:
        return self._padded.get(tensor, tensor)

    def _shape(self, tensor: int) -> tuple[int, ...]:
        return tuple(int(size) for size in self._subgraph.Tensors(tensor).ShapeAsNumpy())

    def _options(self, op: Any, kind: str) -> Any:
        options, table = getattr(self._tflite, kind)(), op.BuiltinOptions()
        options.Init(table.Bytes, table.Pos)
        return options
