"""Calibration data: the sample inputs from which the int8 scales of every activation are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from disco_firmware.inputs import check_finite, check_samples_shape, load_npy
from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from pathlib import Path

FloatArray = npt.NDArray[np.float32]

_FAR = 10
"""How many times the range of the inputs of an export calibration data may lie beside it, or be narrower. An image
with values up to 255 is told from one with values up to 1; other samples of one data set are not told apart."""


def load_calibration(path: Path, shape: tuple[int, ...]) -> FloatArray:
    """Read a calibration file and check it against the model's input.

    Args:
        path: A `.npy` file, float32 [n, h, w, c] (or [n, features]).
        shape: The model's input shape with its batch of 1, channels last.

    Returns:
        The array, ready for `quantise_onnx`.

    Raises:
        DiscoError: The file cannot be read, or `check_calibration` refuses its content.
    """
    return check_calibration(load_npy(path, "calibration"), shape)


def check_calibration(array: npt.NDArray[np.generic], shape: tuple[int, ...]) -> FloatArray:
    """Check that an array can calibrate a model whose input is `shape`.

    Args:
        array: The calibration data: float32 [n, *shape[1:]], channels last.
        shape: The model's input shape with its batch of 1, channels last, e.g. (1, 32, 32, 3).

    Returns:
        The same array, now known to be float32, finite, not empty and of the right shape.

    Raises:
        DiscoError: Wrong dtype, rank or shape (NCHW is told apart), no samples, NaN or infinity, or
            one value everywhere, which gives no range to quantise.
    """
    if array.dtype != np.float32:
        raise DiscoError(
            f"calibration data is {array.dtype}, it must be float32 with the values the network "
            "was trained on: convert it with array.astype(numpy.float32)"
        )
    check_samples_shape(array.shape, shape, "calibration samples")
    values: FloatArray = array.astype(np.float32, copy=False)
    check_finite(values, "calibration samples")
    if values.min() == values.max():
        raise DiscoError(
            f"calibration data is {values.flat[0]:g} everywhere, so it gives no range to quantise: "
            "use real sample inputs"
        )
    return values


def range_warning(values: FloatArray, trained: tuple[float, float]) -> str | None:
    """A text where `values` are scaled otherwise than the inputs that the network was exported with.

    Args:
        values: The calibration data.
        trained: The least and the greatest value of those inputs.
    """
    low, high = float(values.min()), float(values.max())
    width = trained[1] - trained[0]
    inside = trained[0] - _FAR * width <= low and high <= trained[1] + _FAR * width
    if inside and high - low >= width / _FAR:
        return None
    return (
        f"calibration data lies between {low:g} and {high:g}, the inputs that the network was exported with between "
        f"{trained[0]:g} and {trained[1]:g}: scale it as in training, else the int8 network is not the trained one"
    )
