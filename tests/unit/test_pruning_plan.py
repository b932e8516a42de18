"""Which channels each node owns, layer by layer, and what cannot be planned."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import prunable_models as models

torch = pytest.importorskip("torch", reason="needs PyTorch (disco-edge[prune])")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from disco_planning.shares import contiguous_owners  # noqa: E402
from disco_pruning import bake, plan, prune  # noqa: E402
from disco_pruning.models.resnet8 import ResNet8  # noqa: E402
from disco_targets.errors import DiscoError  # noqa: E402

IMAGE = torch.zeros(1, 3, 8, 8)


def owners_of(cut, name):
    layer = cut.layer(name)
    return layer.in_owners, layer.out_owners


@pytest.mark.parametrize(
    ("channels", "nodes", "shares", "sizes"),
    [
        (16, 2, None, [8, 8]),
        (10, 3, None, [4, 3, 3]),
        (5, 4, None, [2, 1, 1, 1]),
        (3, 1, None, [3]),
        (10, 3, (1 / 3, 1 / 3, 1 / 3), [4, 3, 3]),
        (10, 2, (0.7, 0.3), [7, 3]),
        (10, 2, (0.3, 0.7), [3, 7]),
        (10, 2, (0.25, 0.75), [3, 7]),
        (4, 3, (0.9, 0.05, 0.05), [2, 1, 1]),
        (3, 3, (0.98, 0.01, 0.01), [1, 1, 1]),
    ],
)
def test_shares_are_contiguous_and_as_near_as_possible(channels, nodes, shares, sizes):
    owners = contiguous_owners(channels, nodes, shares)
    assert list(owners) == sorted(owners)
    assert [owners.count(k) for k in range(nodes)] == sizes


def test_the_stem_reads_a_replicated_input_and_layers_of_one_tensor_share_an_exchange():
    cut = plan(ResNet8(), torch.zeros(1, 3, 32, 32), 2)
    assert [layer.name for layer in cut.layers if layer.in_owners is None] == ["stem"]
    assert [[layer.name for layer in group] for group in cut.exchanges] == [
        ["stages.0.conv1"],
        ["stages.0.conv2"],
        ["stages.1.conv1", "stages.1.shortcut"],
        ["stages.1.conv2"],
        ["stages.2.conv1", "stages.2.shortcut"],
        ["stages.2.conv2"],
        ["classifier"],
    ]
    assert cut.notes == ()
    assert sum(layer.macs for layer in cut.layers) == 12_501_632


def test_depthwise_layers_are_local_and_odd_channels_follow_the_shares():
    model, example = models.build("mobilenet")
    cut = plan(model, example, 2, shares=(0.6, 0.4))
    assert cut.local == tuple(f"blocks.{index}.depthwise.0" for index in range(4))
    assert owners_of(cut, "blocks.0.project.0") == ((0,) * 11 + (1,) * 7, (0,) * 4 + (1,) * 3)
    assert owners_of(cut, "blocks.1.expand.0") == ((0,) * 4 + (1,) * 3, (0,) * 13 + (1,) * 8)
    assert owners_of(cut, "classifier.1") == ((0,) * 6 + (1,) * 4, (0, 0, 1, 1))


def test_a_flattened_image_gives_each_channel_its_pixels():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 2))
    assert plan(model, IMAGE, 2).layers[1].in_owners == (0,) * 32 + (1,) * 32


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize(("heads", "nodes"), [(4, 2), (3, 2), (6, 4)])
def test_attention_is_cut_by_heads(by_hand, heads, nodes):
    model = models.Attention(heads, 24, by_hand)
    cut = plan(model, torch.zeros(1, 5, 7), nodes)
    per_head = [node for node in contiguous_owners(heads, nodes) for _ in range(24 // heads)]
    assert cut.layer("qkv").out_owners == tuple(3 * per_head)
    assert cut.layer("project").in_owners == tuple(per_head)
    assert cut.layer("project").out_owners == contiguous_owners(24, nodes)
    assert cut.layer("head").in_owners == contiguous_owners(24, nodes)
    assert cut.notes == ()


def test_separate_projections_and_the_built_in_module_are_cut_by_heads_too():
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(7, 12)
            self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
            self.query, self.key, self.value = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 12)

        def forward(self, x):
            x = self.embed(x)
            x = x + self.attention(x, x, x, need_weights=False)[0]
            q, k, v = (part(x).unflatten(-1, (3, 4)).transpose(1, 2) for part in (self.query, self.key, self.value))
            return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    cut = plan(Layer(), torch.zeros(1, 5, 7), 2)
    heads = (0,) * 8 + (1,) * 4
    assert cut.layer("attention.in_proj_weight").out_owners == 3 * heads
    assert cut.layer("attention.out_proj").in_owners == heads
    assert {cut.layer(name).out_owners for name in ("query", "key", "value")} == {heads}
    assert [len(group) for group in cut.exchanges] == [1, 1, 3]


def test_layer_norm_keeps_ownership_and_its_exchange_is_told():
    cut = plan(models.Attention(norm=True), torch.zeros(1, 5, 7), 2)
    assert cut.layer("qkv").in_owners == contiguous_owners(24, 2)
    assert cut.notes == ("'norm' (LayerNorm) combines channels of several nodes: partial results are exchanged",)


def test_pixel_shuffle_keeps_the_four_parts_of_a_channel_together():
    model, example = models.build("upscaler")
    cut = plan(model, example, 2)
    assert owners_of(cut, "third")[0] == (0, 0, 0, 1, 1, 1, 0, 0, 1, 1)
    assert owners_of(cut, "up")[1] == (0,) * 8 + (1,) * 4
    assert owners_of(cut, "last") == ((0, 0, 1), (0, 0, 1))


def test_grouped_convolutions_are_local_where_their_groups_follow_ownership():
    model, example = models.build("grouped")
    cut = plan(model, example, 2)
    assert cut.local == ("follows",)
    assert [layer.name for layer in cut.layers] == ["stem", "mixes", "squeeze", "excite", "last"]
    prune(cut, 1.0)
    weight = model.mixes.weight.detach()
    # Groups of 4: channels 4 and 5 of the middle one are on node 0, 6 and 7 on node 1.
    zero = [[bool((weight[o, i] == 0).all()) for i in range(4)] for o in range(12)]
    assert zero[:4] == [[False] * 4] * 4
    assert zero[4:8] == [[False, False, True, True]] * 2 + [[True, True, False, False]] * 2
    assert zero[8:] == [[False] * 4] * 4


def test_chunks_concatenation_and_channel_shuffle_are_followed():
    model, example = models.build("shuffled")
    cut = plan(model, example, 2)
    assert owners_of(cut, "branch") == ((1, 1, 1, 1), (0, 0, 1, 1))
    assert owners_of(cut, "last")[0] == (0, 0, 0, 0, 0, 1, 0, 1)


def test_a_linear_layer_along_tokens_is_local():
    model, example = models.build("mixer")
    cut = plan(model, example, 2)
    assert cut.local == ("tokens",)
    assert [layer.name for layer in cut.layers] == ["embed", "channels"]


@pytest.mark.parametrize("name", models.INPUTS)
@pytest.mark.parametrize("nodes", [2, 3])
def test_without_communication_node_0_does_not_depend_on_the_weights_of_others(name, nodes):
    """The plan against the arithmetic of the network itself: the nodes are independent branches."""
    model, example = models.build(name)
    cut = plan(model, example, nodes)
    assert cut.notes == ()
    prune(cut, 1.0)
    torch.manual_seed(1)
    images = torch.rand_like(example)
    bake(model)
    before = model(images)
    with torch.no_grad():
        for layer in cut.layers:
            layer.weight[torch.tensor(layer.out_owners) != 0] *= 1.5
    after = model(images)
    ours = torch.tensor(cut.layers[-1].out_owners) == 0
    pixels = before.shape[1] // len(ours)
    ours = ours.repeat_interleave(pixels)
    assert torch.equal(before[:, ours], after[:, ours])
    assert not torch.isclose(before[:, ~ours], after[:, ~ours]).all()


def test_a_class_score_by_softmax_is_gathered_once():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten(), nn.Linear(256, 4), nn.Softmax(1))
    assert plan(model, IMAGE, 2).notes == ("'3' (Softmax) is computed once on node 0, from the gathered channels",)
    assert plan(model, IMAGE, 1).notes == ()


def whole(what: str, hint: str = "") -> str:
    return f"{what} is computed whole on every node, and a layer that reads it is never pruned{hint}"


@pytest.mark.parametrize(
    ("model", "example", "notes"),
    [
        (
            nn.LSTM(8, 8),
            torch.zeros(1, 4, 8),
            [whole("the network (LSTM)", ": recurrent layers are not supported")],
        ),
        (
            nn.Sequential(nn.ConvTranspose2d(3, 4, 2, 2), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)),
            IMAGE,
            [
                whole(
                    "'0' (ConvTranspose2d)", ": use nn.Upsample and a convolution, or a convolution and nn.PixelShuffle"
                )
            ],
        ),
        (
            nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 6, 3, groups=3), nn.Conv2d(6, 4, 1)),
            IMAGE,
            [whole("'0' (BatchNorm2d)"), whole("'1' (Conv2d)")],
        ),
        (nn.Sequential(nn.ReLU(), nn.BatchNorm2d(3, affine=False), nn.Conv2d(3, 4, 1)), IMAGE, []),
    ],
)
def test_what_every_node_computes_whole_is_told(model, example, notes):
    assert list(plan(model, example, 2).notes) == notes
    assert plan(model, example, 1).notes == ()


class Applied(nn.Module):
    """A function of a module's parts."""

    def __init__(self, function, **parts: nn.Module) -> None:
        super().__init__()
        self.parts, self.function = nn.ModuleDict(parts), function

    def forward(self, x):
        return self.function(self.parts, x)


def features() -> dict[str, nn.Module]:
    return {"a": nn.Conv2d(3, 8, 3, padding=1), "b": nn.Conv2d(8, 8, 3, padding="same")}


TOKENS = torch.zeros(1, 5, 7)
OWN = "00001111"


@pytest.mark.parametrize(
    ("model", "example", "last_inputs", "noted"),
    [
        (Applied(lambda m, x: m["b"](m["n"](m["a"](x))), n=nn.GroupNorm(4, 8), **features()), IMAGE, OWN, False),
        (Applied(lambda m, x: m["b"](m["n"](m["a"](x))), n=nn.GroupNorm(1, 8), **features()), IMAGE, OWN, True),
        (Applied(lambda m, x: m["b"](m["p"](m["a"](x))), p=nn.PReLU(8), **features()), IMAGE, OWN, False),
        (Applied(lambda m, x: m["b"](functional.pad(m["a"](x), (1, 1, 1, 1))), **features()), IMAGE, OWN, False),
        (Applied(lambda m, x: m["b"](m["a"](x).flatten(1).view_as(m["a"](x))), **features()), IMAGE, OWN, False),
        (Applied(lambda m, x: m["b"](m["a"](x).double().float()), **features()), IMAGE, OWN, False),
        (
            Applied(lambda m, x: m["b"](functional.interpolate(m["a"](x), size=(5, 7), mode="bilinear")), **features()),
            IMAGE,
            OWN,
            False,
        ),
        # Channels of zeros, as in the parameter-free shortcut of ResNets: every node has them.
        (
            Applied(
                lambda m, x: m["c"](functional.pad(m["a"](x), (0, 0, 0, 0, 0, 8))),
                a=nn.Conv2d(3, 8, 1),
                c=nn.Conv2d(16, 4, 1),
            ),
            IMAGE,
            OWN + 8 * "*",
            False,
        ),
        # The image beside features: a part that all nodes have is shared out, as the converter does.
        (
            Applied(lambda m, x: m["c"](torch.cat([m["a"](x), x], 1)), a=nn.Conv2d(3, 8, 1), c=nn.Conv2d(11, 4, 1)),
            IMAGE,
            OWN + "001",
            False,
        ),
        # Sums of three groups of channels: a group stays on one node.
        (
            Applied(
                lambda m, x: m["c"](m["a"](x).unflatten(1, (3, 4)).sum(2)), a=nn.Conv2d(3, 12, 1), c=nn.Conv2d(3, 4, 1)
            ),
            IMAGE,
            "001",
            False,
        ),
        # A gate from all channels at once: every node needs the whole sum.
        (
            Applied(lambda m, x: m["b"](m["a"](x).mean(1, keepdim=True).sigmoid() * m["a"](x)), **features()),
            IMAGE,
            OWN,
            True,
        ),
        (
            Applied(
                lambda m, x: m["o"](m["t"](m["e"](x))).mean(1),
                e=nn.Linear(7, 8),
                t=nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2),
                o=nn.Linear(8, 4),
            ),
            TOKENS,
            OWN,
            True,
        ),
    ],
)
def test_what_else_keeps_ownership(model, example, last_inputs, noted):
    cut = plan(model, example, 2)
    assert "".join("*" if owner < 0 else str(owner) for owner in cut.layers[-1].in_owners) == last_inputs
    assert bool(cut.notes) == noted


def test_attention_weights_that_are_asked_for_and_not_used_do_no_harm():
    def both(m, x):
        y = m["e"](x)
        return m["o"](m["a"](y, y, y)[0])

    model = Applied(both, e=nn.Linear(7, 12), a=nn.MultiheadAttention(12, 3), o=nn.Linear(12, 4))
    cut = plan(model, TOKENS, 2)
    assert cut.layer("parts.a.in_proj_weight").out_owners == 3 * ((0,) * 8 + (1,) * 4)
    assert cut.notes == ()


def test_cross_attention_in_one_module_is_refused_with_a_way_out():
    model = Applied(
        lambda m, x: m["a"](m["e"](x), m["f"](x), m["f"](x))[0],
        e=nn.Linear(7, 12),
        f=nn.Linear(7, 12),
        a=nn.MultiheadAttention(12, 2),
    )
    with pytest.raises(DiscoError, match=r"a part of 'parts\.a\.in_proj_weight'.*an nn\.Linear for each"):
        plan(model, TOKENS, 2)


class Twice(nn.Module):
    def __init__(self, channels: int = 4, groups: int = 1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 1)
        self.shared = nn.Conv2d(channels, channels, 1, groups=groups)

    def forward(self, x):
        return self.shared(self.shared(self.stem(x)))


def test_a_layer_that_is_used_twice_is_planned_once():
    cut = plan(Twice(), IMAGE, 2)
    assert [layer.name for layer in cut.layers] == ["stem", "shared"]
    assert cut.layer("shared").macs == 2 * 8 * 8 * 4 * 4


class Flipped(Twice):
    def forward(self, x):
        y = self.stem(x)
        return self.shared(y) + self.shared(y.flip(1))


class Joined(nn.Module):
    """An add of the replicated input, and of tensors with different owners."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)
        self.wide = nn.Conv2d(4, 6, 1)

    def forward(self, x):
        y = x + self.conv(x)
        return y[:, :3] + self.wide(y)[:, :3]


def test_an_add_of_different_owners_is_told_and_takes_those_of_the_first():
    cut = plan(Joined(), torch.zeros(1, 4, 8, 8), 2)
    (note,) = cut.notes
    assert "the network (Joined)" in note
    assert "joins tensors of different nodes: channels of one are always sent" in note
    assert cut.layer("wide").in_owners == (0, 0, 1, 1)


def test_planning_leaves_the_network_as_it_was():
    model, example = models.build("mobilenet")
    model.train()
    model.stem.eval()
    keys, modes = list(model.state_dict()), [module.training for module in model.modules()]
    before = [value.clone() for value in model.state_dict().values()]
    plan(model, example, 2)
    assert list(model.state_dict()) == keys
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_masked_network_has_the_same_plan():
    model, example = models.build("attention")
    cut = plan(model, example, 2)
    prune(cut, 0.5)
    again = plan(model, example, 2)
    assert again.metadata() == cut.metadata()
    assert [layer.module for layer in again.layers] == [layer.module for layer in cut.layers]


def test_a_plan_serves_a_copy_of_its_network():
    model, example = models.build("mobilenet")
    other, _ = models.build("mobilenet", seed=1)
    prune(plan(model, example, 2).on(other), 1.0)
    assert bool((model.blocks[0].expand[0].weight != 0).all())
    assert not bool((other.blocks[0].expand[0].weight != 0).all())


def test_metadata_tells_owners_as_runs():
    cut = plan(Twice(), IMAGE, 2, shares=(3, 1)).metadata()
    assert cut["shares"] == [0.75, 0.25]
    assert cut["layers"][1]["out_owners"] == [[0, 3], [1, 1]]
    assert cut["layers"][0]["in_owners"] is None


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 1), Decides())

    def forward(self, x):
        return self.body(x)


class Decides(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 4)
        self.memory = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x):
        return self.memory(self.embed(x.flatten(1, 2)))[0]


class Transposed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 4, 1), nn.ConvTranspose2d(4, 4, 2, 2))


@pytest.mark.parametrize(
    ("model", "nodes", "shares", "message"),
    [
        (Branching(), 2, None, r"module 'body\.1' \(Decides\) cannot be traced.*depends on values"),
        (nn.Linear(5, 4), 2, None, r"the network \(Linear\) cannot be traced.*example input has the right shape"),
        (Transposed(), 2, None, r"'1' \(ConvTranspose2d\) uses the operator conv_transpose2d.*nn\.Upsample"),
        (Recurrent(), 2, None, r"'memory' \(LSTM\) uses the operator lstm.*not supported"),
        (Twice(4), 5, None, r"stem has 4 output channels, which cannot be shared by 5 nodes: use fewer nodes"),
        (Twice(), 0, None, "0 nodes were asked for"),
        (Twice(), 2.0, None, r"2\.0 nodes were asked for: give an int"),
        (Twice(), 2, (0.5, 0.6), r"shares 0\.5, 0\.6 add up to 1\.1"),
        (Twice(), 2, (1.0, 0.0), "a number above zero"),
        (Twice(), 2, (1.0,), r"1 shares for 2 nodes \(1\)"),
        (Flipped(), 2, None, r"layer 'shared' is applied to several tensors with different owners"),
    ],
)
def test_what_cannot_be_planned_is_said_in_words(model, nodes, shares, message):
    with pytest.raises(DiscoError, match=message):
        plan(model, IMAGE, nodes, shares)


class GroupedQueries(nn.Module):
    def __init__(self, repeat: bool) -> None:
        super().__init__()
        self.repeat = repeat
        self.embed, self.query = nn.Linear(7, 16), nn.Linear(16, 16)
        self.key, self.value, self.project = nn.Linear(16, 8), nn.Linear(16, 8), nn.Linear(16, 4)

    def forward(self, x):
        x = self.embed(x)
        q, k, v = (part(x).unflatten(-1, (-1, 4)).transpose(1, 2) for part in (self.query, self.key, self.value))
        if self.repeat:
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        y = functional.scaled_dot_product_attention(q, k, v, enable_gqa=not self.repeat)
        return self.project(y.transpose(1, 2).flatten(2))


def test_query_heads_go_where_their_shared_keys_are():
    cut = plan(GroupedQueries(repeat=True), torch.zeros(1, 5, 7), 2)
    assert cut.layer("query").out_owners == (0,) * 8 + (1,) * 8
    assert cut.layer("key").out_owners == cut.layer("value").out_owners == (0,) * 4 + (1,) * 4
    with pytest.raises(DiscoError, match=r"another number of query heads.*repeat the keys and values first"):
        plan(GroupedQueries(repeat=False), torch.zeros(1, 5, 7), 2)


def test_one_head_cannot_be_shared():
    with pytest.raises(DiscoError, match=r"the attention in the network \(Attention\) .* 1 part.* as many heads"):
        plan(models.Attention(1), torch.zeros(1, 5, 7), 2)


def test_an_example_that_is_no_batch_of_tensors_is_refused():
    with pytest.raises(DiscoError, match="no batch axis"):
        plan(nn.Linear(3, 4), torch.zeros(3), 2)
    for example in (np.zeros((1, 3)), (np.zeros((1, 3)),)):
        with pytest.raises(DiscoError, match=r"a ndarray, it must be a torch\.Tensor: use torch\.from_numpy"):
            plan(nn.Linear(3, 4), example, 2)


def test_a_trace_that_fails_writes_nothing_itself(capfd):
    with pytest.raises(DiscoError, match="cannot be traced"):
        plan(Branching(), IMAGE, 2)
    assert capfd.readouterr() == ("", "")


def test_weights_that_are_computed_are_refused():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 1)))
    with pytest.raises(DiscoError, match=r"'1' .*computed from other tensors.*remove other parametrisations"):
        plan(model, IMAGE, 2)


def test_an_unknown_layer_is_told_with_those_there_are():
    with pytest.raises(DiscoError, match="no mixing layer is called 'x': there are stem, shared"):
        plan(Twice(), IMAGE, 2).layer("x")


def test_channel_shares_agree_with_numpy():
    """Equal shares are those of numpy.array_split."""
    for channels in range(1, 20):
        for nodes in range(1, channels + 1):
            sizes = [len(part) for part in np.array_split(np.arange(channels), nodes)]
            owners = contiguous_owners(channels, nodes)
            assert [owners.count(k) for k in range(nodes)] == sizes
