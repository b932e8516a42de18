"""ONNX to full-int8 TFLite, the only place where TensorFlow and onnx2tf are used.

The work is done by a child process. TensorFlow and onnx2tf write to both output streams from C++
and Python, change process-wide state (seeds, recursion limit, environment) and number their layers
across calls; in a process of its own all of that ends with the call, the same model gives the same
bytes the second time too, and the caller can show progress meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from disco_converter.calibration import FloatArray, check_calibration
from disco_converter.conversion_errors import (
    describe_node,
    int8_culprit,
    node_text,
    summary,
)
from disco_converter.max_pools import pad_with_zeros
from disco_converter.onnx_model import (
    OnnxInput,
    check_input,
    has_rank3_dense,
    load_onnx,
    missing_package,
)
from disco_targets.children import run_child
from disco_targets.errors import DiscoError
from disco_targets.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

_MODEL, _CALIBRATION, _JOB = "model.onnx", "calibration.npy", "job.json"
_RESULT, _FAILURE, _LOG = "model.tflite", "failure.txt", "log.txt"

_CHILD_ENVIRONMENT = {
    "TF_USE_LEGACY_KERAS": "1",  # onnx2tf builds tf_keras (Keras 2) layers
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    # Constant folding must not depend on the machine's vector width, thread count or hash seed.
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


@dataclass(frozen=True)
class _Job:
    """What the child needs to know beside the two files."""

    input_name: str
    input_shape: tuple[int, ...]
    keep_layout: bool


def quantise_onnx(model: Path, calibration: npt.NDArray[np.generic]) -> bytes:
    """Convert a float ONNX model to a full-int8 TFLite model.

    Weights are quantised per output channel with zero point 0, so exact zeros stay exact zeros;
    activations, input and output are int8. Images become channels last.

    Args:
        model: A float32 `.onnx` file with one input and a static batch of 1: [1, c, h, w],
            [1, c, length] or [1, tokens, features] or [1, features].
        calibration: Sample inputs, float32, channels last: [n, h, w, c], [n, length, c] or
            [n, tokens, features], [n, features].

    Returns:
        The `.tflite` file. The same model and calibration data give the same bytes.

    Raises:
        DiscoError: The model or the calibration data cannot be used, an operator has no int8 form,
            or the packages of the `convert` extra are not installed.
    """
    proto = load_onnx(model)
    source = check_input(proto, model)
    samples = check_calibration(calibration, source.channels_last_shape)
    job = _Job(
        input_name=source.name,
        input_shape=source.channels_last_shape,
        keep_layout=_keeps_layout(source),
    )
    with scratch_folder("quantise") as work:
        # Serialised again, so that weights kept in a file beside the model come along.
        (work / _MODEL).write_bytes(proto.SerializeToString())
        np.save(work / _CALIBRATION, samples)
        (work / _JOB).write_text(json.dumps(asdict(job)))
        _run_child(work, model)
        return (work / _RESULT).read_bytes()


def _keeps_layout(source: OnnxInput) -> bool:
    """Whether onnx2tf must be told not to transpose the input (it would, from three axes on)."""
    return len(source.shape) > 2 and not source.channels_first


def _run_child(work: Path, model: Path) -> None:
    """Run the conversion in `work`; raises `DiscoError` with the reason if it fails."""
    environment = {
        **os.environ,
        **_CHILD_ENVIRONMENT,
        "TMPDIR": str(work),
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
    }
    with (work / _LOG).open("wb") as log:
        status = run_child(
            [sys.executable, "-m", "disco_converter.quantise", str(work)],
            cwd=work,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        ).returncode
    if status == 0:
        return
    failure = work / _FAILURE
    if failure.is_file():
        raise DiscoError(f"{model}: {failure.read_text()}")
    tail = (work / _LOG).read_text(errors="replace").strip().splitlines()[-5:]
    raise DiscoError(f"{model}: the TFLite converter ended with status {status}; its last lines: " + " | ".join(tail))


# --- Everything below runs in the child process. ---


def main(arguments: list[str]) -> int:
    """Convert the model in the work folder given as the only argument; 0 if it went well."""
    work = Path(arguments[0])
    job = _Job(**json.loads((work / _JOB).read_text()))
    try:
        (work / _RESULT).write_bytes(_convert(work, job))
    except DiscoError as error:
        (work / _FAILURE).write_text(str(error))
        return error.exit_code
    return 0


def _convert(work: Path, job: _Job) -> bytes:
    _simplify(work / _MODEL)
    samples: FloatArray = np.load(work / _CALIBRATION)
    tflite = _to_int8(work / _MODEL, _to_keras(work, job, samples), samples)
    _check_all_int8(tflite)
    return tflite


def _simplify(path: Path) -> None:
    """Fold constants and batch norms in place, as far as it goes, and make the padding of MaxPool explicit."""
    try:
        import onnx

        onnxsim = import_module("onnxsim")
    except ImportError as error:
        raise missing_package(error) from error
    model = onnx.load(str(path))
    with contextlib.suppress(Exception):  # its C++ errors have no common type; the step is optional
        simple, valid = onnxsim.simplify(model)
        if valid:
            model = simple
    pad_with_zeros(model)
    onnx.save(model, str(path))


def _to_keras(work: Path, job: _Job, samples: FloatArray) -> Any:
    """The Keras model of the ONNX file, channels last."""
    try:
        from onnx2tf import onnx2tf
    except ImportError as error:
        raise missing_package(error) from error
    _check_operators(work / _MODEL)
    # It would download sample images to compare layouts with; samples of this model serve better.
    onnx2tf.download_test_image_data = lambda: samples[:20]
    # Its Add takes a channels-last shape for a broadcast gone wrong and would transpose both inputs to NCHW: operators
    # behind it, such as a Concat, stay there or find back by guesses on sizes.
    add = import_module("onnx2tf.ops.Add")
    add.transpose_with_flexing_deterrence = lambda input_tensor, **_: input_tensor  # type: ignore[attr-defined]
    try:
        keras = onnx2tf.convert(
            input_onnx_file_path=str(work / _MODEL),
            output_folder_path=str(work / "saved_model"),
            not_use_onnxsim=True,  # done above, without its dependence on PATH
            keep_shape_absolutely_input_names=[job.input_name] if job.keep_layout else None,
            disable_model_save=True,
            verbosity="error",
        )
    except (Exception, SystemExit) as error:  # it raises whatever its operators raise
        node = describe_node(work / _MODEL, getattr(error, "onnx_op_name", None))
        raise DiscoError(f"onnx2tf cannot convert {node} ({summary(error)}): replace it in the network") from error
    found = tuple(keras.inputs[0].shape)
    if found != tuple(job.input_shape):
        raise DiscoError(
            f"input '{job.input_name}' became {list(found)} instead of {list(job.input_shape)}: "
            "export the network with an NCHW input"
        )
    return keras


def _check_operators(path: Path) -> None:
    """Raise if onnx2tf has no converter for an operator; it has one module for each it knows."""
    import importlib.util

    import onnx

    unknown = [
        node_text(node)
        for node in onnx.load(str(path)).graph.node
        if importlib.util.find_spec(f"onnx2tf.ops.{node.op_type}") is None
    ]
    if unknown:
        raise DiscoError(
            f"operators that cannot be converted to TFLite: {', '.join(unknown)}; replace them in the network"
        )


def _to_int8(path: Path, keras: Any, samples: FloatArray) -> bytes:
    """Quantise with int8 operators only: one without an int8 form is an error, not a float op."""
    import onnx
    import tensorflow as tf

    def representative() -> Iterator[list[FloatArray]]:
        for index in range(len(samples)):
            yield [samples[index : index + 1]]

    converter = tf.lite.TFLiteConverter.from_keras_model(keras)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = representative
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = tf.int8
    converter.inference_output_type = tf.int8
    if has_rank3_dense(onnx.load(str(path))):
        # The reference kernel reads per-channel scales wrongly where FULLY_CONNECTED keeps leading
        # axes, so such a model would have no golden.
        converter._experimental_disable_per_channel_quantization_for_dense_layers = True  # noqa: SLF001
    try:
        return bytes(converter.convert())
    except Exception as error:  # ConverterError, RuntimeError or ValueError
        raise DiscoError(
            f"the int8 converter cannot take {int8_culprit(path, str(error))} "
            f"({summary(error)}): replace it in the network by operators that have an int8 form"
        ) from error


def _check_all_int8(tflite: bytes) -> None:
    """Raise if the converter left an operator in float between DEQUANTIZE and QUANTIZE.

    It does so, without a word, for operators that TFLite knows only in float.
    """
    import tensorflow as tf

    interpreter = tf.lite.Interpreter(model_content=tflite)
    floats = {tensor["index"] for tensor in interpreter.get_tensor_details() if tensor["dtype"] == np.float32}
    culprits = {
        operator["op_name"]
        for operator in interpreter._get_ops_details()  # noqa: SLF001 - no public way to list them
        if floats & {*operator["inputs"], *operator["outputs"]}
    } - {"DEQUANTIZE", "QUANTIZE"}
    if culprits:
        raise DiscoError(
            f"{', '.join(sorted(culprits))} has no int8 form in TFLite and would run in float: "
            "replace it in the network by operators that have an int8 form"
        )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
