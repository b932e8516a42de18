"""Networks for the examples and for planning, defined so that they prune and export cleanly; random weights."""

from disco_pruning.models.deeplabv3plus_resnet101 import DeepLabV3Plus
from disco_pruning.models.deit import DeiT, deit_micro, deit_small
from disco_pruning.models.ds_cnn import DSCNN
from disco_pruning.models.esrgan_rrdb23 import RRDBNet
from disco_pruning.models.mobilenet_v2 import MobileNetV2
from disco_pruning.models.resnet8 import ResNet8
from disco_pruning.models.resnet50 import ResNet50
from disco_pruning.models.ssd300_resnet50 import SSD300

__all__ = [
    "DSCNN",
    "SSD300",
    "DeepLabV3Plus",
    "DeiT",
    "MobileNetV2",
    "RRDBNet",
    "ResNet8",
    "ResNet50",
    "deit_micro",
    "deit_small",
]
