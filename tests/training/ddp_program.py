"""Five steps of a small model under DDP over gloo; rank 0 writes losses and parameters: ddp_program.py OUT"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(out):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16 * 36, 128), torch.nn.ReLU(),
                              torch.nn.Linear(128, 4))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(int(os.environ.get("STEPS", "5"))):
        x, y = torch.randn(32, 3, 8, 8, generator=generator), torch.randint(0, 4, (32,), generator=generator)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    parameters = torch.cat([p.detach().flatten() for p in net.parameters()])
    others = [torch.empty_like(parameters) for _ in range(dist.get_world_size())]
    dist.all_gather(others, parameters)
    if rank == 0:
        optimizers = sys.modules["ipexrun"].report()["optimizers"] if "ipexrun" in sys.modules else []
        torch.save({"losses": losses, "parameters": parameters, "equal": all(torch.equal(one, others[0]) for one in others),
                    "optimizers": optimizers}, out)
    dist.destroy_process_group()


main(sys.argv[1])
