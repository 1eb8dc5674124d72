"""Layers and convolutions of graphs, by our kernels and by stock's operators in turn, until the fastest one stays: results are stock's all along.

Risk covered: a window of another pixel, a tile at an edge, an epilogue in another order, a sum that is written over something that is still read, a
weight that changed after its pack was forgotten, numbers that are not finite where tiles cannot have them, several threads.
"""

import os
import re
import subprocess
import sys

import programs
import pytest
import torch
import torch.nn.functional as F
from test_programs import Captured, in_threads, linear
from torch import nn

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
os.environ["IPEXRUN_LARGE_TILES"] = "1"  # all ways that there are; asked at the first convolution
RUNS = 30  # more than five ways need


def again_and_again(captured, *inputs):
    for _ in range(RUNS):
        captured(*inputs)
    return captured


def conv(ci, co, kernel, dims=2, **options):
    torch.manual_seed(4)
    return (nn.Conv1d, nn.Conv2d)[dims - 1](ci, co, kernel, **options).eval()


@pytest.mark.parametrize("options", [{}, {"padding": 1}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"padding": (0, 2), "stride": (2, 1)}, {"bias": False}], ids=str)
@pytest.mark.parametrize("after", ["nothing", "relu", "sum and relu", "silu and sum", "hardswish"])
@pytest.mark.parametrize("channels", [12, 32])
def test_convolutions(channels, options, after):
    layer, norm = conv(channels, 40, 3, **options), nn.BatchNorm2d(40).eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    other = torch.randn_like(layer(torch.randn(2, channels, 9, 11)))

    def function(x):
        y = norm(layer(x))
        return {"nothing": lambda: y, "relu": lambda: F.relu(y), "sum and relu": lambda: F.relu(y + other), "silu and sum": lambda: F.silu(y) + other,
                "hardswish": lambda: F.hardswish(y)}[after]()

    again_and_again(Captured(function, torch.randn(2, channels, 9, 11)), torch.randn(2, channels, 9, 11))


@pytest.mark.parametrize("kernel, dims, sizes", [(1, 2, (1, 24, 7, 7)), (1, 1, (3, 24, 20)), (5, 1, (2, 24, 33)), ((3, 1), 2, (1, 24, 6, 5)), (7, 2, (1, 24, 12, 12))], ids=str)
def test_windows_of_other_sizes(kernel, dims, sizes):
    layer = conv(24, 33, kernel, dims)
    again_and_again(Captured(lambda x: F.relu(layer(x)), torch.randn(sizes)), torch.randn(sizes))


def test_a_residual_block_whose_sums_are_written_in_place():
    first, second, third = conv(16, 16, 1), conv(16, 16, 3, padding=1), conv(16, 16, 1)

    def function(x):
        y = F.relu(first(x))
        for _ in range(3):
            y = F.relu(third(F.relu(second(y))) + y)
        return y

    again_and_again(Captured(function, torch.randn(1, 16, 8, 8)), torch.randn(1, 16, 8, 8))


@pytest.mark.parametrize("channels, size", [(16, 1), (48, 2), (64, 7), (272, 5), (512, 3)])
def test_three_by_three_of_any_channels_and_sizes(channels, size):
    layer = conv(channels, 72, 3, padding=1)
    again_and_again(Captured(lambda x: F.relu(layer(x)), torch.randn(3, channels, size, size + 1)), torch.randn(3, channels, size, size + 1))


@pytest.mark.parametrize("padding", [0, (2, 1)])
@pytest.mark.parametrize("size", [8, 13, 14])
def test_larger_tiles_and_their_edges(size, padding):
    layer = conv(32, 40, 3, padding=padding)
    other = torch.randn_like(layer(torch.randn(2, 32, size, size + 3)))
    again_and_again(Captured(lambda x: F.relu(layer(x) + other), torch.randn(2, 32, size, size + 3)), torch.randn(2, 32, size, size + 3))


def test_a_graph_that_is_to_be_exact_takes_no_larger_tiles():
    layers = nn.Sequential(*(conv(64, 64, 3, padding=1) for _ in range(3)))
    captured = again_and_again(Captured(lambda x: F.relu(layers(x)), torch.randn(1, 64, 28, 28)), torch.randn(1, 64, 28, 28))
    graph = captured.graphs[-1].graph
    assert graph.be_exact(False) == ("F(4x4, 3x3)" in graph.kernels(False))
    again_and_again(captured, torch.randn(1, 64, 28, 28))
    assert "F(4x4, 3x3)" not in graph.kernels(False)
    assert not graph.be_exact(False), "once"


@pytest.mark.parametrize("channels", [8, 64])
def test_nan_and_infinities_stay(channels):
    """From the first call on, and after the fastest way was found."""
    layer = conv(channels, 16, 3, padding=1)
    x = torch.randn(1, channels, 6, 6)
    x[0, 0, 2, 2], x[0, 1, 4, 4] = float("nan"), float("inf")
    again_and_again(Captured(lambda x: F.relu(layer(x)), x), x)
    finite = torch.randn(1, channels, 8, 8)
    captured = again_and_again(Captured(lambda x: F.relu(layer(x)) + 1, finite), finite)
    other = finite.clone()
    other[0, 0, 3, 3], other[0, 1, 5, 5] = float("-inf"), float("nan")
    again_and_again(captured, other)
    again_and_again(captured, finite)


@pytest.mark.parametrize("rows", [1, 5, 200])
@pytest.mark.parametrize("after", ["nothing", "gelu", "sum", "silu and product"])
def test_layers(rows, after):
    layer, other = linear(96, 70), torch.randn(rows, 70)
    function = {"nothing": lambda x: layer(x), "gelu": lambda x: F.gelu(layer(x)), "sum": lambda x: layer(x) + other, "silu and product": lambda x: F.silu(layer(x)) * other}[after]
    again_and_again(Captured(function, torch.randn(rows, 96)), torch.randn(rows, 96))


def test_weights_that_change_are_seen_whoever_won():
    layer, image = linear(96, 70), conv(12, 40, 3)
    captured = Captured(lambda x, y: (layer(x), F.relu(image(y))), torch.randn(9, 96), torch.randn(1, 12, 9, 9))
    for _ in range(RUNS):
        captured(torch.randn(9, 96), torch.randn(1, 12, 9, 9))
        with torch.no_grad():
            layer.weight.mul_(-1.01)
            image.weight.add_(0.01)


def test_threads_share_duels():
    layer = linear(96, 70)

    def function(x):
        return F.relu(layer(x))

    in_threads(Captured(function, torch.randn(31, 96)), function, (31, 96))


def three_layers_and_attention(size, heads=4):
    layers = [linear(size, size) for _ in range(3)]
    for number, layer in enumerate(layers):
        layer.weight.data.mul_(1 + number)

    def attend(x):
        return F.scaled_dot_product_attention(*(layer(x).view(*x.shape[:2], heads, -1).transpose(1, 2) for layer in layers))

    return layers, attend


@pytest.mark.parametrize("size", [64, 1024])
def test_layers_of_one_x_as_one_product_or_several(size):
    layers, attend = three_layers_and_attention(size)
    shape = (2, 9, size)
    captured = again_and_again(Captured(attend, torch.randn(shape)), torch.randn(shape))
    assert "3 linear layers joined" in captured.fused(False)
    with torch.no_grad():
        layers[1].weight.mul_(-1.5)
        layers[2].bias.add_(1)
    again_and_again(captured, torch.randn(shape))
    layers[0].weight.data.mul_(-2)
    again_and_again(captured, torch.randn(shape))


def test_threads_share_the_duel_of_layers_of_one_x():
    _, attend = three_layers_and_attention(96)
    in_threads(Captured(attend, torch.randn(2, 31, 96)), attend, (2, 31, 96))


def test_which_kernel_computes_what_is_told():
    layer, product = conv(24, 32, 3, padding=1), linear(32 * 36, 64)
    captured = Captured(lambda x: product(F.relu(layer(x)).flatten(1)), torch.randn(40, 24, 6, 6))
    again_and_again(captured, torch.randn(40, 24, 6, 6))
    told = captured.graphs[-1].graph.kernels(False)
    assert sum(int(count) for count in re.findall(r"(?:^|, )(\d+) ", told)) == 2, told
    assert captured.graphs[-1].graph.kernels(True).count("vectors") == 0  # nothing races that computes in bf16, but for convolutions


PROGRAM = """
import torch
from torch import nn
torch.set_num_threads(1)
layers = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)).eval()
fast = torch.compile(layers, backend="ipex", options={"dtype": "float32"})
x = torch.randn(1, 64, 56, 56)
with torch.no_grad():
    for _ in range(60):
        fast(x)
print(torch.classes.ipexrun.Graph().choosing_runs())
"""


def runs_that_choose(cache):
    done = programs.run([f"{BUILD}/bin/ipexrun", sys.executable, "-c", PROGRAM], env={**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": str(cache)},
                        imports="torch torch._dynamo")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def let_days_go_by(cache, days):
    """As if what is remembered had been found out before."""
    aged = 0
    for file in (path for path in cache.rglob("*") if path.is_file()):
        lines = file.read_text().splitlines()
        for i, line in enumerate(lines):
            *fields, decided_at = line.split("\t")
            if fields and fields[0].startswith("graph kernel"):
                lines[i] = "\t".join([*fields, str(int(decided_at) - int(days * 86400))])
                aged += 1
        file.write_text("\n".join(lines) + "\n")
    assert aged


def test_winners_are_remembered_by_the_next_process(tmp_path):
    assert runs_that_choose("off") >= 16
    assert runs_that_choose(tmp_path) >= 16
    assert runs_that_choose(tmp_path) <= 4


def test_winners_are_raced_again_the_next_day_and_then_less_often(tmp_path):
    """One may have won by what else the machine did."""
    assert runs_that_choose(tmp_path) >= 16
    let_days_go_by(tmp_path, 0.5)
    assert runs_that_choose(tmp_path) <= 4
    let_days_go_by(tmp_path, 0.6)
    assert runs_that_choose(tmp_path) >= 16
    assert runs_that_choose(tmp_path) <= 4


EXACT = """
import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.zeros, self.whole = nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.Conv2d(32, 32, 3, padding=1, bias=False)
        self.whole.weight.data = torch.randint(-2, 3, self.whole.weight.shape).float()
    def forward(self, x, counts):
        return F.relu(self.zeros(x)), self.whole(counts)
net = Net().eval()
graph = torch.compile(net, backend="ipex", options={"dtype": "float32"})
for call in range(60):
    x, counts = torch.randn(1, 32, 30, 34), torch.randint(0, 3, (1, 32, 30, 34)).float()
    top, left = torch.randint(0, 20, (2,)).tolist()
    x[:, :, top : top + 8, left : left + 9] = 0
    with torch.no_grad():
        zeros, whole = graph(x, counts)
        assert (zeros[:, :, top + 1 : top + 7, left + 1 : left + 8] == 0).all(), call
        assert torch.equal(whole, F.conv2d(counts.double(), net.whole.weight.double(), padding=1).float()), call
    x[0, :, 15, 17] = 1e6  # what lies beside it is as exact as before
    with torch.no_grad():
        bright = graph(x, counts)[0]
        truth = F.relu(F.conv2d(x.double(), net.zeros.weight.double(), padding=1))
        far = torch.ones(30, 34, dtype=torch.bool)
        far[14:17, 16:19] = False
        assert ((bright.double() - truth)[..., far].norm() / truth[..., far].norm()) < 1e-6, call
import ipexrun
print([graph["choice"] for graph in ipexrun.report()["graphs"]])
"""


def test_each_result_depends_on_its_window_alone():
    """Of what is offered to everybody: zeros stay zeros, whole numbers whole, and what lies beside a bright point as it was."""
    environment = {**os.environ, "IPEXRUN_CACHE": "off"}
    del environment["IPEXRUN_LARGE_TILES"]
    done = subprocess.run([f"{BUILD}/bin/ipexrun", sys.executable, "-c", EXACT], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert "F(4x4" not in done.stdout
