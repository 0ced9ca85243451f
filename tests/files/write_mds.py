"""Writes the folders of tests/files/mds, which tests/dataset/mds_spec.lua reads:

    pip install mosaicml-streaming==0.13.0
    python3 tests/files/write_mds.py tests/files/mds
"""
import decimal
import os
import sys

import numpy as np
from PIL import Image
from streaming import MDSWriter

SCALARS = ['uint8', 'uint16', 'uint32', 'uint64', 'int8', 'int16', 'int32', 'int64', 'float16', 'float32', 'float64']
COLUMNS = {
    'number': 'int', 'text': 'str', 'bytes': 'bytes', 'json': 'json', 'digits': 'str_int',
    'fixed': 'ndarray:int16:2,3', 'typed': 'ndarray:float32', 'free': 'ndarray',
}


def sample(i):
    """A sample, which the spec works out by the same formulas."""
    return {
        'number': i - 5, 'text': 'ä' * (i % 4), 'bytes': bytes((i * 31 + k * 7) % 256 for k in range(i * 3)),
        'json': {'a': i}, 'digits': 10 ** i, 'fixed': np.arange(6, dtype=np.int16).reshape(2, 3) * i,
        'typed': np.arange(i + 1, dtype=np.float32) / 4, 'free': np.full((2, i + 1), i, np.uint8),
    }


def write(name, columns, samples, **options):
    with MDSWriter(out=os.path.join(sys.argv[1], name), columns=columns, **options) as out:
        for one in samples:
            out.write(one)


for compression in (None, 'zstd:3', 'gz', 'br', 'snappy'):
    write((compression or 'raw').split(':')[0], COLUMNS, [sample(i) for i in range(12)], compression=compression,
          size_limit=900)
write('hashes', COLUMNS, [sample(i) for i in range(12)], size_limit=900,
      hashes=['md5', 'xxh128', 'xxh32', 'xxh3_64', 'xxh64'])
write('zstd-hashes', COLUMNS, [sample(i) for i in range(12)], size_limit=900, compression='zstd', hashes=['xxh64'])
write('scalars', {name: name for name in SCALARS}, [{name: i for name in SCALARS} for i in range(3)])
write('bz2', {'x': 'int'}, [{'x': 1}], compression='bz2')
write('pickle', {'x': 'int', 'y': 'pkl'}, [{'x': 1, 'y': None}, {'x': 2, 'y': None}])
SUMS = ['blake2b', 'blake2s', 'md5', 'sha1', 'sha224', 'sha256', 'sha384', 'sha3_224', 'sha3_256', 'sha3_384', 'sha3_512',
        'sha512', 'xxh128', 'xxh32', 'xxh3_128', 'xxh3_64', 'xxh64']
write('sums', {'x': 'int', 'text': 'str'}, [{'x': i * 7 - 5, 'text': f'word {i}'} for i in range(6)], hashes=SUMS)
NUMBERS = [(12345678, 0.25, '1.50'), (-3, 1e300, '1E+2'), (2 ** 53 + 1, float('-inf'), '-0.125')]
write('numbers', {'i': 'str_int', 'f': 'str_float', 'd': 'str_decimal', 's': 'str'},
      [{'i': i, 'f': f, 'd': decimal.Decimal(d), 's': f'{k:08d}'} for k, (i, f, d) in enumerate(NUMBERS)],
      hashes=['sha1'])


def pixels(i, dtype, height, channels=None):
    """A picture, three pixels wide, which the spec works out by the same formula."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(3), np.arange(channels or 1), indexing='ij')
    values = i * 50 + y * 20 + x * 7 + c * 3
    if dtype == np.float32:
        values = values / 4
    values = values.astype(dtype)
    return values if channels else values[..., 0]


def picture(i, dtype=np.uint8, height=None, channels=3):
    return Image.fromarray(pixels(i, dtype, height or 2 + i % 2, channels))


def words(i):
    return [bytes((i * 31 + k * 7) % 256 for k in range(i * n)) for n in (2, 3)]


write('pictures', {'rgb': 'pil', 'gray': 'pil', 'deep': 'pil', 'real': 'pil', 'short': 'pil', 'pair': 'list[png]',
                   'words': 'jpeg_array'},
      [{'rgb': picture(i), 'gray': picture(i, height=2, channels=None), 'deep': picture(i, np.int32, 2, None),
        'real': picture(i, np.float32, 2, None), 'short': picture(i, np.uint16, 2, None),
        'pair': [picture(i), picture(i + 1)], 'words': words(i)} for i in range(5)], size_limit=1800)
# Lists of 0 to 4 images; pictures of which the last has a palette; and lists of pictures.
write('albums', {'some': 'list[jpeg]', 'one': 'jpeg', 'odd': 'pil', 'stack': 'list[pil]'},
      [{'some': [picture(k) for k in range(i)], 'one': picture(0), 'stack': [picture(i)],
        'odd': picture(i).convert('P' if i == 4 else 'RGB')} for i in range(5)])
