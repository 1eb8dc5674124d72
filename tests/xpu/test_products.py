"""Which kernel takes a product is decided by races on the program's own calls. Risks covered: a wrong result while they race or afterwards, races where none
may be, a decision of another process that is taken without a look at its numbers. Which one wins is not asked."""

import pytest

START = """
NAMES = ["plain", "rows", "vectors", "vectors, b laid anew", "blocks of 128", "blocks of 64", "blocks of 64, k in parts", "tiles"]
import json, time, torch, ipexrun
from ipexrun import xpu
torch.manual_seed(0)
def error(mine, right):
    return ((mine.cpu().double() - right).norm() / right.norm()).item()
def rows(op="products"):
    return [row for row in xpu.report()["products"] if row["op"] == op]
def until_decided(call, right, bound, op="products", seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert error(call(), right) < bound
        if rows(op) and rows(op)[-1]["decided"]:
            break
    row = rows(op)[-1]
    assert row["choice"] in NAMES and row["first"] in NAMES, row
    assert (row["choice"] != row["first"]) == (row["gain"] > 1) == (row["reason"] == "faster"), row
    for _ in range(3):
        assert error(call(), right) < bound
    return row
"""

FEW_ROWS = """
x, w = torch.randn(4, 1030), torch.randn(1024, 1030)
a, b = x.xpu(), w.xpu().t()
right = x.double() @ w.double().t()
torch.use_deterministic_algorithms(True)
for _ in range(8): assert error(a @ b, right) < 3e-6
torch.use_deterministic_algorithms(False)
assert rows() == []
row = until_decided(lambda: a @ b, right, 3e-6)
assert row["sizes"] == "1 x 4 x 1024 x 1030" and row["calls"] > 3, row
# The result is an argument, too; infinities stay where they are.
total = torch.zeros(4, 1024, device="xpu")
for _ in range(30): torch.addmm(total, a, b, out=total)
assert error(total, 30 * right) < 1e-5
a[1, 7] = float("inf")
for _ in range(8):
    out = (a * 1 @ b).cpu()
    assert out[1].isinf().all() and out[[0, 2, 3]].isfinite().all()
half = x.half().xpu(), w.half().xpu().t()
for _ in range(8): assert error(half[0] @ half[1], x.half().double() @ w.half().double().t()) < 1e-3
small = torch.randn(4, 8, device="xpu")
for _ in range(8): small @ small.t()
assert all(row["sizes"].endswith("1030") for row in rows())
assert "kind" in xpu.report_text() and len([line for line in xpu.report_text().splitlines() if "measured" in line]) >= 1, xpu.report_text()
print("right")
"""

GPUS = """
x, w = torch.randn(70, 256), torch.randn(256, 100)
a, b = x.xpu(), w.xpu()
until_decided(lambda: a @ b, x.double() @ w.double(), 3e-6)
x, w = torch.randn(40, 4096), torch.randn(4096, 50)  # one block of results and a long k: its parts are taken without measuring
a, b = x.xpu(), w.xpu()
for _ in range(8): a @ b
until_decided(lambda: a @ b, x.double() @ w.double(), 3e-6)
assert [row["first"] for row in rows() if row["sizes"] == "1 x 64 x 50 x 4096"] == ["blocks of 64, k in parts"], rows()
torch.use_deterministic_algorithms(True)
assert torch.equal(a @ b, a @ b)
torch.use_deterministic_algorithms(False)
image, filters = torch.randn(1, 8, 20, 20), torch.randn(70, 8, 3, 3)
there = image.xpu(), filters.xpu()
with torch.no_grad():
    right = torch.nn.functional.conv2d(image.double(), filters.double(), padding=1)
    until_decided(lambda: torch.nn.functional.conv2d(*there, padding=1), right, 3e-6, "convolutions")
print("right")
"""


@pytest.mark.parametrize("text, kernels", [(FEW_ROWS, ""), (GPUS, "lanes")], ids=["few-rows", "gpus"])
def test_right_while_racing_and_afterwards(child, text, kernels, tmp_path):
    """With a cache of its own: what an earlier run found would not race again."""
    done = child(START + text, IPEXRUN_XPU_KERNELS=kernels, IPEXRUN_SELECT="thorough", IPEXRUN_CACHE=str(tmp_path))
    assert done.stdout == "right\n", done.stdout + done.stderr[-3000:]


REMEMBERED = START + """
x, w = torch.randn(4, 1024), torch.randn(1024, 1024)
a, b = x.xpu(), w.xpu().t()
row = until_decided(lambda: a @ b, x.double() @ w.double().t(), 3e-6, seconds=SECONDS)
print(json.dumps(row))
"""


def decided_in(cache):
    """The file of decisions, its head, and the lines of products, split; skips where there are none."""
    files = list(cache.glob("decisions-*"))
    head, *lines = files[0].read_text().splitlines() if files else [""]
    lines = [line.split("\t") for line in lines if line.startswith("xpu products|")]
    if not lines:
        pytest.skip("something else ran on the machine during the races")
    return files[0], head, lines


def test_remembered(child, tmp_path):
    """The cache's line is turned into the other choice: it is taken without a race, after a look at its numbers."""
    import json

    cache = tmp_path / "cache"
    first = child(REMEMBERED.replace("SECONDS", "20"), IPEXRUN_CACHE=str(cache), IPEXRUN_SELECT="thorough")
    assert first.returncode == 0, first.stderr
    file, head, lines = decided_in(cache)
    fields = lines[-1]
    row = json.loads(first.stdout)
    assert fields[1] == ("stock" if row["choice"] == row["first"] else row["choice"])
    other = "vectors, b laid anew" if row["first"] == "rows" else "tiles"  # a CPU's, a GPU's
    fields[1:4] = [other, "1000", "500"]
    file.write_text(head + "\n" + "\t".join(fields) + "\n")
    text = REMEMBERED.replace("SECONDS", "0.5").replace('row["reason"] == "faster"', 'row["reason"] == "remembered"')
    second = child(text, IPEXRUN_CACHE=str(cache))
    assert second.returncode == 0, second.stderr
    row = json.loads(second.stdout)
    assert row["reason"] == "remembered" and row["choice"] == other and row["pairs"] == 0 and row["answered"] == row["calls"], row


ANSWERED_BY = START + """
m, n, k, dtype, bound = 70, 100, 768, getattr(torch, DTYPE), BOUND
x, w, c = (torch.randn(*size).to(dtype) for size in ((m, k), (n, k), (n,)))
product, right = x.double() @ w.double().t(), 0.5 * c.double() + 2 * (x.double() @ w.double().t())
a, b, there = x.xpu(), w.xpu().t(), c.xpu()
def calls():
    for _ in range(12):
        assert error(a @ b, product) < bound
        assert error(torch.addmm(there, a, b, beta=0.5, alpha=2), right) < bound
        out = torch.full((n, m), 7, dtype=dtype, device="xpu").t()  # laid another way
        assert error(torch.mm(a, b, out=out), product) < bound and out.stride() == (1, m)
end = time.monotonic() + SECONDS
calls()
while time.monotonic() < end and not all(row["decided"] for row in rows()):
    calls()
print(json.dumps(rows()))
"""


@pytest.mark.parametrize("name", ["blocks of 128", "blocks of 64", "blocks of 64, k in parts", "tiles"])
@pytest.mark.parametrize("dtype, bound", [("float32", 3e-6), ("float16", 1e-3)])
def test_each_kernel_of_gpus_answers(child, tmp_path, name, dtype, bound):
    """As if an earlier process had found it the fastest: what a race asks of its numbers is asked of it, so a wrong one is seen by its reason."""
    import json

    text = ANSWERED_BY.replace("DTYPE", repr(dtype)).replace("BOUND", str(bound))
    options = {"IPEXRUN_XPU_KERNELS": "lanes", "IPEXRUN_CACHE": str(tmp_path)}
    found = []
    for round in range(2):
        for _ in range(1 if round else 4):  # a disturbed race is not remembered
            done = child(text.replace("SECONDS", "0" if round else "10"), **options, IPEXRUN_SELECT="thorough")
            assert done.returncode == 0, done.stderr[-3000:]
            if any("xpu products|" in file.read_text() for file in tmp_path.glob("decisions-*")):
                break
        found = json.loads(done.stdout)
        if round == 1:
            break
        file, head, lines = decided_in(tmp_path)
        for line in lines:
            line[1:4] = [name, "1000", "500"]
        file.write_text("\n".join([head, *("\t".join(line) for line in lines)]) + "\n")
    # A kind whose race was disturbed is not remembered, and may race here.
    known = [row for row in found if row["reason"] == "remembered"]
    assert len(known) == len(lines) and all(row["choice"] == name and (row["answered"] > 0 or name == row["first"]) for row in known), found


def test_no_timing_decides_where_none_may(child):
    done = child(START + """
a, b = torch.randn(4, 1024, device="xpu"), torch.randn(1024, 1024, device="xpu").t()
for _ in range(8): a @ b
print(rows())
""", IPEXRUN_SELECT="off")
    assert done.stdout == "[]\n", done.stdout + done.stderr[-3000:]
