"""Chooses a kernel for each op of a node: the fewest instructions that the flash and RAM at hand allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from disco_converter.lowering import LoweredOp
from disco_firmware.footprint import RUNTIME_FLASH_BYTES
from disco_firmware.variants import portable
from disco_firmware.variants.base import Constants, Layer, Variant
from disco_firmware.variants.registry import candidates

OPTIMIZE = ("none", "size", "balanced", "speed")
BALANCED_SHARE = 1 / 20
"""Of a board's flash: `balanced` may always spend as much. The slices of a small network are small."""
_FACTORS = {"balanced": 2.5, "speed": float("inf")}
"""Up to how many times the smallest constants are spent."""


@dataclass(frozen=True)
class Limits:
    """What a board leaves for a node's kernels; None where nothing limits it."""

    instruction_set: str
    flash_bytes: int | None
    scratch_bytes: int | None


@dataclass(frozen=True, eq=False)
class Kernel:
    """One way to compute one op, and what it takes."""

    layer: Layer
    variant: Variant | None
    """None: the portable kernel."""
    constants: Constants
    scratch_bytes: int
    row_step: int
    code_bytes: int
    """Estimate of the code specialised for the op; the portable kernels' belongs to the runtime."""
    instructions: int
    """Predicted for one inference."""

    @property
    def name(self) -> str:
        """As shown in tables."""
        return portable.NAME if self.variant is None else self.variant.name

    @property
    def delay(self) -> float:
        """By which kernels are compared."""
        return self.layer.delay(self.instructions, self.row_step)

    @property
    def flash_bytes(self) -> int:
        """Constants and code."""
        return self.constants.bytes + self.code_bytes


def choose_kernels(ops: Sequence[LoweredOp], limits: Limits, optimize: str) -> tuple[Kernel, ...]:
    """A kernel for every op, in order.

    Starts from the smallest for every op, then takes, as far as the mode goes, the change that saves most instructions
    per byte. Where rows stream, those until the first rows are there count twice.

    Args:
        ops: A node's program.
        limits: Of its board.
        optimize: One of OPTIMIZE. `none`: the portable kernels, to compare with; `size`: a faster kernel where it saves
            a larger share of the node's instructions than it adds to its flash, code included, and no Winograd;
            `balanced`: constants of up to two and a half times the smallest, such as int16 weights, or BALANCED_SHARE
            of the flash if that is more; `speed`: up to the board's flash.
    """
    if optimize == "none":
        return tuple(_portable(op.layer, limits) for op in ops)
    choices = [_kernels(op.layer, limits) for op in ops]
    if optimize == "size":
        return _small_and_fast(choices, limits)
    smallest = sum(min(kernel.constants.bytes for kernel in kernels) for kernels in choices)
    *_, chosen = _steps(choices, lambda kernel: kernel.constants.bytes, _budget(smallest, limits, optimize))
    return chosen


def _small_and_fast(choices: Sequence[Sequence[Kernel]], limits: Limits) -> tuple[Kernel, ...]:
    """On the way from the least flash to the fewest instructions: where flash times instructions is least."""

    def product(kernels: Sequence[Kernel]) -> float:
        flash = RUNTIME_FLASH_BYTES + sum(kernel.flash_bytes for kernel in kernels)
        return flash * sum(kernel.delay for kernel in kernels)

    small = [[k for k in kernels if k.variant is None or not k.variant.spends_memory] for kernels in choices]
    budget = _Budget(float("inf"), _flash(limits))
    return min(_steps(small, lambda kernel: kernel.flash_bytes, budget), key=product)


@dataclass(frozen=True)
class _Budget:
    constants: float
    flash: float


def _budget(smallest: int, limits: Limits, optimize: str) -> _Budget:
    least = BALANCED_SHARE * limits.flash_bytes if optimize == "balanced" and limits.flash_bytes is not None else 0.0
    return _Budget(max(smallest * _FACTORS[optimize], least), _flash(limits))


def _flash(limits: Limits) -> float:
    return float("inf") if limits.flash_bytes is None else float(limits.flash_bytes)


def _portable(layer: Layer, limits: Limits) -> Kernel:
    count = portable.instructions(layer, limits.instruction_set)
    return Kernel(layer, None, portable.constants(layer.params), 0, 1, 0, count)


def _kernels(layer: Layer, limits: Limits) -> list[Kernel]:
    kernels = [_portable(layer, limits)]
    for variant in candidates(layer, limits.instruction_set):
        kernel = Kernel(
            layer,
            variant,
            variant.constants(layer),
            variant.scratch_bytes(layer),
            variant.row_step(layer),
            variant.code_bytes(layer),
            variant.instructions(layer),
        )
        if (limits.scratch_bytes is None or kernel.scratch_bytes <= limits.scratch_bytes) and (
            layer.most_rows is None or kernel.row_step <= layer.most_rows
        ):
            kernels.append(kernel)
    return kernels


def _steps(
    choices: Sequence[Sequence[Kernel]], price: Callable[[Kernel], int], budget: _Budget
) -> Iterator[tuple[Kernel, ...]]:
    """The kernels of lowest price, then each change that saves most instructions for its price, within the budget."""
    chosen = [min(kernels, key=lambda kernel: (price(kernel), kernel.delay)) for kernels in choices]
    yield tuple(chosen)
    while (step := _best_step(choices, chosen, price, budget)) is not None:
        chosen[step[0]] = step[1]
        yield tuple(chosen)


def _best_step(
    choices: Sequence[Sequence[Kernel]], chosen: Sequence[Kernel], price: Callable[[Kernel], int], budget: _Budget
) -> tuple[int, Kernel] | None:
    """(op, kernel): saves most instructions for its price, within the budget; None when nothing does."""
    constants = sum(kernel.constants.bytes for kernel in chosen)
    flash = sum(kernel.flash_bytes for kernel in chosen)
    best: tuple[float, int, Kernel] | None = None
    for index, kernels in enumerate(choices):
        now = chosen[index]
        for kernel in kernels:
            saved = now.delay - kernel.delay
            more = kernel.constants.bytes - now.constants.bytes
            fits = constants + more <= budget.constants and flash + kernel.flash_bytes - now.flash_bytes <= budget.flash
            gain = saved / max(price(kernel) - price(now), 1)
            if saved > 0 and fits and (best is None or gain > best[0]):
                best = gain, index, kernel
    return None if best is None else (best[1], best[2])
