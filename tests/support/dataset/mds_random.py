"""mds_random.py SEED FOLDER: writes a folder of MDS of random columns, encoded by MosaicML Streaming, and to FOLDER.json
what Streaming decodes of them: of each field and sample the bytes, in hexadecimal, and the shape.

Of Streaming only the module that encodes and decodes is run: the package asks for PyTorch and the clients of all clouds.
"""
import importlib.util
import json
import os
import random
import sys

import numpy as np
from PIL import Image

SEED, FOLDER = int(sys.argv[1]), sys.argv[2]
rng, choose = np.random.default_rng(SEED), random.Random(SEED)
ROWS = choose.randint(1, 6)
MODES = ['L', 'RGB', 'RGBA', 'LA', 'CMYK', 'YCbCr', 'HSV', 'LAB', 'I', 'F', 'I;16']


def load_encodings():
    package = importlib.util.find_spec('streaming')  # finds it without running it
    path = os.path.join(package.submodule_search_locations[0], 'base', 'format', 'mds', 'encodings.py')
    spec = importlib.util.spec_from_file_location('encodings', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mds = load_encodings()


def picture(mode, size=None):
    width, height = size or (choose.randint(1, 9), choose.randint(1, 9))
    return Image.frombytes(mode, (width, height), rng.bytes(len(Image.new(mode, (width, height)).tobytes())))


def some_array(dtype, shape):
    return rng.integers(0, 100, shape).astype(dtype)


def column():
    """An encoding, the values of all samples, and the fields that they are: name's end, bytes and shape of each."""
    kind = choose.choice(['pil', 'pil', 'list[jpeg]', 'list[png]', 'jpeg_array', 'jpegarray', 'ndarray', 'int', 'str'])
    if kind == 'pil':
        mode, size = choose.choice(MODES), choose.choice([None, (4, 3)])
        return kind, [picture(mode, size) for _ in range(ROWS)]
    if kind.startswith('list'):
        mode = choose.choice(['L', 'RGB'])
        length = choose.choice([None, 1, 3])
        return kind, [[picture(mode) for _ in range(choose.randint(0, 4) if length is None else length)] for _ in range(ROWS)]
    if kind.startswith('jpeg'):
        return kind, [[mds.JPEG().encode(picture('RGB')) for _ in range(choose.randint(1, 3))] for _ in range(ROWS)]
    if kind == 'ndarray':
        dtype, ndim = choose.choice(['uint8', 'int16', 'float32', 'float64']), choose.randint(1, 3)
        encoding = choose.choice(['ndarray', 'ndarray:' + dtype])
        return encoding, [some_array(dtype, [choose.choice([2, 300 if d == 0 else 3]) for d in range(ndim)]) for _ in range(ROWS)]
    if kind == 'int':
        return kind, [choose.randint(-2 ** 63, 2 ** 63 - 1) for _ in range(ROWS)]
    return kind, ['ä' * choose.randint(0, 9) for _ in range(ROWS)]


def fields_of(encoding, data):
    """What Streaming decodes of one value: its fields."""
    value = mds.mds_decode(encoding, data)
    if isinstance(value, list):
        items = [np.asarray(image.convert('RGB')) for image in value]
        return {'.count': (np.int64(len(items)).tobytes(), []),
                **{f'.{i}': (image.tobytes(), list(image.shape)) for i, image in enumerate(items)}}
    if isinstance(value, Image.Image):
        pixels = np.asarray(value)
        return {'': (pixels.tobytes(), [*pixels.shape, 1][:3])}
    if isinstance(value, np.ndarray):
        return {'': (value.tobytes(), list(value.shape))}
    if isinstance(value, int):
        return {'': (np.int64(value).tobytes(), [])}
    return {'': (value.encode(), [len(value.encode())])}


def main():
    columns = {f'c{i}': column() for i in range(choose.randint(1, 5))}
    samples, right = [], [{} for _ in range(ROWS)]
    sizes = [mds.get_mds_encoded_size(encoding) for encoding, _ in columns.values()]
    for row in range(ROWS):
        data = [mds.mds_encode(encoding, values[row]) for encoding, values in columns.values()]
        head = b''.join(np.uint32(len(one)).tobytes() for one, size in zip(data, sizes) if size is None)
        samples.append(head + b''.join(data))
        for (name, (encoding, _)), one in zip(columns.items(), data):
            for end, (found, shape) in fields_of(encoding, one).items():
                right[row][name + end] = [found.hex(), shape]
    offsets = np.cumsum([4 + 4 * (ROWS + 1), *map(len, samples)]).astype(np.uint32)
    shard = np.uint32(ROWS).tobytes() + offsets.tobytes() + b''.join(samples)
    os.makedirs(FOLDER)
    with open(FOLDER + '/shard.00000.mds', 'wb') as file:
        file.write(shard)
    encodings = [encoding for encoding, _ in columns.values()]
    with open(FOLDER + '/index.json', 'w') as file:
        json.dump({'version': 2, 'shards': [{
            'column_names': list(columns), 'column_encodings': encodings, 'column_sizes': sizes, 'compression': None,
            'format': 'mds', 'hashes': [], 'samples': ROWS, 'size_limit': None, 'version': 2, 'zip_data': None,
            'raw_data': {'basename': 'shard.00000.mds', 'bytes': len(shard), 'hashes': {}}}]}, file)
    with open(FOLDER + '.json', 'w') as file:
        json.dump({'rows': right, 'encodings': dict(zip(columns, encodings))}, file)


main()
