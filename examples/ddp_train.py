"""Data-parallel training of a small character model: plain PyTorch DistributedDataParallel over gloo.

    torchrun --nproc-per-node 2 examples/ddp_train.py [--steps N] [--batch-size N] [--losses FILE]

The text is the Python language reference, which every Python carries; the model predicts each next character from the 32 before it.
Rank 0 prints the loss, averaged over all ranks.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CONTEXT = 32


class Characters(Dataset):
    def __init__(self):
        from pydoc_data import topics

        text = "\n\n".join(topics.topics[name] for name in sorted(topics.topics))
        self.alphabet = sorted(set(text))
        number = {character: i for i, character in enumerate(self.alphabet)}
        self.data = torch.tensor([number[character] for character in text])

    def __len__(self):
        return len(self.data) - CONTEXT

    def __getitem__(self, at):
        return self.data[at : at + CONTEXT], self.data[at + CONTEXT]


class Predictor(torch.nn.Module):
    def __init__(self, characters, width=256):
        super().__init__()
        self.embed = torch.nn.Embedding(characters, 16)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16 * CONTEXT, width),
            torch.nn.GELU(),
            torch.nn.Linear(width, width),
            torch.nn.GELU(),
            torch.nn.Linear(width, characters),
        )

    def forward(self, context):
        return self.layers(self.embed(context).flatten(1))


def main():
    parser = argparse.ArgumentParser(description="train a character model on several ranks")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64, help="of each rank")
    parser.add_argument("--losses", help="write the losses here (JSON)")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = Characters()
    sampler = DistributedSampler(data, seed=0)
    model = DistributedDataParallel(Predictor(len(data.alphabet)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    cpus = f"{len(os.sched_getaffinity(0))} CPUs, {torch.get_num_threads()} threads"
    print(f"rank {rank} of {ranks}: {cpus}", flush=True)

    losses = []
    begin = time.perf_counter()
    for context, following in DataLoader(data, batch_size=args.batch_size, sampler=sampler):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(context), following)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / ranks)
        if len(losses) == args.steps:
            break
    seconds = time.perf_counter() - begin
    if rank == 0:
        print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f} in {len(losses)} steps, {len(losses) / seconds:.1f} steps/s", flush=True)
        if args.losses:
            with open(args.losses, "w", encoding="utf-8") as out:
                json.dump(losses, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
