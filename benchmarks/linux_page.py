"""The Linux benchmark's table and plot."""

from __future__ import annotations

import io
from typing import Any

_HEAD = """\
Made by `make bench-linux`: two agents in network namespaces, a core each, joined by a veth pair behind `tc tbf`; TFLite
with XNNPACK in one thread; random weights; every output equal to the whole model's in the same kernels. Measured on the
nodes' clocks over {inferences} inferences each, but for *predicted*: the max-plus replay of the measured work per stage
over the measured link. *exchange*: from the moment when all that a stage reads is computed, on whichever node, to its
beginning to compute, summed over the stages. *bytes*: payload of one inference in the direction that carries more.
*bound*: 1.15 bytes / rate + 150 us for each exchange."""


def page(document: dict[str, Any]) -> str:
    """The table as Markdown."""
    lines = ["# Two Linux nodes on a wire of known rate", ""]
    lines += [_HEAD.format(inferences=document["inferences"]), ""]
    lines += [f"- {name}: {text}" for name, text in document["versions"].items()]
    lines.append(f"- load average before and after: {', '.join(map(str, document['load_average']))}")
    for link in document["links"]:
        name = f"{link['rate_mbit']} Mbit/s" if link["rate_mbit"] else "no limit"
        rate, latency = link["bytes_per_second"] / 1e6, link["latency_s"] * 1e6
        lines.append(
            f"- link, {name}: {rate:.2f} MB/s of payload, {latency:.0f} us, "
            f"{link['burst_bytes']:,} bytes at once after a pause"
        )
    lines += [
        "",
        "| model | nodes | Mbit/s | S_comm | median ms | p95 ms | of one node | compute ms | exchange ms | bound ms ",
    ]
    lines[-1] += "| exchanges | bytes | predicted ms | off by |"
    lines.append("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    alone = {row["model"]: row["median_ms"] for row in document["rows"] if row["nodes"] == 1}
    for row in document["rows"]:
        rate = "-" if row["nodes"] == 1 else row["rate_mbit"] or "no limit"
        lines.append(
            f"| {row['model']} | {row['nodes']} | {rate} | {row['sparsity']:.0%} | {row['median_ms']:.2f} | "
            f"{row['p95_ms']:.2f} | {row['median_ms'] / alone[row['model']]:.2f} | {row['compute_ms']:.2f} | "
            f"{row['exchange_ms']:.2f} | {_bound(row)} | {row['exchanges']} | {row['bytes']:,} | "
            f"{row['predicted_ms']:.2f} | {row['predicted_ms'] / row['median_ms'] - 1:+.1%} |"
        )
    return "\n".join(lines) + "\n"


def _bound(row: dict[str, Any]) -> str:
    if not row["rate_mbit"]:
        return "-"
    return f"{1.15e3 * row['bytes'] * 8 / (row['rate_mbit'] * 1e6) + 0.15 * row['exchanges']:.2f}"


def plot(document: dict[str, Any]) -> bytes | None:
    """Latency over sparsity, a panel per model, as the bytes of a PNG file; None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    models = list(dict.fromkeys(row["model"] for row in document["rows"]))
    figure = Figure(figsize=(5 * len(models), 4), layout="constrained")
    for axes, model in zip(figure.subplots(1, len(models), squeeze=False)[0], models, strict=True):
        rows = [row for row in document["rows"] if row["model"] == model]
        for number, rate in enumerate(dict.fromkeys(row["rate_mbit"] for row in rows if row["nodes"] == 2)):
            at_rate = [row for row in rows if row["nodes"] == 2 and row["rate_mbit"] == rate]
            places = range(len(at_rate))
            name = f"{rate} Mbit/s" if rate else "no limit"
            axes.plot(places, [row["median_ms"] for row in at_rate], f"C{number}o-", label=name)
            axes.plot(places, [row["predicted_ms"] for row in at_rate], f"C{number}x:", label=f"{name}, predicted")
            axes.set_xticks(places, [f"{row['sparsity']:.0%}" for row in at_rate])
        axes.axhline(next(row["median_ms"] for row in rows if row["nodes"] == 1), color="black", label="one node")
        axes.set_title(model)
        axes.set_xlabel("communication sparsity of every layer")
        axes.set_ylabel("latency, ms (median)")
        axes.set_yscale("log")
        axes.legend(fontsize="small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    return buffer.getvalue()
