"""Programs that know nothing of us: `python unedited.py infer|NAMES DEVICE`, NAMES of optimizers with commas. Prints numbers that test_unedited.py compares."""

import sys

import torch

DEVICE = sys.argv[2]


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 32), torch.nn.ReLU(),
                               torch.nn.Linear(32, 4)).to(DEVICE)


def train(name):
    model = network()
    make = {"Adam": lambda p: torch.optim.Adam(p, lr=1e-3), "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3, amsgrad=True),
            "SGD": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9), "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2)}[name]
    optimizer = make(model.parameters())
    images, labels = torch.randn(16, 3, 6, 6).to(DEVICE), torch.randint(0, 4, (16,)).to(DEVICE)
    for _ in range(28):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    state = optimizer.state_dict()
    print([group["fused"] for group in state["param_groups"]], {str(v.device) for v in state["state"][0].values() if isinstance(v, torch.Tensor) and v.dim() == 0})
    print(sum(one.double().cpu().square().sum().item() for one in model.parameters()))


def infer():
    model = network().eval()
    images = torch.randn(16, 3, 6, 6).to(DEVICE)
    with torch.no_grad():
        for _ in range(260):
            out = model(images)
        torch.addmm(out, out, out.new_ones(4, 4), out=out)  # the result is an argument, too
    print(out.dtype, out.stride())
    print(out.double().cpu().square().sum().item())


for one in sys.argv[1].split(","):
    infer() if one == "infer" else train(one)
