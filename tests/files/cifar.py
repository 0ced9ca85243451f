"""Makes tests/files/cifar: batches of two records as https://www.cs.toronto.edu/~kriz/cifar.html describes the binary
versions. Byte k of picture i is (31 * i + 7 * k + k // 1024) % 256; its labels are i + 3, or i + 3 and 95 + i."""
import os

import numpy as np

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cifar")


def record(i, labels):
    k = np.arange(3072)
    return np.concatenate([np.array(labels), (31 * i + 7 * k + k // 1024) % 256]).astype(np.uint8)


def main():
    os.makedirs(HERE, exist_ok=True)
    for batch in range(2):
        rows = np.stack([record(i, [i + 3]) for i in (2 * batch, 2 * batch + 1)])
        rows.tofile(f"{HERE}/data_batch_{batch + 1}.bin")
    np.stack([record(i, [i + 3, i + 95]) for i in range(2)]).tofile(f"{HERE}/train.bin")


if __name__ == "__main__":
    main()
