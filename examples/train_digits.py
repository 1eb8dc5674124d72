"""Trains a small convolutional network on scikit-learn's handwritten digits: plain PyTorch.

    python examples/train_digits.py [--device cpu|xpu|cuda] [--epochs N] [--optimizer sgd|adamw]

    ipexrun xpu --opencl any --report python examples/train_digits.py --device xpu
"""

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F


def network():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(512, 10))


def main():
    parser = argparse.ArgumentParser(description="train on handwritten digits")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="adamw")
    args = parser.parse_args()

    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels))
    images, labels = images[order].to(args.device), labels[order].to(args.device)
    train = slice(0, 1500)
    model = network().to(args.device)
    if args.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    for epoch in range(args.epochs):
        model.train()
        start, total = time.perf_counter(), 0.0
        for x, y in zip(images[train].split(args.batch_size), labels[train].split(args.batch_size)):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(y)
        mean = (total / 1500).item()
        model.eval()
        with torch.no_grad():
            right = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
        print(f"epoch {epoch + 1}: loss {mean:.4f}, {right:.1%} of {len(labels) - 1500} unseen digits right, {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
