"""Reads sample inputs and turns them into the int8 values of a model's input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from pathlib import Path

    from disco_firmware.manifest import TensorInfo

Int8Array = npt.NDArray[np.int8]


def load_inputs(path: Path, tensor: TensorInfo) -> Int8Array:
    """Reads a .npy of inputs: float32 (quantised as TFLite does) or int8 (taken as it is).

    Args:
        path: The file, [n, *shape[1:]], channels last.
        tensor: The model's input.

    Returns:
        int8 [n, *shape[1:]], contiguous.

    Raises:
        DiscoError: The file is missing or no .npy, or its shape, dtype or range does not fit.
    """
    return to_int8(load_npy(path, "inputs"), tensor, str(path))


def load_labels(path: Path, count: int, classes: int) -> npt.NDArray[np.int64]:
    """Reads a .npy with one class (0 to `classes` - 1) per input. DiscoError when it is anything else."""
    labels = load_npy(path, "labels")
    if labels.dtype.kind not in "iu" or labels.shape != (count,):
        raise DiscoError(
            f"labels {path} are {labels.dtype} {list(labels.shape)}: give one whole number per input, [{count}]"
        )
    if count and not 0 <= labels.min() <= labels.max() < classes:
        raise DiscoError(
            f"labels {path} range from {labels.min()} to {labels.max()}: the model has the classes 0 to {classes - 1}"
        )
    return labels.astype(np.int64)


def to_int8(array: npt.NDArray[Any], tensor: TensorInfo, where: str) -> Int8Array:
    """Checks an array against the model's input and quantises it if it is float32.

    Raises:
        DiscoError: Wrong shape (NCHW is told apart), dtype or range, no samples, NaN or infinity.
    """
    check_samples_shape(array.shape, tensor.shape, f"inputs {where}")
    if array.dtype == np.int8:
        return np.ascontiguousarray(array)
    if array.dtype != np.float32:
        raise DiscoError(
            f"inputs {where} are {array.dtype}: give float32 as the network was trained on "
            "(array.astype(numpy.float32)), or int8 that is already quantised"
        )
    _check_range(array, tensor, where)
    return quantise(array, tensor.scale, tensor.zero_point)


def quantise(values: npt.NDArray[np.float32], scale: float, zero_point: int) -> Int8Array:
    """float32 to int8 as TFLite's QUANTIZE: float32 division, half away from zero, saturated."""
    quotient = (values / np.float32(scale)).astype(np.float64)
    rounded = np.trunc(quotient + np.copysign(0.5, quotient)) + zero_point
    result: Int8Array = np.clip(rounded, -128, 127).astype(np.int8)
    return result


def load_npy(path: Path, what: str) -> npt.NDArray[Any]:
    """The one array of a .npy file; `what` names its content in messages.

    Raises:
        DiscoError: The file is missing, no .npy, or holds several arrays.
    """
    if not path.is_file():
        raise DiscoError(f"{what} file {path} does not exist: give a .npy file")
    try:
        array = np.load(path, allow_pickle=False)
    except Exception as error:  # of a damaged header numpy raises whatever its parsers raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DiscoError(f"{what} file {path} is not a readable .npy ({reason}): write it with numpy.save") from error
    if not isinstance(array, np.ndarray):
        raise DiscoError(f"{what} file {path} holds several arrays: give a .npy file with one array")
    return array


def check_samples_shape(found: tuple[int, ...], shape: tuple[int, ...], what: str) -> None:
    """Checks that samples are [n, *shape[1:]] with n >= 1; `shape` is a model's input, channels last.

    Raises:
        DiscoError: They are not; says what to do where they are channels first or one sample. `what` names them.
    """
    wanted = "[n, " + ", ".join(str(size) for size in shape[1:]) + "]"
    if found[1:] == shape[1:] and len(found) == len(shape):
        if found[0] == 0:
            raise DiscoError(f"{what} hold no samples: give at least one, {wanted}")
        return
    if found == shape[1:]:
        raise DiscoError(
            f"{what} are one sample {list(found)} without a batch axis, the model needs {wanted}: save array[None]"
        )
    if len(shape) > 2 and found[1:] == (shape[-1], *shape[1:-1]):
        order = "(0, 2, 3, 1)" if len(shape) == 4 else "(0, 2, 1)"
        raise DiscoError(
            f"{what} are {list(found)}, channels first (NCHW); the model needs channels last (NHWC), {wanted}: use "
            f"array.transpose{order}"
        )
    raise DiscoError(f"{what} are {list(found)}, the model needs {wanted}")


def check_finite(values: npt.NDArray[np.float32], what: str) -> None:
    """DiscoError where a value is NaN or infinite."""
    if not np.isfinite(values).all():
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise DiscoError(f"{what} hold NaN or infinity, the first at index {first}: remove these samples")


def _check_range(values: npt.NDArray[np.float32], tensor: TensorInfo, where: str) -> None:
    """Refuses what is not finite or lies more than a full range away from what int8 can hold.

    A little saturation is normal (the range comes from calibration data); pixels of 0..255 for a
    network trained on 0..1 are not.
    """
    check_finite(values, f"inputs {where}")
    low = (-128 - tensor.zero_point) * tensor.scale
    high = (127 - tensor.zero_point) * tensor.scale
    smallest, largest = float(values.min()), float(values.max())
    if smallest < low - (high - low) or largest > high + (high - low):
        raise DiscoError(
            f"inputs {where} range from {smallest:g} to {largest:g}, the model's input holds "
            f"{low:g} to {high:g}: scale them as the training data was"
        )
