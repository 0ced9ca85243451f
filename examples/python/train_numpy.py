"""Softmax regression with numpy: shardrt brings the batches, numpy computes, in one process.

    python3 train_numpy.py data.lua [arguments of the recipe]
"""

import sys

import numpy as np
import shardrt

PIXELS, CLASSES, RATE = 28 * 28, 10, 0.1

weights = np.zeros((PIXELS, CLASSES), "float32")
bias = np.zeros(CLASSES, "float32")
losses: list[float] = []

with shardrt.open(sys.argv[1], args=sys.argv[2:], devices=2) as data:
    for step, batch in enumerate(data, 1):
        rows = batch["label"].shape[0]
        slope, offset, loss = np.zeros_like(weights), np.zeros_like(bias), 0.0
        # A shard for each device. Several processes would add up slope, offset and loss here, as with mpi4py.
        for images, labels in zip(batch["image"].shards, batch["label"].shards):
            image = np.asarray(images).reshape(-1, PIXELS)  # the loader's memory, which nobody may write to
            label = np.asarray(labels)
            own = np.arange(len(label))
            scores = image @ weights + bias
            scores -= scores.max(1, keepdims=True)
            chances = np.exp(scores)
            chances /= chances.sum(1, keepdims=True)
            loss -= float(np.log(chances[own, label]).sum())
            chances[own, label] -= 1
            slope += image.T @ chances
            offset += chances.sum(0)
        weights -= RATE / rows * slope
        bias -= RATE / rows * offset
        losses.append(loss / rows)
        if step % 50 == 0:
            print(f"step {step} of {len(data)}: loss {losses[-1]:.4f}", flush=True)

print(f"mean loss of the last 20 steps: {np.mean(losses[-20:]):.4f}")
