"""A training step as its author would write it, or tuned by hand: training_loops.py SOCKET MODEL FORM

MODEL: bert (BERT-base, 4 sentences of 128 tokens, AdamW), resnet (ResNet-50, 8 images, SGD with momentum), mlp (small, for --smoke).
FORM: plain, hand (bf16 autocast, fused optimizer, images and their network channels last), hand_compiled (the same through torch.compile, that
is Inductor: it needs g++), or compiled (plain, with torch.compile(model, backend="ipex")).
"""

import contextlib
import sys

import torch
from workload_serve import serve


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig()).train()
    tokens, labels = torch.randint(0, 30000, (4, 128)), torch.randint(0, 2, (4,))
    mask = torch.ones_like(tokens)
    return model, lambda: model(input_ids=tokens, attention_mask=mask, labels=labels).loss, (torch.optim.AdamW, {"lr": 1e-5})


def resnet(channels_last=False):
    from transformers import ResNetConfig, ResNetForImageClassification

    model = ResNetForImageClassification(ResNetConfig(num_labels=1000)).train()
    images, labels = torch.randn(8, 3, 224, 224), torch.randint(0, 1000, (8,))
    if channels_last:
        model, images = model.to(memory_format=torch.channels_last), images.contiguous(memory_format=torch.channels_last)
    return model, lambda: model(pixel_values=images, labels=labels).loss, (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9})


def mlp():
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    x, y = torch.randn(64, 256), torch.arange(64) % 8
    return model, lambda: torch.nn.functional.cross_entropy(model(x), y), (torch.optim.AdamW, {})


def step_of(name, form):
    """A function that makes one step and returns its loss."""
    torch.manual_seed(0)
    hand = form.startswith("hand")
    model, loss_of, (kind, settings) = {"bert": bert, "resnet": lambda: resnet(hand), "mlp": mlp}[name]()
    optimizer = kind(model.parameters(), fused=True, **settings) if hand else kind(model.parameters(), **settings)
    if form == "compiled":
        model.compile(backend="ipex")
    elif form == "hand_compiled":
        model.compile()
    cast = (lambda: torch.autocast("cpu", torch.bfloat16)) if hand else contextlib.nullcontext

    def step():
        optimizer.zero_grad()
        with cast():
            loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss

    return step


if __name__ == "__main__":
    serve(sys.argv[1], step_of(*sys.argv[2:]))
