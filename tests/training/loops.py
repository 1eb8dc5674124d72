"""Training loops as users of libraries write them, none of them edited for ipexrun: loops.py NAME... prints what each loop saw, a line of JSON.

trainer: transformers' Trainer (clipping, accumulation, schedule). accelerate: its Accelerator around a plain loop. lightning: the optimizer calls the
step as a closure, as Lightning does. averaged: a copy of the weights follows by exponential means and is validated. rivals: two networks, two optimizers,
two schedules, each sees the other's output. fsdp: sharded parameters, under torchrun.
"""

import json
import os
import sys
import tempfile

import torch
from torch import nn

STEPS = 12


class Net(nn.Module):
    def __init__(self, out=4):
        super().__init__()
        self.images = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
        self.rows = nn.Sequential(nn.Flatten(), nn.Linear(16 * 64, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, out))

    def forward(self, x):
        return self.rows(self.images(x))


def batch(rows=16):
    return torch.randn(rows, 3, 8, 8), torch.randint(0, 4, (rows,))


def sentences():
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, max_position_embeddings=32)
    rows = [{"input_ids": torch.randint(0, 100, (16,)), "labels": int(i % 2)} for i in range(8 * 2 * STEPS)]
    return BertForSequenceClassification(config), rows


def trainer():
    from transformers import Trainer, TrainingArguments

    model, rows = sentences()
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(folder, use_cpu=True, max_steps=STEPS, per_device_train_batch_size=8, gradient_accumulation_steps=2, logging_steps=1,
                                     save_strategy="no", report_to=[], disable_tqdm=True, learning_rate=1e-3, warmup_steps=2, seed=3)
        runner = Trainer(model, settings, train_dataset=rows)
        stdout, sys.stdout = sys.stdout, sys.stderr  # it prints what it logs
        try:
            runner.train()
        finally:
            sys.stdout = stdout
    return [one["loss"] for one in runner.state.log_history if "loss" in one]


def accelerate():
    from accelerate import Accelerator

    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*batch(16 * 2 * STEPS)), batch_size=16)
    helper = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net, optimizer, loader, schedule = helper.prepare(net, optimizer, loader, schedule)
    losses = []
    for images, labels in loader:
        with helper.accumulate(net):
            loss = nn.functional.cross_entropy(net(images), labels)
            helper.backward(loss)
            helper.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def lightning():
    class Module(Net):
        def training_step(self, batch):
            images, labels = batch
            return nn.functional.cross_entropy(self(images), labels)

    module = Module()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        now = batch()

        def closure():
            loss = module.training_step(now)  # noqa: B023
            optimizer.zero_grad()
            loss.backward()
            return loss

        losses.append(optimizer.step(closure).item())
    return losses


def averaged():
    net = Net()
    follower = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    images, labels = batch()
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        follower.update_parameters(net)
        follower.eval()
        with torch.no_grad():
            losses += [loss.item(), nn.functional.cross_entropy(follower(images), labels).item()]
    return losses


def rivals():
    maker = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3 * 64), nn.Unflatten(1, (3, 8, 8)))
    judge = Net(out=1)
    optimizers = [torch.optim.Adam(one.parameters(), lr=1e-3, betas=(0.5, 0.9)) for one in (maker, judge)]
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(one, STEPS) for one in optimizers]
    of = nn.functional.binary_cross_entropy_with_logits
    losses = []
    for _ in range(STEPS):
        real, noise = batch()[0], torch.randn(16, 16)
        optimizers[1].zero_grad()
        loss = of(judge(real), torch.ones(16, 1)) + of(judge(maker(noise).detach()), torch.zeros(16, 1))
        loss.backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        fooled = of(judge(maker(noise)), torch.ones(16, 1))
        fooled.backward()
        optimizers[0].step()
        for one in schedules:
            one.step()
        losses += [loss.item(), fooled.item()]
    return losses


def fsdp():
    from torch.distributed.fsdp import FullyShardedDataParallel

    torch.distributed.init_process_group("gloo")
    net = FullyShardedDataParallel(Net(), device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    torch.manual_seed(7 + torch.distributed.get_rank())
    losses = []
    for _ in range(5):
        images, labels = batch()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        net.clip_grad_norm_(1.0)
        optimizer.step()
        losses.append(loss.item())
    torch.distributed.destroy_process_group()
    return losses


def show(name):
    torch.manual_seed(7)
    losses = globals()[name]()
    modules = []
    if "_ipexrun_hook" in sys.modules:
        import ipexrun

        modules = [(one["module"], one["state"]) for one in ipexrun.report().get("modules", []) if one.get("training")]
    said = {"name": name, "rank": int(os.environ.get("RANK", 0)), "losses": losses, "modules": modules, "random": float(torch.rand(()))}
    os.write(1, (json.dumps(said) + "\n").encode())  # ranks share it


if __name__ == "__main__":
    for one in sys.argv[1:]:
        show(one)
