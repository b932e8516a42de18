"""The fast kernels of everything but CONV_2D equal TFLite's reference kernels bit for bit and touch nothing else.

DISCO_VARIANT_CASES sets the number of random cases per kernel on the PC.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from disco_firmware.variants.add_table import AddTable
from disco_firmware.variants.base import Variant
from disco_firmware.variants.depthwise_any_dsp import DepthwiseAnyDsp
from disco_firmware.variants.depthwise_dsp import Depthwise3x3Dsp
from disco_firmware.variants.fully_connected_dsp import FullyConnectedDsp
from disco_firmware.variants.mul_dsp import MulDsp
from disco_firmware.variants.pool_dsp import AveragePoolDsp, MaxPoolDsp, MeanDsp
from disco_firmware.variants.relu_table import ReluTable
from disco_firmware.variants.softmax_once import SoftmaxOnce
from helpers import c_build
from helpers.variant_local_cases import cases_for, params_of
from helpers.variant_programs import VariantCase, layer_of, program

PC_CASES = int(os.environ.get("DISCO_VARIANT_CASES", "150"))
BATCH = 250
"""Cases in one program, so that thousands compile."""
BOARD_CASES = 30
VARIANTS: dict[str, Variant] = {
    "depthwise_3x3": Depthwise3x3Dsp(),
    "depthwise_conv2d": DepthwiseAnyDsp(),
    "fully_connected": FullyConnectedDsp(),
    "deep_fully_connected": FullyConnectedDsp(),
    "add": AddTable(),
    "mul": MulDsp(),
    "average_pool2d": AveragePoolDsp(),
    "max_pool2d": MaxPoolDsp(),
    "mean": MeanDsp(),
    "relu": ReluTable(),
    "softmax": SoftmaxOnce(),
}
"""By the generator of their cases."""
SOURCES = c_build.RUNTIME / "src"
SEMIHOSTED = Path(__file__).with_name("semihosted_start.c")
BOARD_FLAGS = {
    "m4": ("-O3", "-mcpu=cortex-m4", "-mthumb"),
    "m33": ("-O3", "-mcpu=cortex-m33", "-mthumb", "-mfloat-abi=soft"),
}
EMULATOR = (
    *("qemu-system-arm", "-M", "mps2-an386", "-display", "none", "-monitor", "none"),
    *("-serial", "none", "-semihosting-config", "enable=on,target=native", "-kernel"),
)


def fitting_cases(name: str, count: int, seed: int) -> list[VariantCase]:
    """Of `count` random ones those that the variant computes."""
    variant = VARIANTS[name]
    cases = cases_for(name, count, seed)
    items = [VariantCase(variant, layer_of(case, params_of(case)), case) for case in cases]
    fitting = [item for item in items if variant.fits(item.layer)]
    assert len(fitting) >= count / 3
    return fitting


def check(compiler: str, source: str, output: Path, flags: tuple[str, ...], emulator: tuple[str, ...] = ()) -> None:
    """Compiles and runs a program of variant_programs."""
    path = output.with_suffix(".c")
    path.write_text(source)
    sources = [path, SEMIHOSTED] if emulator else [path]
    c_build.compile_c(compiler, sources, output, (*flags, f"-I{SOURCES}"))
    result = subprocess.run([*emulator, str(output)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_the_reference_on_the_pc(name: str, tmp_path: Path) -> None:
    cases = fitting_cases(name, PC_CASES, seed=len(name))
    for first in range(0, len(cases), BATCH):
        source = program(cases[first : first + BATCH], specialised=False)
        check("gcc", source, tmp_path / f"{name}_{first}", ("-O0", *c_build.SANITIZERS))


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_the_reference_on_an_emulated_board(name: str, tmp_path: Path) -> None:
    """Half of the cases with constant arguments, as in generated code, half without."""
    c_build.tool("qemu-system-arm")
    cases = fitting_cases(name, BOARD_CASES, seed=100 + len(name))
    script = ("--specs=rdimon.specs", "-T", str(SEMIHOSTED.with_name("semihosted.ld")))
    for specialised in (True, False):
        source = program(cases, specialised=specialised)
        flags = (*BOARD_FLAGS["m4"], *script)
        check("arm-none-eabi-gcc", source, tmp_path / f"{name}_{specialised}", flags, EMULATOR)


@pytest.mark.parametrize("name", VARIANTS)
def test_compiles_for_other_cores(name: str, tmp_path: Path) -> None:
    source = tmp_path / "variant.c"
    source.write_text(program(fitting_cases(name, 6, seed=3), specialised=True))
    c_build.compile_c("arm-none-eabi-gcc", [source], tmp_path / "m33.o", ("-c", *BOARD_FLAGS["m33"], f"-I{SOURCES}"))
    c_build.compile_c("clang", [source], tmp_path / "pc.o", ("-c", "-O1", f"-I{SOURCES}"))


def test_a_wrong_byte_is_seen(tmp_path: Path) -> None:
    cases = fitting_cases("add", 6, seed=4)
    cases[2].case.expected[-1, -1, -1] ^= 1
    with pytest.raises(AssertionError, match="case 2: byte"):
        check("gcc", program(cases, specialised=False), tmp_path / "wrong", ("-O0",))
