"""Training loops that nobody edited: captured_cases.py RESULTS. Each case gives what a program can see; "modules" tells what became of each module."""

import sys
import threading
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

STEPS = 8


class Mlp(nn.Sequential):
    def __init__(self, wide=64):
        super().__init__(nn.Linear(32, wide), nn.Tanh(), nn.Linear(wide, 4))


class Cnn(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(144, 4))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.drop, self.up, self.down = nn.Dropout(0.1), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        q, k, v = (one.view(*x.shape[:2], 2, 16).transpose(1, 2) for one in self.qkv(self.norm(x)).chunk(3, -1))
        weights = self.drop(torch.softmax(q @ k.transpose(-1, -2) / 4, -1))
        x = x + self.drop(self.out((weights @ v).transpose(1, 2).flatten(2)))
        return x + self.drop(self.down(nn.functional.gelu(self.up(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.first, self.second, self.head = nn.Embedding(50, 32), Block(), Block(), nn.Linear(32, 4)

    def forward(self, tokens):
        return self.head(self.second(self.first(self.embed(tokens))).mean(1))


class Sharp(nn.Module):
    """What bf16 is too coarse for, and another order of memory is not."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 4, 3, padding=1)

    def forward(self, x):
        return torch.sin(30 * self.second(torch.relu(self.first(x)))).mean((2, 3))


class CheckpointedInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Mlp(), nn.Linear(4, 4)

    def forward(self, x):
        return self.second(checkpoint(self.first, x, use_reentrant=False))


class Raises(Mlp):
    def forward(self, x):
        if x.shape[0] == 3:
            raise ValueError("three rows")
        return super().forward(x)


@dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor


class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Mlp()

    def forward(self, x, labels=None):
        logits = self.inner(x)
        return Output(nn.functional.cross_entropy(logits, labels), logits)


class Hooked(Mlp):
    pass


class Around(Mlp):
    pass


class Penalized(Mlp):
    pass


class TwoLosses(Mlp):
    pass


class Accumulated(Mlp):
    pass


class Frozen(Cnn):
    pass


class Forgotten(Mlp):
    pass


class Shared(Mlp):
    pass


class Scaled(Mlp):
    pass


class Sizes(Mlp):
    pass


class Offloaded(Mlp):
    pass


class Validated(Mlp):
    pass


def rows(count=16):
    return torch.randn(count, 32)


def images():
    return torch.randn(8, 3, 12, 12)


def tokens():
    return torch.randint(0, 50, (8, 12))


def labels(count=8):
    return torch.randint(0, 4, (count,))


def seen(net, losses, **more):
    state = {name: value.detach().clone() for name, value in net.state_dict().items()}
    gradients = {name: one.grad for name, one in net.named_parameters()}
    return {"losses": losses, "state": state, "gradients": gradients, "strides": {name: one.stride() for name, one in gradients.items() if one is not None},
            "random": float(torch.rand(())), **more}


def loop(net, batch, steps=STEPS, backward=None):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        x = batch()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), labels(len(x)))
        loss.backward() if backward is None else backward(loss, step)
        optimizer.step()
        losses.append(loss.item())
    return losses


def plain(kind, batch):
    def case():
        net = kind()
        return seen(net, loop(net, batch))

    return case


def accumulation():
    net, losses = Accumulated(), []
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for step in range(3 * STEPS):
        x = rows()
        loss = nn.functional.cross_entropy(net(x), labels(16)) / 3
        loss.backward()
        losses.append(loss.item())
        if step % 3 == 2:
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    return seen(net, losses)


def hooks():
    net, fired = Hooked(), []
    for name, one in net.named_parameters():
        one.register_hook(lambda gradient, name=name: fired.append((name, tuple(gradient.shape), gradient.stride())))
        one.register_post_accumulate_grad_hook(lambda parameter, name=name: fired.append(name))
    losses = loop(net, rows)
    handle = net[0].register_forward_hook(lambda module, args, result: fired.append("forward"))
    losses += loop(net, rows, 3)
    handle.remove()
    handle = net[2].register_full_backward_hook(lambda module, given, taken: fired.append(tuple(taken[0].shape)))
    losses += loop(net, rows, 3)
    handle.remove()
    x = rows().requires_grad_()
    y = net(x)
    y.register_hook(lambda gradient: 2 * gradient)
    y.sum().backward()
    hooks_shown = [net(rows())._backward_hooks for _ in range(2)]
    return seen(net, losses, fired=fired, shown=hooks_shown, x=x.grad)


def frozen():
    net = Frozen()
    net[0].requires_grad_(False)
    losses = loop(net, images)
    net[0].requires_grad_(True)
    net[3].requires_grad_(False)
    losses += loop(net, images)
    net[1].eval()
    return seen(net, losses + loop(net, images, 3))


def checkpoint_around():
    net = Around()
    losses = loop(net, rows)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for reentrant in (False, True):
        for _ in range(2):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(checkpoint(net, rows().requires_grad_(), use_reentrant=reentrant), labels(16))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return seen(net, losses)


def exceptions():
    net, said = Raises(), []
    losses = loop(net, rows)
    for bad in (rows(3), torch.randn(4, 7), "text"):
        try:
            net(bad)
        except Exception as problem:
            said.append((type(problem).__name__, str(problem).splitlines()[0]))
    return seen(net, losses + loop(net, rows, 2), said=said)


def penalty():
    net = Penalized()
    losses = loop(net, rows)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(3):
        x = rows().requires_grad_()
        optimizer.zero_grad()
        y = net(x)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        loss = y.square().mean() + slope.square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return seen(net, losses)


def two_losses():
    net, losses = TwoLosses(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        y = net(rows())
        one, other = y[:, :2].square().mean(), (y[:, 2:] - 1).square().mean()
        one.backward(retain_graph=True)
        other.backward()
        optimizer.step()
        losses += [one.item(), other.item()]
    try:
        other.backward()
        said = ""
    except RuntimeError as problem:
        said = str(problem).splitlines()[0][:40]
    return seen(net, losses, said=said)


def dataclass_with_loss():
    net, losses = WithLoss(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        output = net(rows(), labels=labels(16))
        output.loss.backward()
        optimizer.step()
        losses.append(output.loss.item())
    return seen(net, losses, kind=type(output).__name__)


def forgotten_backward():
    net = Forgotten()
    shapes = [tuple(net(rows()).shape) for _ in range(20)]
    return seen(net, loop(net, rows, 4), shapes=shapes)


def threads():
    """One model by two threads in turn, the second one's backward pass in the first."""
    net, results = Shared(), []
    losses = loop(net, rows)
    for _ in range(4):
        x = rows()
        one = threading.Thread(target=lambda x=x: results.append(net(x).square().mean()))
        one.start()
        one.join()
        net.zero_grad()
        results[-1].backward()
    return seen(net, losses + [one.item() for one in results])


def scaler():
    net, losses = Scaled(), []
    optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.05), torch.amp.GradScaler("cpu", init_scale=256.0)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(rows()), labels(16))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return seen(net, losses, scale=scaler.get_scale())


def sizes():
    net, losses = Sizes(), []
    for count in (16, 16, 16, 16, 5, 5, 9, 9, 9, 11, 12, 13, 14, 15, 17, 18, 19, 20, 1, 16):
        losses += loop(net, lambda count=count: rows(count), 1)
    return seen(net, losses)


def validated():
    """Validation that forgot no_grad ends nothing."""
    net, losses = Validated(), []
    for _ in range(3):
        losses += loop(net, rows, 6)
        net.eval()
        losses += [net(rows()).square().mean().item() for _ in range(30)]
        net.train()
    return seen(net, losses)


def offloaded():
    net = Offloaded()
    losses = loop(net, rows)
    counts = []
    for _ in range(2):
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda one: saved.append(tuple(one.shape)) or one, lambda one: one):
            loss = net(rows()).square().mean()
        loss.backward()
        counts.append(len(saved))
        losses.append(loss.item())
    return seen(net, losses, counts=counts)


class AutocastCnn(Cnn):
    pass


class AutocastTransformer(Transformer):
    pass


class AutocastToHalf(Cnn):
    pass


class AutocastInTurn(Cnn):
    pass


class Features(nn.Module):
    """What the rest is computed from is given out as well, and kept."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1), nn.Linear(16, 4)

    def forward(self, x):
        self.kept = torch.relu(self.first(x))
        image = torch.relu(self.second(self.kept))
        return self.last(image.mean((2, 3))), image


def features():
    net, losses, fired, given = Features(), [], [], []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(STEPS):
        logits, image = net(images())
        image.retain_grad()
        net.kept.register_hook(lambda gradient: fired.append((tuple(gradient.shape), gradient.stride())))
        if step > STEPS - 3:
            image.register_hook(lambda gradient: gradient * 0)
        loss = nn.functional.cross_entropy(logits, labels())
        given.append(torch.autograd.grad(loss, [image, net.kept], retain_graph=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return seen(net, losses, fired=fired, given=given[-3][0], inner=given[-3][1], image=image.grad, lies=[one.stride() for one in given[-1]])


class Renamed(Features):
    """A result that the rest reads by another name."""

    def forward(self, x):
        image = torch.relu(self.first(x))
        given = image.float()
        return self.last(torch.relu(self.second(image) + given).mean((2, 3))), given


def renamed():
    net, losses, given = Renamed(), [], []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(STEPS):
        logits, image = net(images())
        loss = nn.functional.cross_entropy(logits, labels())
        given.append(torch.autograd.grad(loss, image, retain_graph=True)[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return seen(net, losses, given=given[-1])


class PastVersions(nn.Module):
    """Images that are written through `.data`."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Linear(16, 4)
        self.register_buffer("mean", torch.zeros(1, 3, 12, 12))

    def forward(self, x):
        self.mean.data.mul_(0.9).add_(0.1 * x.mean(0, keepdim=True))
        return self.last(torch.relu(self.first(x - self.mean)).mean((2, 3)))


class Clamped(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Linear(16, 4)

    def forward(self, x):
        x.data.clamp_(0, 1)
        return self.last(torch.relu(self.first(x)).mean((2, 3)))


def clamped():
    """The first steps' images are within the bounds."""
    net, shown = Clamped(), []
    count = iter(range(100))

    def batch():
        shown.append(images() if next(count) > 4 else torch.rand(8, 3, 12, 12))
        return shown[-1]

    losses = loop(net, batch)
    return seen(net, losses, least=float(shown[-1].min()), most=float(shown[-1].max()))


class Noisy(nn.Module):
    """Noise beside an image, which counts from some step on."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Linear(16, 4)
        self.register_buffer("strength", torch.zeros(()))

    def forward(self, x):
        image = self.first(x)
        image = image * (1 + self.strength * torch.rand_like(image))
        return self.last(torch.relu(image).amax((2, 3)))


def noisy():
    net, firsts = Noisy(), []
    losses = loop(net, images)
    net.strength.fill_(4.0)
    for _ in range(3):
        firsts.append(net(images()).detach())
    return seen(net, losses, logits=torch.stack(firsts))


class Counted(Mlp):
    pass


def counted():
    """Backward passes under a mode of the program's."""
    net, flops = Counted(), []

    def backward(loss, step):
        with FlopCounterMode(display=False) as counter:
            loss.backward()
        flops.append(counter.get_total_flops())

    return seen(net, loop(net, rows, backward=backward), flops=flops)


class Overwritten(Cnn):
    pass


class OverwrittenRows(Mlp):
    pass


def overwritten(kind, batch):
    """What a step needs is written before its backward pass: that of the last one."""

    def case():
        net, said, written = kind(), [], [None]
        before = lambda: written.__setitem__(0, batch()) or written[0]  # noqa: E731
        losses = loop(net, before)
        for value in (lambda: None, lambda: written[0].zero_()):
            loss = nn.functional.cross_entropy(net(before()), labels(len(written[0])))
            value()
            try:
                loss.backward()
            except RuntimeError as problem:
                said.append(str(problem).partition("Hint:")[0])
        net.zero_grad()  # layers behind have theirs on stock
        return seen(net, losses, said=said)

    return case


def under_autocast(kind, batch, dtype=torch.bfloat16, in_turn=False):
    def case():
        net, losses, types = kind(), [], []
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        for step in range(2 * STEPS if in_turn else STEPS):
            x = batch()
            with torch.autocast("cpu", dtype, enabled=not in_turn or step % 2 == 0):
                logits = net(x)
                loss = nn.functional.cross_entropy(logits, labels(len(x)))
            types.append((logits.dtype, logits.stride(), loss.dtype))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if step % 4 == 3:
                net.eval()
                with torch.no_grad(), torch.autocast("cpu", dtype):
                    types.append(net(batch()).dtype)
                net.train()
        return seen(net, losses, types=types)

    return case


CASES = {
    "mlp": plain(Mlp, rows), "cnn": plain(Cnn, images), "transformer": plain(Transformer, tokens), "sharp": plain(Sharp, images), "accumulation": accumulation,
    "hooks": hooks, "frozen": frozen, "checkpoint inside": plain(CheckpointedInside, rows), "checkpoint around": checkpoint_around,
    "exceptions": exceptions, "two losses": two_losses, "dataclass": dataclass_with_loss, "forgotten": forgotten_backward,
    "threads": threads, "scaler": scaler, "sizes": sizes, "offloaded": offloaded, "validated": validated,
    "autocast, cnn": under_autocast(AutocastCnn, images), "autocast, transformer": under_autocast(AutocastTransformer, tokens),
    "autocast, float16": under_autocast(AutocastToHalf, images, torch.float16), "autocast, in turn": under_autocast(AutocastInTurn, images, in_turn=True),
    "features": features, "renamed": renamed, "past versions": plain(PastVersions, images), "clamped": clamped, "noisy": noisy,
    "counted": counted, "overwritten": overwritten(Overwritten, images), "overwritten rows": overwritten(OverwrittenRows, rows),
    "penalty": penalty,  # the last: no step after it is rounded
}


def main(path, *names):
    results = {}
    for name in names or CASES:
        torch.manual_seed(7)
        results[name] = CASES[name]()
    if "_ipexrun_hook" in sys.modules:
        import ipexrun

        report = ipexrun.report()
        results["modules"] = [one for one in report.get("modules", []) if one.get("training")]
        results["graphs"] = [one for one in report.get("graphs", []) if "(training)" in one.get("where", "")]
    torch.save(results, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
