"""All networks by name, as `disco-latency zoo:NAME` knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from disco_planning.layers import Layer
from disco_pruning.layer_table import layer_table
from disco_pruning.models.deeplabv3plus_resnet101 import DeepLabV3Plus
from disco_pruning.models.deit import deit_micro, deit_small
from disco_pruning.models.ds_cnn import DSCNN
from disco_pruning.models.esrgan_rrdb23 import RRDBNet
from disco_pruning.models.mobilenet_v2 import MobileNetV2
from disco_pruning.models.resnet8 import ResNet8
from disco_pruning.models.resnet50 import ResNet50
from disco_pruning.models.ssd300_resnet50 import SSD300

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


@dataclass(frozen=True)
class ZooModel:
    """A network with randomly initialised weights, and the input it is measured with."""

    build: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    """Without the batch."""


ZOO = {
    "deeplabv3plus_resnet101": ZooModel(DeepLabV3Plus, (3, 513, 513)),
    "deit_micro": ZooModel(deit_micro, (3, 32, 32)),
    "deit_small": ZooModel(deit_small, (3, 224, 224)),
    "ds_cnn": ZooModel(DSCNN, (1, 49, 10)),
    "esrgan_rrdb23": ZooModel(RRDBNet, (3, 128, 128)),
    "mobilenet_v2": ZooModel(MobileNetV2, (3, 224, 224)),
    "resnet50": ZooModel(ResNet50, (3, 224, 224)),
    "resnet8": ZooModel(ResNet8, (3, 32, 32)),
    "ssd300_resnet50": ZooModel(SSD300, (3, 300, 300)),
}


def zoo_table(name: str) -> tuple[Layer, ...]:
    """The layer table of a network of the zoo, read from its definition (KeyError for another name)."""
    model = ZOO[name]
    with torch.device("meta"):
        return layer_table(model.build(), torch.empty(1, *model.input_shape))
