"""A small UNet of the diffusion kind: residual blocks with time embedding, attention at the lower resolutions, skip connections."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def time_embedding(steps, width, dtype):
    half = width // 2
    rates = torch.exp(torch.arange(half, dtype=dtype) * (-math.log(10000.0) / half))
    angles = steps.to(dtype)[:, None] * rates[None]
    return torch.cat([angles.cos(), angles.sin()], dim=1)


class Residual(nn.Module):
    def __init__(self, inside, outside, time_width):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.time = nn.Linear(time_width, outside)
        self.norm2, self.conv2 = nn.GroupNorm(8, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class Attention(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(8, width), heads
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x):
        n, c, height, width = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, 3, self.heads, c // self.heads, height * width).transpose(-1, -2).unbind(1)
        h = F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(n, c, height, width)
        return x + self.out(h)


class Unet(nn.Module):
    def __init__(self, channels=4, width=64, factors=(1, 2, 4)):
        super().__init__()
        widths, time_width = [width * f for f in factors], 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, time_width), nn.SiLU(), nn.Linear(time_width, time_width))
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        inside = width
        for level, w in enumerate(widths):
            attend = Attention(w) if level > 0 else nn.Identity()
            smaller = nn.Conv2d(w, w, 3, stride=2, padding=1) if level + 1 < len(widths) else nn.Identity()
            self.down.append(nn.ModuleList([Residual(inside, w, time_width), attend, smaller]))
            inside = w
        self.middle = nn.ModuleList([Residual(inside, inside, time_width), Attention(inside), Residual(inside, inside, time_width)])
        for level, w in reversed(list(enumerate(widths))):
            larger = nn.ConvTranspose2d(inside, inside, 4, stride=2, padding=1) if level + 1 < len(widths) else nn.Identity()
            self.up.append(nn.ModuleList([larger, Residual(inside + w, w, time_width)]))
            inside = w
        self.norm, self.last = nn.GroupNorm(8, inside), nn.Conv2d(inside, channels, 3, padding=1)

    def forward(self, x, steps):
        t = self.time(time_embedding(steps, self.width, x.dtype))
        x = self.first(x)
        skips = []
        for block, attend, smaller in self.down:
            x = attend(block(x, t))
            skips.append(x)
            x = smaller(x)
        before, attend, after = self.middle
        x = after(attend(before(x, t)), t)
        for larger, block in self.up:
            x = block(torch.cat([larger(x), skips.pop()], dim=1), t)
        return self.last(F.silu(self.norm(x)))
