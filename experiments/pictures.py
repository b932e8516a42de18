"""Accuracy against latency, and accuracy against the number of branches, as PNG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from networks import SYSTEM
from summary import METHODS, NAMES

from disco_targets.errors import DiscoError

if TYPE_CHECKING:
    from pathlib import Path

    from summary import Results

_STYLES = {"dense": "ks", "disco": "C0o-", "random": "C1^--", "scratch": "C3x", "uniform": "C2D", "equilibrium": "C4*"}


def draw(results: Results, folder: Path) -> None:
    """`latency_NETWORK.png` and `branches.png`, of what there are results of.

    Raises:
        DiscoError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DiscoError("the pictures need matplotlib: pip install 'disco-edge[plot]'") from error
    for network in ("cnn", "deit"):
        if results.all("latency", network):
            figure = Figure(figsize=(7, 4.5), layout="constrained")
            _against_latency(figure.subplots(), results, network)
            figure.savefig(folder / f"latency_{network}.png", dpi=120, metadata={"Software": None})
    if results.all("branches"):
        figure = Figure(figsize=(7.5, 4), layout="constrained")
        _against_branches(figure.subplots(), results)
        figure.savefig(folder / "branches.png", dpi=120, metadata={"Software": None})


def _against_latency(axes: Any, results: Results, network: str) -> None:
    for method, style in _STYLES.items():
        points = results.all("latency", network, method)
        if method in ("uniform", "equilibrium"):
            points = [point for point in results.all("balance", network, method) if point.sparsity == 1]
        if not points:
            continue
        axes.errorbar(
            [point.latency_ms for point in points],
            [100 * point.mean for point in points],
            [100 * point.spread for point in points],
            fmt=style,
            capsize=3,
            label=METHODS[method],
        )
        if method == "disco":
            for point in points:
                # 99 % lies where 100 % does, or nearly: its label goes above and to the left.
                place, align = ((-5, 5), "right") if point.sparsity == 0.99 else ((5, -11), "left")
                axes.annotate(
                    f"{point.sparsity:.0%}",
                    (point.latency_ms, 100 * point.mean),
                    xytext=place,
                    textcoords="offset points",
                    ha=align,
                    fontsize=8,
                )
    axes.set(
        xscale="log",
        xlabel="projected latency in ms",
        ylabel="accuracy in %",
        title=f"{NAMES[network]}, two nodes ({SYSTEM})",
    )
    axes.margins(x=0.08)  # room for the labels on the left
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.grid(alpha=0.3)
    axes.legend()


def _against_branches(axes: Any, results: Results) -> None:
    lines = (("dense", 0.0, "dense"), ("disco", 0.9, "10 % communication"), ("disco", 0.99, "1 % communication"),
             ("disco", 1.0, "none, pruned"), ("scratch", 1.0, "none, from scratch"))  # fmt: skip
    for method, sparsity, label in lines:
        points = [point for point in results.all("branches", method=method) if point.sparsity == sparsity]
        axes.errorbar(
            [point.nodes for point in points],
            [100 * point.mean for point in points],
            [100 * point.spread for point in points],
            fmt="o-",
            capsize=3,
            label=label,
        )
    axes.set(xscale="log", xticks=[2, 4, 8], xticklabels=["2", "4", "8"], xlabel="branches", ylabel="accuracy in %",
             title="Narrow branches, one on each node")  # fmt: skip
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
