"""`disco-latency`: what it prints and writes, and every error that a user meets."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from disco_planning.cli import main
from disco_planning.sources import _shares
from disco_planning.sparsity_file import read_sparsity
from disco_targets.errors import DiscoError

PAPER = ("--nodes", "2", "--system", "paper")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def run_json(*arguments: str) -> dict:
    assert main([*arguments, "--json", "out.json"]) == 0
    return json.loads(Path("out.json").read_text())


def test_json_has_totals_and_layers(capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json("zoo:resnet50", *PAPER, "--sparsity", "0.99")
    assert document["total_seconds"] == pytest.approx(0.035, rel=0.01)
    assert document["dense_seconds"] == pytest.approx(1.14, rel=0.01)
    assert document["speedup_over_dense"] == document["dense_seconds"] / document["total_seconds"]
    assert document["one_node_seconds"] == pytest.approx(2 * 4089184256 / 125e9)
    assert document["no_exchange_seconds"] == pytest.approx(0.032, rel=0.01)
    assert document["system"]["bandwidth_bytes_per_s"] == 37.5e6
    layers = document["layers"]
    assert len(layers) == 54
    assert sum(layer["seconds"] for layer in layers) == pytest.approx(document["total_seconds"])
    assert (layers[0]["name"], layers[0]["in_ch"], layers[0]["sparsity"]) == ("conv1", 3, 0)
    assert all(layer["seconds"] == max(layer["comm_seconds"], layer["comp_seconds"]) for layer in layers)
    assert {layer["sparsity"] for layer in layers[1:]} == {0.99}
    printed = capsys.readouterr().out
    assert "layer4.0.downsample" in printed
    assert "Total: 35.19 ms" in printed
    assert "Dense exchange: 1.138 s, 32.33 times as long" in printed
    assert "1 of 54 layers stay dense" in printed
    assert "not measured" in printed
    for definition in (
        "S: communication sparsity, the fraction of sub-rows",
        "L_comm: time of",
        "L_comp: of the slowest",
    ):
        assert definition in " ".join(printed.split())


def test_bandwidth_and_compute_say_the_same_as_the_system() -> None:
    given = run_json(
        "zoo:resnet8", "--nodes", "2", "--bandwidth", "300Mbit/s", "--compute", "125GOP/s", "--sparsity", "1"
    )
    assert given["total_seconds"] == run_json("zoo:resnet8", *PAPER, "--sparsity", "1")["total_seconds"]


def test_equilibrium_writes_a_sparsity_file(capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json("zoo:resnet50", *PAPER, "--equilibrium")
    assert document["mean_sparsity"] == pytest.approx(0.9624, rel=1e-3)
    assert document["total_seconds"] == pytest.approx(32.66e-3, rel=1e-3)
    plan = read_sparsity(Path("resnet50.sparsity.json"))
    assert plan.nodes == 2
    assert plan.layers == {layer["name"]: layer["sparsity"] for layer in document["layers"]}
    assert "resnet50.sparsity.json" in capsys.readouterr().out
    again = run_json("zoo:resnet50", *PAPER, "--sparsity", "resnet50.sparsity.json")
    assert again["total_seconds"] == document["total_seconds"]


def test_depthwise_layers_are_not_in_a_sparsity_file() -> None:
    assert main(["zoo:ds_cnn", *PAPER, "--equilibrium", "-o", "plan.json"]) == 0
    assert "blocks.0.pointwise" in read_sparsity(Path("plan.json")).layers
    assert "blocks.0.depthwise" not in read_sparsity(Path("plan.json")).layers


def test_target_latency() -> None:
    document = run_json("zoo:resnet50", *PAPER, "--target-latency", "240ms")
    assert document["total_seconds"] == pytest.approx(0.24)
    assert document["mean_sparsity"] == pytest.approx(0.8, abs=1e-3)
    balanced = run_json("zoo:resnet50", *PAPER, "--target-latency", "35ms", "--profile", "equilibrium")
    assert balanced["total_seconds"] == pytest.approx(0.035)


def test_conventions_have_options() -> None:
    plain = run_json("zoo:resnet50", *PAPER)
    eighth = run_json("zoo:resnet50", *PAPER, "--value-bytes", "1", "--traffic", "receive")
    assert eighth["layers"][0]["comm_seconds"] == plain["layers"][0]["comm_seconds"] / 8
    assert eighth["convention"]["traffic"] == "receive"
    once = run_json("zoo:resnet50", *PAPER, "--shared-tensors", "once", "--exclude", "fc", "--exclude", "conv1")
    assert len(once["layers"]) == 52
    assert once["layers"][3]["comm_seconds"] == 0


def test_sweeps(capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json("zoo:resnet50", *PAPER, "--sparsity", "0.9", "--sweep-nodes")
    points = document["sweep"]
    assert [point["nodes"] for point in points] == list(range(1, 17))
    assert points[1]["uniform_seconds"] == document["total_seconds"]
    assert points[0]["dense_seconds"] == document["one_node_seconds"]
    bandwidths = run_json("zoo:resnet50", *PAPER, "--sweep-bandwidth", "1MB/s..100MB/s")["sweep"]
    assert bandwidths[0]["bandwidth_bytes_per_s"] == pytest.approx(1e6)
    assert bandwidths[-1]["bandwidth_bytes_per_s"] == pytest.approx(1e8)
    dense = [point["dense_seconds"] for point in bandwidths]
    assert dense == sorted(dense, reverse=True)
    assert "S = 0.9" in capsys.readouterr().out


def test_a_bundle_is_taken_as_it_is_pruned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from helpers.tiny_bundle import export_tiny

    bundle = export_tiny(tmp_path / "bundle").path
    prune_half(bundle)
    document = run_json(str(bundle), *PAPER, "--value-bytes", "1")
    assert [layer["sparsity"] for layer in document["layers"]] == [0, 0.5]
    assert main([str(bundle), "--nodes", "4", "--system", "paper"]) == 2
    assert "was cut for 2 nodes" in capsys.readouterr().err


def test_a_bundle_cut_unevenly_is_taken_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """4 channels do not divide by 3, nor by 0.7 and 0.3: a bundle has them shared out and pruned all the same."""
    from helpers.tiny_bundle import export_tiny

    bundle = export_tiny(tmp_path / "three", 3).path
    prune_half(bundle)
    document = run_json(str(bundle), "--nodes", "3", "--system", "paper")
    assert [layer["sparsity"] for layer in document["layers"]] == [0, 0.5]
    assert document["system"]["shares"] == [1 / 3] * 3  # 2, 1 and 1 of 4 channels: equal as far as it goes
    assert main([str(bundle), "--nodes", "3", "--system", "paper", "-o", "plan.json", "--indivisible", "pruned"]) == 0
    printed = capsys.readouterr().out
    assert "1 of 2 layers stay dense" in printed  # the RGB input
    assert "for disco_pruning, give MODEL as the .onnx" in printed
    again = run_json(str(bundle), "--nodes", "3", "--system", "paper", "--sparsity", "plan.json")
    assert again["total_seconds"] == document["total_seconds"]

    manifest = json.loads((bundle / "bundle.json").read_text())
    for tensor in manifest["tensors"][1:]:
        tensor["owners"] = [0, 0, 0, 1]
    manifest["nodes"] = 2
    (bundle / "bundle.json").write_text(json.dumps(manifest))
    document = run_json(str(bundle), *PAPER)
    assert document["system"]["shares"] == [0.75, 0.25]
    assert run_json(str(bundle), *PAPER, "--shares", "3,1")["total_seconds"] == document["total_seconds"]


def test_a_sparsity_is_of_one_cut_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from helpers.tiny_bundle import export_tiny

    bundle = str(export_tiny(tmp_path / "bundle").path)
    assert main([bundle, *PAPER, "--shares", "3,1"]) == 2
    assert "was cut with other shares than 3,1" in capsys.readouterr().err
    assert run_json(bundle, *PAPER, "--shares", "1.01,1")["system"]["shares"][0] > 0.5  # the same channels
    assert run_json(bundle, *PAPER, "--shares", "3,1", "--sparsity", "0.5")["mean_sparsity"] == 0.5
    # A file is told by what was planned for it, whatever the model.
    uneven = ("zoo:resnet8", *PAPER, "--shares", "3,1")
    assert main([*uneven, "--equilibrium"]) == 0
    assert read_sparsity(Path("resnet8.sparsity.json")).shares == (0.75, 0.25)
    assert main([*uneven, "--sparsity", "resnet8.sparsity.json"]) == 0
    capsys.readouterr()
    assert main(["zoo:resnet8", *PAPER, "--sparsity", "resnet8.sparsity.json"]) == 1
    assert "was made for other shares than 0.5, 0.5 (for 0.75, 0.25): use --shares" in capsys.readouterr().err
    assert main(["zoo:resnet8", *PAPER, "--equilibrium"]) == 0
    assert main([*uneven, "--sparsity", "resnet8.sparsity.json"]) == 1
    assert "(for equal ones)" in capsys.readouterr().err


def prune_half(bundle: Path) -> None:
    manifest = json.loads((bundle / "bundle.json").read_text())
    for op in manifest["ops"]:
        op["sub_rows_pruned"] = op["sub_rows"] // 2
    (bundle / "bundle.json").write_text(json.dumps(manifest))


def test_a_softmax_on_one_node_makes_no_node_larger() -> None:
    owners = [[0] * 16 + [1] * 16, [0] * 10, [0, 0, 0, -1, 1, 1], "replicated"]
    assert _shares(owners, 2) is None
    assert _shares([[0, 0, 0, 1], [0] * 10], 2) == (0.75, 0.25)


def test_shares_may_be_a_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    ratio = run_json("zoo:resnet8", *PAPER, "--shares", "3,1")
    assert "shares 0.75:0.25" in capsys.readouterr().out
    assert ratio["system"]["shares"] == [0.75, 0.25]
    assert ratio["total_seconds"] == run_json("zoo:resnet8", *PAPER, "--shares", "0.75,0.25")["total_seconds"]


def test_a_replicated_input_costs_nothing() -> None:
    assert main(["zoo:resnet8", *PAPER, "--input", "replicated", "--equilibrium", "--json", "plan.json"]) == 0
    layers = json.loads(Path("plan.json").read_text())["layers"]
    assert (layers[0]["comm_seconds"], layers[0]["prunable"]) == (0, False)
    assert all(layer["comm_seconds"] > 0 for layer in layers[1:])
    names = read_sparsity(Path("resnet8.sparsity.json")).layers
    assert list(names) == [layer["name"] for layer in layers[1:]]


def test_the_plan_of_an_onnx_file_is_used(tmp_path: Path) -> None:
    """Names of the planned network where the file is of one that wraps it, and its shares."""
    torch = pytest.importorskip("torch", reason="needs PyTorch (disco-edge[prune])")
    pytest.importorskip("onnxscript", reason="needs onnxscript (disco-edge[prune])")
    from disco_pruning import export_onnx, load_sparsity, plan, prune

    inner = torch.nn.Sequential(torch.nn.Conv2d(3, 10, 3), torch.nn.ReLU(), torch.nn.Conv2d(10, 10, 3))
    image = torch.zeros(1, 3, 8, 8)
    cut = plan(inner, image, 2, (0.7, 0.3))
    wrapped = torch.nn.Sequential(inner, torch.nn.Softmax(1))
    export_onnx(wrapped, "planned.onnx", image, cut)
    arguments = (*PAPER, "--input", "replicated", "--equilibrium", "-o", "plan.json")
    document = run_json("planned.onnx", *arguments)
    assert document["system"]["shares"] == [0.7, 0.3]
    assert [layer["name"] for layer in document["layers"]] == ["0", "2"]
    assert read_sparsity(Path("plan.json")).layers.keys() == {"2"}
    prune(cut, load_sparsity("plan.json", cut))
    # Without the plan the names are those of the wrapper, and shares equal; the pruner finds its layers all the same.
    export_onnx(wrapped, "wrapped.onnx", image)
    assert run_json("wrapped.onnx", *arguments)["system"]["shares"] == [0.5, 0.5]
    with pytest.raises(DiscoError, match=r"of equal size and the plan for 0\.7, 0\.3"):
        load_sparsity("plan.json", cut)
    run_json("wrapped.onnx", *arguments, "--shares", "7,3")
    assert read_sparsity(Path("plan.json")).layers.keys() == {"0.2"}
    assert load_sparsity("plan.json", cut).keys() == {"2"}


def test_a_plot_is_a_png() -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib: pip install 'disco-edge[plot]'")
    assert main(["zoo:resnet8", *PAPER, "--equilibrium", "--plot", "a.png"]) == 0
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    assert main(["zoo:resnet8", "--nodes", "1", "--system", "paper", "--plot", "b.png"]) == 0


def test_a_plot_without_matplotlib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["zoo:resnet8", *PAPER, "--plot", "a.png", "--json", "a.json"]) == 1
    assert "pip install 'disco-edge[plot]'" in capsys.readouterr().err
    assert not list(Path().iterdir())


def test_help_has_examples_models_and_systems(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for expected in ("examples:", "zoo:deeplabv3plus_resnet101", "jetson-nano", "--sweep-bandwidth 1MB/s..1GB/s"):
        assert expected in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["zoo:vgg", *PAPER], 2, "choose one of"),
        (["zoo:resnet8", *PAPER, "--sparsity", "1.01"], 2, "sparsity is 1.01: it must lie between 0"),
        (["zoo:resnet8", *PAPER, "--sparsity", "nan"], 2, "must lie between 0"),
        (["zoo:resnet8", *PAPER, "--sparsity", "most"], 2, "neither a number"),
        (["zoo:resnet8", *PAPER, "--sparsity", "a.json"], 1, "cannot be read"),
        (["zoo:resnet8", *PAPER, "--shares", "0.5,0.4"], 2, "add up to 0.9, not 1"),
        (["zoo:resnet8", *PAPER, "--shares", "half,half"], 2, "a number above zero"),
        (["zoo:resnet8", "--nodes", "3", "--system", "paper", "--equilibrium"], 2, "--indivisible pruned"),
        (["zoo:resnet8", "--nodes", "3", "--system", "paper", "--target-latency", "1ms"], 2, "--indivisible pruned"),
        (["zoo:resnet8", "--nodes", "1", "--system", "paper", "--equilibrium"], 2, "nothing is exchanged"),
        (["zoo:resnet8", *PAPER, "--shares", "0.5,0.3,0.2"], 2, "3 shares for 2 nodes"),
        (["zoo:resnet8", "--nodes", "2"], 2, "--system NAME, or --bandwidth and --compute"),
        (["zoo:resnet8", *PAPER, "--compute", "1GOP/s"], 2, "leave --bandwidth and --compute away"),
        (["zoo:resnet8", "--nodes", "2", "--bandwidth", "3MB", "--compute", "1GOP/s"], 2, "unknown unit 'MB'"),
        (["zoo:resnet8", "--nodes", "2", "--bandwidth", "3MB/s", "--compute", "1"], 2, "has no unit"),
        (["zoo:resnet8", "--nodes", "3", "--bandwidth", "3MB/s", "--compute", "1GOP/s,2GOP/s"], 2, "names 2 nodes"),
        (["zoo:resnet8", "--nodes", "0", "--system", "paper"], 2, "at least one"),
        (["zoo:resnet8", "--nodes", "2", "--system", "papre"], 2, "did you mean paper"),
        (["zoo:resnet8", *PAPER, "--target-latency", "fast"], 2, "write it like 35ms"),
        (["zoo:resnet8", *PAPER, "--target-latency", "1us"], 1, "cannot be reached"),
        (["zoo:resnet8", *PAPER, "--sweep-bandwidth", "1MB/s"], 2, "is no range"),
        (["zoo:resnet8", *PAPER, "--sweep-nodes", "--shares", "0.75,0.25"], 2, "over equal nodes"),
        (["zoo:resnet8", *PAPER, "--profile", "equilibrium"], 2, "--profile equilibrium says how --target-latency"),
        (["zoo:resnet8", *PAPER, "--equilibrium", "--profile", "uniform"], 2, "give both, or leave it out"),
        (
            ["zoo:resnet8", *PAPER, "--exclude", "stem", "--exclude", "*sample"],
            2,
            "--exclude *sample: resnet8 has no layer",
        ),
        (["zoo:resnet8", "--nodes", "1", "--system", "paper", "--sparsity", "0.9"], 2, "nothing is exchanged"),
        (["zoo:resnet8", *PAPER, "--value-bytes", "0"], 2, "value_bytes is 0"),
        (["zoo:resnet8", *PAPER, "--json", "a", "--plot", "a"], 2, "name the same file"),
        (["zoo:resnet8", *PAPER, "--json", "missing/a.json"], 1, "cannot be written"),
    ],
)
def test_errors(arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert not list(Path().iterdir())


def test_only_one_sparsity() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["zoo:resnet8", *PAPER, "--sparsity", "0.5", "--equilibrium"])
    assert caught.value.code == 2


def test_a_sparsity_file_for_another_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo:resnet8", *PAPER, "--equilibrium"]) == 0
    assert main(["zoo:ds_cnn", *PAPER, "--sparsity", "resnet8.sparsity.json"]) == 1
    assert "names layers that ds_cnn does not have" in capsys.readouterr().err
    assert main(["zoo:resnet8", "--nodes", "4", "--system", "paper", "--sparsity", "resnet8.sparsity.json"]) == 1
    assert "was made for 2 nodes" in capsys.readouterr().err
