"""The networks of the zoo in PyTorch: parameters as published, tables as checked in, tables of any model."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the networks are PyTorch: pip install 'disco-edge[prune]'")

from torch import nn  # noqa: E402

from disco_planning.layers import read_table  # noqa: E402
from disco_planning.sources import known_models, load_network  # noqa: E402
from disco_pruning import from_scratch, independent_branches, network_sparsity, plan  # noqa: E402
from disco_pruning.layer_table import layer_table  # noqa: E402
from disco_pruning.models.deit import DeiT  # noqa: E402
from disco_pruning.models.zoo import ZOO, zoo_table  # noqa: E402
from disco_targets.errors import DiscoError  # noqa: E402

# As counted by torchvision (ResNet, MobileNetV2), timm (DeiT) and BasicSR (RRDBNet).
PARAMETERS = {"resnet50": 25_557_032, "mobilenet_v2": 3_504_872, "deit_small": 22_050_664, "esrgan_rrdb23": 16_697_987}
RESNET101, RESNET50_LAYER4 = 44_549_160, 14_964_736
FC = 2048 * 1000 + 1000


def build(name: str) -> nn.Module:
    with torch.device("meta"):
        return ZOO[name].build()


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_parameters_as_published(name: str) -> None:
    assert parameters(build(name)) == PARAMETERS[name]


# The convolutions of MLPerf Tiny's ResNet-8 have biases too: seven in front of a batch norm, where ours leave them out.
@pytest.mark.parametrize(
    ("name", "published", "biases"), [("ds_cnn", 24_908, 0), ("resnet8", 78_666, 3 * 16 + 2 * 32 + 2 * 64)]
)
def test_parameters_of_the_mlperf_tiny_networks_as_published(name: str, published: int, biases: int) -> None:
    # Keras counts the running means and variances of batch norm as parameters.
    model = build(name)
    statistics = sum(b.numel() for name, b in model.named_buffers() if "running" in name)
    assert parameters(model) + statistics + biases == published


def conv_norm(inputs: int, outputs: int, kernel: int) -> int:
    """Parameters of a convolution without bias and its batch norm."""
    return inputs * outputs * kernel**2 + 2 * outputs


def test_parameters_of_deeplab_are_those_of_its_description() -> None:
    """Summed by hand: the trunk as published, and the head of the paper with plain convolutions."""
    model = build("deeplabv3plus_resnet101")
    trunk = RESNET101 - FC
    pyramid = 2 * conv_norm(2048, 256, 1) + 3 * conv_norm(2048, 256, 3) + conv_norm(5 * 256, 256, 1)
    decoder = conv_norm(256, 48, 1) + conv_norm(256 + 48, 256, 3) + (256 + 1) * 21
    assert parameters(model.backbone) == trunk
    assert parameters(model) == trunk + pyramid + decoder == 58_753_973


def test_parameters_of_ssd_are_those_of_its_description() -> None:
    """Summed by hand: the published trunk without its last stage, five blocks, and 4 + 81 values for each box."""
    model = build("ssd300_resnet50")
    trunk = PARAMETERS["resnet50"] - FC - RESNET50_LAYER4
    blocks = ((1024, 256, 512), (512, 256, 512), (512, 128, 256), (256, 128, 256), (256, 128, 256))
    extra = sum(conv_norm(i, middle, 1) + conv_norm(middle, o, 3) for i, middle, o in blocks)
    maps = ((1024, 4), (512, 6), (512, 6), (256, 6), (256, 4), (256, 4))
    heads = sum((9 * channels + 1) * boxes * (4 + 81) for channels, boxes in maps)
    assert parameters(model.backbone) == trunk
    assert parameters(model) == trunk + extra + heads == 22_894_902


@pytest.mark.parametrize("name", sorted(ZOO))
def test_the_checked_in_table_is_that_of_the_definition(repository: Path, name: str) -> None:
    spec = importlib.util.spec_from_file_location("zoo_tables", repository / "scripts" / "zoo_tables.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (script.FOLDER / f"{name}.csv").read_text() == script.zoo_csv(name), "run scripts/zoo_tables.py"


@pytest.mark.parametrize(
    "name", ["resnet50", "deit_small", "ssd300_resnet50", "deeplabv3plus_resnet101", "esrgan_rrdb23"]
)
def test_the_plan_of_a_network_has_the_layers_of_its_table(name: str) -> None:
    cut = plan(build(name), torch.empty(1, *ZOO[name].input_shape, device="meta"), 2)
    table = load_network(f"zoo:{name}").layers
    assert [(layer.name, layer.macs) for layer in cut.layers] == [(layer.name, layer.macs) for layer in table]
    assert cut.local == ()
    stems = {layer.name for layer in table if layer.src == 0}
    assert {layer.name for layer in cut.layers if layer.in_owners is None} == stems
    for layer, row in zip(cut.layers, table, strict=True):
        owners = [layer.out_owners] if layer.in_owners is None else [layer.in_owners, layer.out_owners]
        assert [len(channels) for channels in owners] == [row.in_ch, row.out_ch][-len(owners) :], layer.name
        for channels in owners:
            assert channels.count(0) == -(-len(channels) // 2), layer.name  # the remainder goes to node 0


def test_zoo_and_tables_have_the_same_names() -> None:
    assert set(known_models()) == set(ZOO)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("resnet50", [(1, 1000)]),
        ("deit_small", [(1, 1000)]),
        ("deit_micro", [(1, 10)]),
        ("ds_cnn", [(1, 12)]),
        ("mobilenet_v2", [(1, 1000)]),
        ("deeplabv3plus_resnet101", [(1, 21, 513, 513)]),
        ("esrgan_rrdb23", [(1, 3, 512, 512)]),
        ("ssd300_resnet50", [(1, 4, 8732), (1, 81, 8732)]),
    ],
)
def test_outputs(name: str, shapes: list[tuple[int, ...]]) -> None:
    model = build(name).eval()
    output = model(torch.empty(1, *ZOO[name].input_shape, device="meta"))
    assert [tuple(y.shape) for y in (output if isinstance(output, tuple) else (output,))] == shapes


@pytest.mark.parametrize("name", sorted(ZOO))
def test_all_weights_can_be_drawn_anew(name: str) -> None:
    model = build(name)
    assert set(from_scratch(model).state_dict()) == set(model.state_dict())


def test_a_transformer_is_drawn_anew_as_it_was_at_first() -> None:
    torch.manual_seed(0)
    model = ZOO["deit_micro"].build()
    built = {name: parameter.std(correction=0).item() for name, parameter in model.named_parameters()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    for name, parameter in from_scratch(model).named_parameters():
        assert abs(parameter.std(correction=0).item() - built[name]) < 0.01, name
        assert not bool((parameter == 7.0).any()), name


def test_branches_of_a_transformer_never_communicate() -> None:
    image = torch.zeros(1, 3, 8, 8)
    branches = independent_branches(DeiT(8, 4, features=8, depth=1, heads=2, classes=4), image, 2)
    assert network_sparsity(plan(branches, image, 2)) == 1.0


@pytest.mark.parametrize("name", ["deit_micro", "ds_cnn"])
def test_small_networks_train_and_can_be_traced(name: str) -> None:
    torch.manual_seed(0)
    model = ZOO[name].build()
    x = torch.randn(8, *ZOO[name].input_shape)
    labels = torch.arange(8)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for _ in range(6):
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    model.eval()
    assert torch.equal(torch.fx.symbolic_trace(model)(x), model(x))


def test_exporting_keeps_names_and_shapes_of_a_transformer(tmp_path: Path) -> None:
    from disco_pruning.export import export_onnx

    torch.manual_seed(0)
    model = ZOO["deit_micro"].build()
    with torch.no_grad():
        for parameter in model.parameters():  # equal biases would become one tensor
            parameter.normal_()
    export_onnx(model, tmp_path / "deit.onnx", (3, 32, 32))
    assert load_network(str(tmp_path / "deit.onnx")).layers == zoo_table("deit_micro")


def test_the_code_of_the_page_on_planning(repository: Path) -> None:
    page = (repository / "docs" / "planning.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102
    assert read_table(str(names["text"]), "page") == load_network("zoo:resnet50").layers


def test_networks_are_exported_by_name() -> None:
    from disco_pruning import models

    assert {entry.build.__name__ for entry in ZOO.values()} <= set(models.__all__)


def test_the_model_is_left_as_it_was() -> None:
    model = ZOO["resnet8"].build().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert layer_table(model, torch.zeros(1, 3, 32, 32)) == load_network("zoo:resnet8").layers
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_masked_layers_have_their_rows() -> None:
    from disco_pruning import plan, prune

    model = ZOO["resnet8"].build()
    image = torch.zeros(1, 3, 32, 32)
    prune(plan(model, image, 2), 1.0)
    assert layer_table(model, image) == load_network("zoo:resnet8").layers


def test_other_layers() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(4, 4, 5, 2, padding=2, groups=2)
            self.up = nn.ConvTranspose2d(4, 2, 2, 2)
            self.fc = nn.Linear(16, 16)

        def forward(self, x):
            y = self.conv(x)
            z = self.up(y.unsqueeze(-1).expand(-1, -1, -1, 3))
            return z, self.fc(self.fc(y.flatten(1)))

    conv, up, once, twice = layer_table(Odd(), torch.zeros(1, 4, 8))
    assert (conv.kernel, conv.stride, conv.in_h, conv.in_w, conv.groups) == ((5, 1), (2, 1), 8, 1, 2)
    assert (conv.out_h, conv.macs) == (4, 4 * 5 * 2 * 4)
    assert (up.in_h, up.in_w, up.out_h, up.out_w, up.macs) == (4, 3, 8, 6, 12 * 4 * 2 * 4)
    assert (once.name, twice.name, once.macs) == ("fc", "fc:2", 256)
    assert len({conv.src, up.src, once.src, twice.src}) == 4


def test_what_cannot_be_tabled_is_named() -> None:
    attention = nn.ModuleDict({"self": nn.MultiheadAttention(8, 2)})
    with pytest.raises(DiscoError, match=r"'self' \(MultiheadAttention\)"):
        layer_table(attention, torch.zeros(1, 4, 8))
    with pytest.raises(DiscoError, match="cannot run on shapes alone"):
        layer_table(nn.Conv2d(3, 4, 1), torch.zeros(1, 5, 8, 8))
    with pytest.raises(DiscoError, match="no convolution"):
        layer_table(nn.ReLU(), torch.zeros(1, 5))
