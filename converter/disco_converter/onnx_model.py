"""What is asked of an ONNX model before it is converted: one static float32 input, a batch of 1."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from pathlib import Path

# Operators whose rank-3 operand is [batch, channels, length]; before any other operator a rank-3
# tensor is [batch, tokens, features] already, so its last axis is the channel axis as it stands.
_CHANNELS_FIRST_OPS = frozenset(
    {
        "AveragePool",
        "BatchNormalization",
        "Conv",
        "ConvTranspose",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "InstanceNormalization",
        "MaxPool",
    }
)


@dataclass(frozen=True)
class OnnxInput:
    """The one input of a checked ONNX model.

    Attributes:
        name: Its name in the ONNX graph.
        shape: Its shape in the ONNX graph, batch of 1 first.
        channels_first: Whether the axes are NCHW (or NCL), to be turned into NHWC.
    """

    name: str
    shape: tuple[int, ...]
    channels_first: bool

    @property
    def channels_last_shape(self) -> tuple[int, ...]:
        """The shape of the converted model's input, e.g. (1, 32, 32, 3)."""
        if not self.channels_first:
            return self.shape
        return (self.shape[0], *self.shape[2:], self.shape[1])


def load_onnx(path: Path) -> Any:
    """Read and check an ONNX file; returns the `onnx.ModelProto`.

    Raises:
        DiscoError: The file is missing, is not ONNX, or breaks the ONNX specification.
    """
    if not path.is_file():
        raise DiscoError(f"model file {path} does not exist: give the path of an .onnx file")
    try:
        import onnx

        decode_error = import_module("google.protobuf.message").DecodeError
    except ImportError as error:
        raise missing_package(error) from error
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
    except (decode_error, onnx.checker.ValidationError, OSError, ValueError) as error:
        raise DiscoError(f"model file {path} is corrupt or not ONNX ({_first_line(error)}): export it again") from error
    if not model.graph.node:
        raise DiscoError(f"model file {path} holds no operators (is it empty?): export it again")
    return model


def missing_package(error: ImportError) -> DiscoError:
    """The error for a conversion package that is not installed."""
    return DiscoError(
        f"converting an ONNX model needs TensorFlow and onnx2tf, and {error.name or error} is not "
        "installed: pip install 'disco-edge[convert]'"
    )


def check_input(model: Any, path: Path) -> OnnxInput:
    """Check that the model has one static float32 input with a batch of 1, and describe it.

    Raises:
        DiscoError: No input or several, a dynamic dimension (named), a batch other than 1, a dtype
            other than float32, or a rank other than 2, 3 or 4.
    """
    import onnx

    initialisers = {tensor.name for tensor in model.graph.initializer}
    # Older exporters list the weights among the inputs.
    inputs = [value for value in model.graph.input if value.name not in initialisers]
    if len(inputs) != 1:
        names = ", ".join(value.name for value in inputs) or "none"
        raise DiscoError(
            f"{path} has {len(inputs)} inputs ({names}), exactly one is supported: export the "
            "network as a function of one tensor"
        )
    value = inputs[0]
    tensor = value.type.tensor_type
    if tensor.elem_type != onnx.TensorProto.FLOAT:
        kind = onnx.TensorProto.DataType.Name(tensor.elem_type)
        raise DiscoError(f"input '{value.name}' of {path} is {kind}, it must be float32: export the float network")
    shape = _static_shape(value.name, tensor, path)
    return OnnxInput(value.name, shape, _is_channels_first(model, value.name, len(shape)))


def has_rank3_dense(model: Any) -> bool:
    """Whether a MatMul with constant weights reads a tensor with more than two axes.

    Such an operator becomes a FULLY_CONNECTED that keeps its leading axes.
    """
    import onnx

    inferred = onnx.shape_inference.infer_shapes(model).graph
    constants = {tensor.name for tensor in inferred.initializer}
    rank = {value.name: len(value.type.tensor_type.shape.dim) for value in (*inferred.input, *inferred.value_info)}
    return any(
        node.op_type == "MatMul" and node.input[1] in constants and rank.get(node.input[0], 3) > 2
        for node in inferred.node
    )


def _static_shape(name: str, tensor: Any, path: Path) -> tuple[int, ...]:
    """The shape of an input; raises where a dimension is dynamic or the batch is not 1."""
    if not tensor.HasField("shape"):
        raise DiscoError(f"input '{name}' of {path} has no shape: export it with a static shape")
    dims = tensor.shape.dim
    for axis, dim in enumerate(dims):
        if dim.HasField("dim_value") and dim.dim_value > 0:
            continue
        label = dim.dim_param or "unknown"
        what = f"batch (dimension 0, '{label}')" if axis == 0 else f"dimension {axis} ('{label}')"
        raise DiscoError(
            f"input '{name}' of {path} has a dynamic {what}: export it with a static shape and a "
            "batch of 1 (torch.onnx.export without dynamic_axes or dynamic_shapes)"
        )
    shape = tuple(int(dim.dim_value) for dim in dims)
    if len(shape) not in (2, 3, 4):
        raise DiscoError(
            f"input '{name}' of {path} has {len(shape)} axes {list(shape)}: 2 (features), 3 "
            "(sequence) or 4 (image, NCHW) are supported"
        )
    if shape[0] != 1:
        raise DiscoError(f"input '{name}' of {path} has a batch of {shape[0]}: export it with a batch of 1")
    return shape


def _is_channels_first(model: Any, name: str, rank: int) -> bool:
    """Whether the input's axis 1 is the channel axis; PyTorch images (rank 4) are."""
    consumers = [node.op_type for node in model.graph.node if name in node.input]
    if rank == 4:
        # A graph that starts with a transposition was made from a channels-last network.
        return consumers != ["Transpose"]
    return rank == 3 and any(op in _CHANNELS_FIRST_OPS for op in consumers)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
