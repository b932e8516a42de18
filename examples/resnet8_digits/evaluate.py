"""Accuracy of the float network and of the quantised one, on images [n, 3, 32, 32]."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn


def float_correct(model: nn.Module, images: Tensor, labels: Tensor) -> npt.NDArray[np.bool_]:
    """For each image, whether the network in inference mode is right."""
    model.eval()
    with torch.no_grad():
        answers = torch.cat([model(batch) for batch in images.split(250)]).argmax(1)
    correct: npt.NDArray[np.bool_] = (answers == labels).numpy()
    return correct


def int8_correct(tflite: bytes, images: Tensor, labels: Tensor) -> npt.NDArray[np.bool_]:
    """For each image, whether the int8 model in TFLite's reference kernels is right."""
    interpreter = _reference_interpreter(tflite)
    source = interpreter.get_input_details()[0]
    output = interpreter.get_output_details()[0]["index"]
    scale, zero_point = source["quantization"]
    channels_last = images.permute(0, 2, 3, 1).numpy()
    samples = np.clip(np.round(channels_last / scale) + zero_point, -128, 127).astype(np.int8)
    answers = np.empty(len(samples), np.int64)
    for index, sample in enumerate(samples):
        interpreter.set_tensor(source["index"], sample[None])
        interpreter.invoke()
        answers[index] = interpreter.get_tensor(output)[0].argmax()
    correct: npt.NDArray[np.bool_] = answers == labels.numpy()
    return correct


def _reference_interpreter(tflite: bytes) -> Any:
    try:
        from tflite_runtime import interpreter as runtime
    except ImportError:  # Python 3.12 and later have its successor
        from ai_edge_litert import interpreter as runtime
    interpreter = runtime.Interpreter(
        model_content=tflite,
        experimental_op_resolver_type=runtime.OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    return interpreter
