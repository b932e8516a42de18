"""Train ResNet-8 on the digits, prune it for two nodes in rounds, export and measure.

Writes models/*.onnx, calibration.npy, test_images.npy, test_labels.npy and accuracy.csv beside this
file, and puts the table of accuracy into README.md.
"""

from __future__ import annotations

import argparse
import csv
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from digits import Digits, load_splits
from evaluate import float_correct, int8_correct
from torch import Tensor, nn
from torch.nn import functional

from disco_converter.quantise import quantise_onnx
from disco_pruning import export_onnx, network_sparsity, plan, prune_in_rounds
from disco_pruning.models.resnet8 import ResNet8, with_softmax
from disco_targets.command import run_command
from disco_targets.errors import EXIT_OK

FloatArray = npt.NDArray[np.float32]

HERE = Path(__file__).resolve().parent
NODES = 2
IMAGE = torch.zeros(1, 3, 32, 32)
SPARSITIES = (0.5, 0.9, 0.99, 1.0)
BATCH = 64
CALIBRATION_SEED, TEST_SEED = 1, 2  # training renders every epoch anew, with seeds above these
TEST_RENDERINGS = 4  # the whole test split: 500 digits, each rendered four times
TEST_IMAGES = 200  # the first images of it, kept as a file for the boards
TABLE = ("<!-- accuracy: written by train.py -->", "<!-- end of accuracy -->")


@dataclass(frozen=True)
class Test:
    """The test images [n, 3, 32, 32] and labels [n]; the first TEST_IMAGES go to the boards."""

    images: Tensor
    labels: Tensor


class Trainer:
    """Trains one network; every epoch sees the training digits in a new rendering."""

    def __init__(self, digits: Digits, seed: int) -> None:
        self._digits = digits
        self._next_seed = 1000 * (1 + seed)
        self._shuffle = torch.Generator().manual_seed(seed)

    def __call__(self, model: nn.Module, epochs: int, peak_rate: float) -> None:
        """Train `model` in place with AdamW and one cycle of the learning rate."""
        optimiser = torch.optim.AdamW(model.parameters(), peak_rate, weight_decay=1e-3)
        labels = self._digits.labels
        steps = epochs * -(-len(labels) // BATCH)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, peak_rate, steps)
        model.train()
        for _ in range(epochs):
            images = self._digits.images(self._next_seed)
            self._next_seed += 1
            for pick in torch.randperm(len(labels), generator=self._shuffle).split(BATCH):
                loss = functional.cross_entropy(model(images[pick]), labels[pick], label_smoothing=0.05)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(options.seed)
    return run_command("train.py", lambda _errors: _run(options))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=60, help="of the dense network")
    parser.add_argument("--finetune-epochs", type=int, default=15, help="after each pruning round")
    parser.add_argument("--output", type=Path, default=HERE, help="folder to write to")
    return parser.parse_args(arguments)


def _run(options: argparse.Namespace) -> int:
    train_split, calibration_split, test_split = load_splits()
    folder: Path = options.output
    (folder / "models").mkdir(parents=True, exist_ok=True)
    calibration = _channels_last(calibration_split.images(CALIBRATION_SEED))
    test = _render_test(test_split)
    _save_arrays(folder, calibration, test)

    trainer = Trainer(train_split, options.seed)
    model = ResNet8()
    start = time.monotonic()
    trainer(model, options.epochs, 4e-3)
    cut = plan(model, IMAGE, NODES)
    rows: list[dict[str, str]] = []

    def measure(name: str) -> None:
        path = folder / "models" / f"resnet8_{name}.onnx"
        export_onnx(with_softmax(model), path, torch.from_numpy(calibration).permute(0, 3, 1, 2), cut)
        accuracy = _accuracy(model, quantise_onnx(path, calibration), test)
        rows.append({"model": name, "communication_sparsity": f"{network_sparsity(cut):.4f}", **accuracy})
        print(f"{time.monotonic() - start:5.0f} s  {rows[-1]}", flush=True)

    measure("dense")
    for sparsity in prune_in_rounds(
        model,
        cut,
        SPARSITIES,
        lambda network: trainer(network, options.finetune_epochs, 2e-3),
        rank_within="route",  # the boards' line is full duplex
    ):
        measure(f"disco{sparsity * 100:.0f}")
    _write_csv(folder / "accuracy.csv", rows)
    _write_table(folder / "README.md", rows)
    return EXIT_OK


def _render_test(split: Digits) -> Test:
    """The test split: all its digits in rendering 0, then all in rendering 1, and so on."""
    images = [split.images(TEST_SEED + 100 * index) for index in range(TEST_RENDERINGS)]
    return Test(torch.cat(images), split.labels.repeat(TEST_RENDERINGS))


def _channels_last(images: Tensor) -> FloatArray:
    return np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy())


def _save_arrays(folder: Path, calibration: FloatArray, test: Test) -> None:
    np.save(folder / "calibration.npy", calibration)
    np.save(folder / "test_images.npy", _channels_last(test.images[:TEST_IMAGES]))
    np.save(folder / "test_labels.npy", test.labels[:TEST_IMAGES].numpy())


def _accuracy(model: nn.Module, tflite: bytes, test: Test) -> dict[str, str]:
    """Accuracy of the float and the int8 network, on the boards' images and on the whole split."""
    as_float = float_correct(model, test.images, test.labels)
    as_int8 = int8_correct(tflite, test.images, test.labels)
    return {
        "float_test_images": f"{as_float[:TEST_IMAGES].mean():.4f}",
        "int8_test_images": f"{as_int8[:TEST_IMAGES].mean():.4f}",
        "float_test_split": f"{as_float.mean():.4f}",
        "int8_test_split": f"{as_int8.mean():.4f}",
    }


def _write_csv(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _write_table(readme: Path, rows: list[dict[str, str]]) -> None:
    """Put the table between its two marks in the README, if there is one."""
    lines = [
        f"| model | S_comm | float, {TEST_IMAGES} images | int8, {TEST_IMAGES} images "
        "| float, test split | int8, test split |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        name, *numbers = row.values()
        shown = " | ".join(f"{100 * float(number):.1f} %" for number in numbers)
        lines.append(f"| {name} | {shown} |")
    text = readme.read_text() if readme.is_file() else "\n".join(TABLE)
    before, _, rest = text.partition(TABLE[0])
    after = rest.partition(TABLE[1])[2]
    readme.write_text("\n".join([before + TABLE[0], *lines, TABLE[1] + after]))


if __name__ == "__main__":
    raise SystemExit(main())
