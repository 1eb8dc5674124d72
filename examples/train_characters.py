"""Trains a small transformer to continue text, character by character: plain PyTorch. The text is the Python language reference, which every
Python carries.

    python examples/train_characters.py [--device cpu|xpu|cuda] [--steps N] [--fused]

    ipexrun xpu --opencl any --report python examples/train_characters.py --device xpu
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(seen.transpose(1, 2).reshape(batch, length, width)), 0.1, self.training)
        return x + F.dropout(self.narrow(F.gelu(self.wide(self.after(x)))), 0.1, self.training)


class Writer(nn.Module):
    def __init__(self, letters, length, width=128, heads=4, depth=3):
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, letters)

    def forward(self, x):
        x = self.letters(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


def main():
    parser = argparse.ArgumentParser(description="train a transformer on characters")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--fused", action="store_true", help="AdamW(fused=True)")
    args = parser.parse_args()

    from pydoc_data import topics

    text = "\n\n".join(topics.topics[name] for name in sorted(topics.topics))
    letters = sorted(set(text))
    number = {letter: i for i, letter in enumerate(letters)}
    torch.manual_seed(0)
    data = torch.tensor([number[letter] for letter in text])
    model = Writer(len(letters), args.length).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=args.fused or None)
    start, losses = time.perf_counter(), []
    for step in range(args.steps):
        first = torch.randint(len(data) - args.length - 1, (args.batch_size,))
        window = torch.stack([data[i : i + args.length + 1] for i in first]).to(args.device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
        if (step + 1) % 20 == 0:
            print(f"step {step + 1}: loss {torch.stack(losses[-20:]).mean().item():.4f}, {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
