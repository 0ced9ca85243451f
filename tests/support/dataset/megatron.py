"""Datasets as Megatron-LM writes them, and what its GPTDataset and BlendedDataset give of them: the algorithm of
megatron/core/datasets (gpt_dataset.py, helpers.cpp, blended_megatron_dataset_builder.py), written down step by step, with
its document index, sample index and shuffle index. numpy's RandomState is made of Python's own Mersenne Twister, or with
--numpy it is numpy's.

    python3 megatron.py FOLDER SEED [--numpy]     writes FOLDER/0.bin, 0.idx, ... and FOLDER/answers.json
"""
import array
import json
import math
import random
import re
import struct
import sys

DTYPES = {"uint8": (1, "B"), "int8": (2, "b"), "int16": (3, "h"), "int32": (4, "i"), "int64": (5, "q"), "uint16": (8, "H")}


class RandomState:
    """numpy.random.RandomState(seed).shuffle of a list."""

    def __init__(self, seed):
        key = []
        for i in range(624):
            key.append(seed)
            seed = (1812433253 * (seed ^ seed >> 30) + i + 1) & 0xFFFFFFFF
        self.twister = random.Random()
        self.twister.setstate((3, tuple(key) + (624,), None))

    def shuffle(self, x):
        for i in reversed(range(1, len(x))):
            mask = 2 ** i.bit_length() - 1
            j = self.twister.getrandbits(32) & mask
            while j > i:
                j = self.twister.getrandbits(32) & mask
            x[i], x[j] = x[j], x[i]


class NumpyState:
    def __init__(self, seed):
        import numpy
        self.numpy, self.state = numpy, numpy.random.RandomState(seed)

    def shuffle(self, x):
        shuffled = self.numpy.array(x, dtype=self.numpy.int32)
        self.state.shuffle(shuffled)
        x[:] = shuffled.tolist()


def write(prefix, dtype, documents, modes=False):
    """Documents are lists of sequences, which are lists of tokens."""
    code, letter = DTYPES[dtype]
    sequences = [sequence for document in documents for sequence in document]
    size, at, pointers, ends = struct.calcsize(letter), 0, [], [0]
    with open(prefix + ".bin", "wb") as file:
        for sequence in sequences:
            pointers.append(at)
            at += file.write(array.array(letter, sequence).tobytes())
    for document in documents:
        ends.append(ends[-1] + len(document))
    assert at == size * sum(map(len, sequences))
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\x00\x00" + struct.pack("<QB", 1, code))
        file.write(struct.pack("<QQ", len(sequences), len(ends)))
        file.write(struct.pack("<%di" % len(sequences), *map(len, sequences)))
        file.write(struct.pack("<%dq" % len(sequences), *pointers) + struct.pack("<%dq" % len(ends), *ends))
        file.write(bytes(len(sequences) if modes else 0))


def build_document_index(documents, num_epochs, state, separate_final_epoch):
    if not separate_final_epoch or num_epochs == 1:
        index = documents * num_epochs
        state.shuffle(index)
        return index
    first = build_document_index(documents, num_epochs - 1, state, False)
    return first + build_document_index(documents, 1, state, False)


def build_shuffle_index(num_samples, total_size, state):
    first = list(range(num_samples))
    state.shuffle(first)
    last = list(range(num_samples, total_size))
    state.shuffle(last)
    return first + last


def build_sample_index(sizes, document_index, length, num_epochs, tokens_per_epoch):
    num_samples = (num_epochs * tokens_per_epoch - 1) // length
    index, at, offset = [(0, 0)], 0, 0
    while len(index) <= num_samples:
        remaining = length + 1
        while remaining != 0:
            document_length = sizes[document_index[at]] - offset
            remaining -= document_length
            if remaining <= 0:
                offset += remaining + document_length - 1
                remaining = 0
            else:
                assert at < len(document_index) - 1
                at, offset = at + 1, 0
        index.append((at, offset))
    return index


def gpt_dataset(sequences, indices, length, seed, num_samples, state_of):
    sizes = [len(sequence) for sequence in sequences]
    tokens_per_epoch, num_epochs = sum(sizes[i] for i in indices), 1
    while num_samples is not None and num_epochs * tokens_per_epoch < num_samples * length + 1:
        num_epochs += 1
    separate = False
    if num_epochs > 1:
        sans_final = ((num_epochs - 1) * tokens_per_epoch - 1) // length
        from_final, per_epoch = num_samples - sans_final, (tokens_per_epoch - 1) // length
        assert 0 <= from_final <= per_epoch + 1
        separate = from_final < int(0.80 * per_epoch)
    state = state_of(seed)
    document_index = build_document_index(indices, num_epochs, state, separate)
    sample_index = build_sample_index(sizes, document_index, length, num_epochs, tokens_per_epoch)
    total = len(sample_index) - 1
    shuffle_index = build_shuffle_index(sans_final if separate else total, total, state)
    samples = []
    for k in shuffle_index:
        (begin, begin_offset), (end, end_offset) = sample_index[k], sample_index[k + 1]
        text = []
        for i in range(begin, end + 1):
            sequence = sequences[document_index[i]]
            text += sequence[begin_offset if i == begin else 0:end_offset + 1 if i == end else None]
        assert len(text) == length + 1
        samples.append(text)
    return samples


def split_of(text, part, count):
    """The sequences of a part, or None."""
    vector = (list(map(float, re.findall(r"[.0-9]+", text))) + [0.0] * 3)[:3]
    vector = [number / sum(vector) for number in vector]
    ends = [0]
    for number in vector:
        ends.append(ends[-1] + number)
    begin, end = ends[part], ends[part + 1]
    return None if end <= begin else list(range(int(round(begin * count)), int(round(end * count))))


def normalize(weights):
    return [weight / sum(weights) for weight in weights]


def blend(lengths, weights, size):
    """(dataset, sample) for each of the samples."""
    counts, order, exhaustive = [0] * len(lengths), [], size is None
    shares = [length / sum(lengths) for length in lengths] if exhaustive else normalize(weights)
    for i in range(sum(lengths) if exhaustive else size):
        left = [p for p in range(len(lengths)) if not exhaustive or counts[p] < lengths[p]]
        most = max(left, key=lambda p: (shares[p] * max(i, 1.0) - counts[p], -p))
        order.append((most, counts[most]))
        counts[most] += 1
    assert all(count <= length for count, length in zip(counts, lengths))
    return order


def blended(datasets, weights, samples, build):
    """`build(sequences, num_samples)` makes a GPTDataset."""
    if weights is None:
        made = [build(sequences, None) for sequences in datasets]
        lengths = list(map(len, made))
        size = None if samples is None else min(samples, sum(lengths))
        order = blend(lengths, lengths, size)
    else:
        shares = normalize(weights)
        targets = [math.ceil(samples * share) for share in shares]
        made = [build(sequences, math.ceil(target * (1 + 0.005))) for sequences, target in zip(datasets, targets)]
        order = blend(list(map(len, made)), shares, sum(targets))
    return [made[p][k] for p, k in order]


def main(folder, seed, state_of):
    rng, sets, cases = random.Random(seed), [], []
    for i in range(3):
        dtype = rng.choice(sorted(DTYPES))
        most = 100 if dtype in ("int8", "uint8") else 30000
        documents = [[[rng.randrange(most) for _ in range(rng.choice([0, 1, 2, 5, 9, 40]))]
                      for _ in range(rng.choice([1, 1, 1, 0, 3]) if i == 2 else 1)] for _ in range(rng.randrange(60, 90))]
        if i < 2:
            dtype = "uint16"  # those that are blended
        write("%s/%d" % (folder, i), dtype, documents, modes=i == 2)
        sets.append({"dtype": dtype, "documents": [sum(document, []) for document in documents],
                     "sequences": [sequence for document in documents for sequence in document]})
    for number in range(12):
        i, window, seed = rng.randrange(3), rng.choice([3, 7, 12, 33]), rng.choice([0, 1, 1234, rng.randrange(2 ** 32)])
        sequences = sets[i]["sequences"]
        case = {"prefixes": [i], "window": window, "seed": seed}
        indices = list(range(len(sequences)))
        if number % 3 == 1:
            case["split"], case["part"] = rng.choice(["969,30,1", "99,1,0", "1,1,1", "0.5,.25,0.25", "60, 39, 1"]), rng.randrange(3)
            indices = split_of(case["split"], case["part"], len(sequences))
            if indices is None or sum(len(sequences[k]) for k in indices) <= window:
                continue
        if number % 3 != 0:
            case["samples"] = rng.randrange(1, 3 * sum(len(sequences[k]) for k in indices) // (window - 1) + 2)
        case["texts"] = gpt_dataset(sequences, indices, window - 1, seed, case.get("samples"), state_of)
        cases.append(case)
    for weights, samples in [(None, None), (None, 37), ([30, 70], 50), ([0.1, 0.3], 111)]:
        window, seed = rng.choice([5, 9]), rng.randrange(2 ** 32)

        def build(sequences, num_samples):
            return gpt_dataset(sequences, list(range(len(sequences))), window - 1, seed, num_samples, state_of)

        texts = blended([sets[0]["sequences"], sets[1]["sequences"]], weights, samples, build)
        cases.append({"prefixes": [0, 1], "weights": weights, "samples": samples, "window": window, "seed": seed, "texts": texts})
    for one in sets:
        del one["sequences"]
    with open(folder + "/answers.json", "w") as file:
        json.dump({"sets": sets, "cases": cases}, file, separators=(",", ":"))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), NumpyState if "--numpy" in sys.argv else RandomState)
