"""library_loop.lua as a program of Python: KIND DEVICES RECIPE FOLDER WHAT SECONDS; KIND is `numpy` or `torch`."""

import sys
import time
from itertools import count

import numpy as np

import shardrt

BATCH, BYTES, ROWS = 256, 3072, 65536
NAMES = ("image", "label")

kind, devices, recipe, folder, what, seconds = sys.argv[1:]
if kind == "torch":
    import torch

    import shardrt.torch

    torch.set_num_threads(1)  # for the copies, which every program makes on one
    take = shardrt.torch.tensor

    def copy(to, value):  # PyTorch 1.13 copies bytes, one by one, in 2.7 times the time of the same memory in words
        to.view(torch.int64).copy_(value.view(torch.int64))

    own = {"image": torch.empty(BATCH, BYTES, dtype=torch.uint8), "label": torch.empty(BATCH, dtype=torch.uint8)}
else:
    take, copy = np.asarray, np.copyto
    own = {"image": np.empty((BATCH, BYTES), np.uint8), "label": np.empty(BATCH, np.uint8)}
rows = BATCH // int(devices)
parts = {name: [own[name][at : at + rows] for at in range(0, BATCH, rows)] for name in NAMES}
seen = np.zeros(ROWS, np.uint8)


def check(batch):
    for image, label in zip(batch["image"].shards, batch["label"].shards, strict=True):
        numbers = np.asarray(take(image)[:, :4]).copy().view("<u4")[:, 0]
        assert (np.asarray(take(label)) == numbers % 251).all()
        seen[numbers] += 1


def use(batch):
    for name in NAMES:
        for to, shard in zip(parts[name], batch[name].shards, strict=True):
            value = take(shard)
            if what == "copy":
                copy(to, value)


with shardrt.open(recipe, [folder], devices=int(devices)) as data:
    steps, start = len(data), 0.0
    for step, batch in zip(count(1), data):
        if step <= steps:
            check(batch)
        else:
            use(batch)
        if step % steps == 0 and step > steps:
            now = time.perf_counter()
            start = start or now
            if now - start >= float(seconds):
                assert (seen == 1).all(), "each row once"
                print(f"{(step - 2 * steps) * BATCH / (now - start):.0f}")
                break
