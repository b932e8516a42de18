"""The latency model and the planner: the paper's figures, every choice of the convention, and hand-made layers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_planning.latency import (
    Cluster,
    Convention,
    equal_cluster,
    latencies,
    layer_costs,
    one_node_seconds,
    total_seconds,
)
from disco_planning.layers import Layer
from disco_planning.planner import equilibrium, for_latency, mean_sparsity, uniform
from disco_planning.sources import load_network
from disco_planning.systems import known_systems, load_system
from disco_planning.units import format_rate, format_time, parse_bandwidth, parse_compute, parse_time
from disco_targets.errors import DiscoError, UsageError

PAPER = equal_cluster(2, 37.5e6, 125e9)


def conv(name: str, in_ch: int, out_ch: int, src: int = 0, groups: int = 1, size: int = 8) -> Layer:
    """3x3, stride 1, size x size pixels."""
    macs = size * size * 9 * in_ch * out_ch // groups
    return Layer(name, in_ch, out_ch, (3, 3), (1, 1), size, size, groups, macs, size, size, (1, 1), src)


def total(layers, sparsity: float, cluster: Cluster = PAPER, **choices) -> float:
    convention = Convention(**choices)
    costs = layer_costs(layers, cluster, convention)
    return total_seconds(latencies(costs, uniform(costs, sparsity), convention))


@pytest.mark.parametrize(
    ("model", "sparsity", "seconds"),
    [
        ("resnet50", 0.0, 1.14),
        ("resnet50", 0.8, 0.24),
        ("resnet50", 0.99, 0.035),
        ("resnet50", 1.0, 0.032),
        ("deeplabv3plus_resnet101", 0.0, 12.3),
        ("deeplabv3plus_resnet101", 0.95, 1.24),
        ("deeplabv3plus_resnet101", 0.99, 0.89),
        ("deeplabv3plus_resnet101", 1.0, 0.87),
    ],
)
def test_the_figures_of_the_paper(model: str, sparsity: float, seconds: float) -> None:
    assert total(load_network(f"zoo:{model}").layers, sparsity) == pytest.approx(seconds, rel=0.01)


def test_the_equilibrium_of_the_paper() -> None:
    layers = load_network("zoo:resnet50").layers
    costs = layer_costs(layers, PAPER)
    balanced = equilibrium(costs)
    seconds = total_seconds(latencies(costs, balanced))
    assert mean_sparsity(costs, balanced) == pytest.approx(0.9624, rel=1e-3)
    assert seconds == pytest.approx(32.66e-3, rel=1e-3)
    assert total(layers, 0.9948) == pytest.approx(seconds, rel=1e-3)


def test_a_layer_by_hand() -> None:
    # 4 channels of 8x8 float32 at 1024 B/s take 1 s; 2 * 9216 operations on 2 nodes at 9216 / s take 1 s.
    layer = conv("a", 4, 4)
    (cost,) = layer_costs([layer], equal_cluster(2, 1024.0, 9216.0))
    assert (cost.transfer_seconds, cost.compute_seconds, cost.sub_rows) == (1.0, (1.0, 1.0), 4)
    (row,) = latencies([cost], {"a": 0.5})
    assert (row.comm_seconds, row.comp_seconds, row.seconds) == (0.5, 0.75, 0.75)
    assert one_node_seconds([layer], equal_cluster(2, 1024.0, 9216.0)) == 2.0


def test_one_node_moves_nothing() -> None:
    (cost,) = layer_costs([conv("a", 4, 4)], equal_cluster(1, 1.0, 9216.0))
    assert not cost.prunable
    assert (cost.transfer_seconds, cost.compute_seconds) == (0.0, (2.0,))


@given(
    bandwidth=st.floats(1e3, 1e9),
    rate=st.floats(1e6, 1e12),
    nodes=st.sampled_from([2, 4, 8]),
    channels=st.sampled_from([8, 16, 64]),
)
def test_equilibrium_balances_or_is_zero(bandwidth: float, rate: float, nodes: int, channels: int) -> None:
    (cost,) = layer_costs([conv("a", channels, channels)], equal_cluster(nodes, bandwidth, rate))
    s, t, k = cost.equilibrium(), cost.transfer_seconds, cost.compute_seconds[0]
    if t <= k:
        assert s == 0
    else:
        assert 0 < s < 1
        assert cost.comm(s) == pytest.approx(cost.comp(s), rel=1e-6)
        assert cost.comp(s) == pytest.approx(t * k / (nodes * t - (nodes - 1) * k), rel=1e-6)


@given(weights=st.lists(st.integers(1, 9), min_size=2, max_size=4), bandwidth=st.floats(1e3, 1e6))
def test_equilibrium_of_unequal_nodes_is_where_the_slowest_node_meets_the_link(weights, bandwidth: float) -> None:
    # Shares of 2520ths divide 2520 channels whatever the weights are.
    shares = tuple(w / sum(weights) for w in weights)
    cluster = Cluster(bandwidth, tuple(1e9 / (i + 1) for i in range(len(weights))), shares)
    (cost,) = layer_costs([conv("a", 2520, 2520)], cluster, Convention(indivisible="pruned"))
    s = cost.equilibrium()
    if cost.transfer_seconds > max(cost.compute_seconds):
        assert cost.comm(s) == pytest.approx(cost.comp(s), rel=1e-6)
    else:
        assert s == 0


def test_shares_follow_the_speed_of_the_nodes() -> None:
    layer = conv("a", 8, 8)
    even = total([layer], 1.0, Cluster(1.0, (3e6, 1e6), (0.5, 0.5)))
    fitted = total([layer], 1.0, Cluster(1.0, (3e6, 1e6), (0.75, 0.25)))
    # At S = 1 node k keeps p_k of its weights: 3/4 of 3/4 of the work at 3e6, or 1/2 of 1/2 at 1e6.
    operations = 2 * layer.macs
    assert even == pytest.approx(operations * 0.25 / 1e6)
    assert fitted == pytest.approx(operations * 0.5625 / 3e6)


def test_indivisible_layers_stay_dense_unless_asked_otherwise() -> None:
    stem = conv("stem", 3, 8)
    assert total([stem], 1.0) == total([stem], 0.0)
    assert total([stem], 1.0, indivisible="pruned") < total([stem], 0.0) / 10


def test_depthwise_layers_move_nothing() -> None:
    (cost,) = layer_costs([conv("a", 8, 8, groups=8)], PAPER)
    assert (cost.transfer_seconds, cost.prunable, cost.sub_rows) == (0.0, False, 0)
    # Two groups lie within two nodes, but not within four.
    grouped = conv("a", 8, 8, groups=2)
    assert layer_costs([grouped], PAPER)[0].transfer_seconds == 0
    assert layer_costs([grouped], equal_cluster(4, 37.5e6, 125e9))[0].transfer_seconds > 0


@pytest.mark.parametrize(
    ("traffic", "nodes", "passes"),
    [("broadcast", 4, 1.0), ("unicast", 4, 1.5), ("receive", 4, 0.75), ("unicast", 2, 1.0)],
)
def test_traffic(traffic: str, nodes: int, passes: float) -> None:
    layer = conv("a", 8, 8)
    (cost,) = layer_costs([layer], equal_cluster(nodes, 1.0, 1.0), Convention(traffic=traffic))
    assert cost.transfer_seconds == pytest.approx(4 * layer.input_values * passes)


def test_a_shared_tensor_counts_for_each_reader_or_once() -> None:
    readers = [conv("a", 8, 8, src=1), conv("dw", 8, 8, src=1, groups=8), conv("b", 8, 8, src=1)]
    each = layer_costs(readers, PAPER)
    once = layer_costs(readers, PAPER, Convention(shared_tensors="once"))
    assert [cost.transfer_seconds > 0 for cost in each] == [True, False, True]
    assert [cost.transfer_seconds > 0 for cost in once] == [True, False, False]
    # Sent once for the reader that wants most of it.
    rows = latencies(once, {"a": 0.9, "b": 0.5}, Convention(shared_tensors="once"))
    assert rows[0].comm_seconds == pytest.approx(once[0].transfer_seconds * 0.5)
    balanced = equilibrium(once)
    assert balanced["a"] == balanced["b"] > 0


def test_rounding_overlap_value_size_operations_and_exclusion() -> None:
    layers = [conv("a", 8, 8), conv("a.downsample", 8, 8)]
    costs = layer_costs(layers, PAPER)
    assert latencies(costs, {"a": 0.9}, Convention(rounding="sub-rows"))[0].sparsity == 7 / 8
    (one,) = latencies(costs[:1], {"a": 0.5}, Convention(overlap="sum"))
    assert one.seconds == one.comm_seconds + one.comp_seconds
    assert layer_costs(layers, PAPER, Convention(value_bytes=1))[0].transfer_seconds * 4 == costs[0].transfer_seconds
    assert layer_costs(layers, PAPER, Convention(operations_per_mac=1))[0].compute_seconds[0] * 2 == pytest.approx(
        costs[0].compute_seconds[0]
    )
    assert [c.layer.name for c in layer_costs(layers, PAPER, Convention(exclude=("*downsample",)))] == ["a"]
    with pytest.raises(UsageError, match="no layer is left"):
        layer_costs(layers, PAPER, Convention(exclude=("*",)))


@pytest.mark.parametrize(
    "choices", [{"traffic": "x"}, {"overlap": "none"}, {"value_bytes": 0}, {"operations_per_mac": float("nan")}]
)
def test_a_wrong_choice_is_named(choices) -> None:
    with pytest.raises(UsageError, match=next(iter(choices))):
        Convention(**choices)


@pytest.mark.parametrize("profile", ["uniform", "equilibrium"])
@pytest.mark.parametrize("milliseconds", [1000, 240, 40, 32.66, 32])
def test_target_latency_is_met_with_no_more_sparsity_than_it_takes(profile: str, milliseconds: float) -> None:
    costs = layer_costs(load_network("zoo:resnet50").layers, PAPER)
    plan = for_latency(costs, milliseconds / 1e3, profile)
    reached = total_seconds(latencies(costs, plan))
    assert reached <= milliseconds / 1e3
    assert reached == pytest.approx(milliseconds / 1e3, rel=1e-6)
    assert all(0 <= s <= 1 for s in plan.values())


def test_target_latency_at_the_ends() -> None:
    costs = layer_costs(load_network("zoo:resnet50").layers, PAPER)
    assert not any(for_latency(costs, 2.0).values())
    with pytest.raises(DiscoError, match=r"3 ms cannot be reached.*31.94 ms"):
        for_latency(costs, 0.003)
    with pytest.raises(UsageError, match="profile"):
        for_latency(costs, 0.1, "none")


def test_at_one_latency_the_equilibrium_sends_more_than_uniform_sparsity() -> None:
    costs = layer_costs(load_network("zoo:resnet50").layers, PAPER)
    balanced = equilibrium(costs)
    same = for_latency(costs, total_seconds(latencies(costs, balanced)))
    assert mean_sparsity(costs, same) == pytest.approx(0.9948, abs=1e-4)
    assert mean_sparsity(costs, balanced) < mean_sparsity(costs, same) - 0.03


@pytest.mark.parametrize("sparsity", [-0.1, 1.1, float("nan")])
def test_sparsity_outside_of_its_range(sparsity: float) -> None:
    with pytest.raises(UsageError, match="between 0"):
        uniform(layer_costs([conv("a", 8, 8)], PAPER), sparsity)


@pytest.mark.parametrize(
    ("shares", "message"),
    [((0.5, 0.6), "sum to 1.1"), ((0.5,), "1 shares for 2 nodes"), ((1.5, -0.5), "above 0"), ((), "0 shares")],
)
def test_shares_that_do_not_sum(shares: tuple[float, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Cluster(1.0, (1.0, 1.0), shares)


def test_no_node() -> None:
    with pytest.raises(UsageError, match="at least one"):
        equal_cluster(0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("37.5MB/s", 37.5e6),
        ("300Mbit/s", 37.5e6),
        ("1 Gbps", 1.25e8),
        ("2KiB/s", 2048),
        ("1e3B/s", 1e3),
        (".5kB/s", 500),
    ],
)
def test_bandwidths(text: str, value: float) -> None:
    assert parse_bandwidth(text) == pytest.approx(value)


def test_compute_rates_and_times() -> None:
    assert parse_compute("125GOP/s") == parse_compute("125GFLOPS") == 125e9
    assert parse_compute("1.33TFLOP/s") == 1.33e12
    assert parse_time("35ms") == pytest.approx(0.035)
    assert parse_time("2s") == 2
    assert parse_time("500us") == pytest.approx(5e-4)


@pytest.mark.parametrize(
    "text", ["", "fast", "12", "12 parsecs", "-1MB/s", "0MB/s", "37.5mB/s", "1e999MB/s", "1,5MB/s"]
)
def test_units_that_do_not_parse(text: str) -> None:
    with pytest.raises(UsageError, match=r"write it like 37\.5MB/s"):
        parse_bandwidth(text)


def test_figures_read_well() -> None:
    assert [format_time(s) for s in (1.1375, 0.03266, 2.5e-5)] == ["1.137 s", "32.66 ms", "25 µs"]
    assert format_rate(37.5e6, "B/s") == "37.5 MB/s"
    assert format_rate(125e9, "OP/s") == "125 GOP/s"


def test_a_uart_takes_ten_bits_a_byte() -> None:
    assert load_system("stm32h743-uart").bandwidth_bytes_per_s == 12.5e6 / 10


def test_every_system_loads_and_names_its_source() -> None:
    assert {"paper", "jetson-nano", "raspberry-pi-4"} <= set(known_systems())
    assert all(load_system(name).source.strip() for name in known_systems())
    paper = load_system("paper")
    assert (paper.bandwidth_bytes_per_s, paper.operations_per_s) == (37.5e6, 125e9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name="a"\nbandwidth="1MB/s"\ncompute="1GOP/s"\nsource="b"\nspeed=1\n', "unknown keys speed"),
        ('name="a"\nbandwidth="1MB/s"\nsource="b"\n', "missing keys compute"),
        ('name="a"\nbandwidth="1MB"\ncompute="1GOP/s"\nsource="b"\n', "unknown unit 'MB'"),
        ('name="a"\nbandwidth=3\ncompute="1GOP/s"\nsource="b"\n', "expected str"),
        ("name=", "cannot be read as TOML"),
    ],
)
def test_a_wrong_system_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(DiscoError, match=message) as caught:
        load_system(str(file))
    assert str(file) in str(caught.value)
    assert caught.value.exit_code == 1


def test_an_unknown_system() -> None:
    with pytest.raises(UsageError, match="did you mean paper"):
        load_system("papr")
    with pytest.raises(DiscoError, match="cannot be read"):
        load_system("nowhere.toml")
