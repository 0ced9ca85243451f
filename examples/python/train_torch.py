"""Softmax regression with PyTorch's DistributedDataParallel, each process on its own rows.

    torchrun --nproc_per_node 2 train_torch.py data.lua [arguments of the recipe]
"""

import sys

import shardrt
import shardrt.torch
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

distributed.init_process_group("gloo")
layer = nn.Linear(28 * 28, 10)
nn.init.zeros_(layer.weight)
nn.init.zeros_(layer.bias)
model = DistributedDataParallel(nn.Sequential(nn.Flatten(), layer))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses: list[float] = []

transport = shardrt.torch.transport()
with shardrt.open(sys.argv[1], args=sys.argv[2:], devices=1, transport=transport) as data:
    for batch in DataLoader(shardrt.torch.Batches(data), batch_size=None):
        loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"].long())
        optimizer.zero_grad()
        loss.backward()  # the mean of all processes' gradients: each has as many rows
        optimizer.step()
        losses.append(loss.item())

mean = torch.tensor(losses[-20:]).mean()
distributed.all_reduce(mean)
if distributed.get_rank() == 0:
    print(f"mean loss of the last 20 of {len(losses)} steps: {mean / distributed.get_world_size():.4f}", flush=True)
distributed.destroy_process_group()
