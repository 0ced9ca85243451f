"""Writes the files of tests/files/array_record, which tests/dataset/array_record_spec.lua reads:

    pip install array_record==0.8.6 protobuf tensorflow
    python3 tests/files/write_array_record.py tests/files/array_record

Each is gzipped: an ArrayRecord file is at least 128 KiB, most of it zeros.
"""
import gzip
import os
import sys

from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter


def record(number, size):
    """The bytes of a record, which the spec works out by the same formula."""
    return bytes((number * 31 + k * 7 + k * k // 11 % 5) % 256 for k in range(size))


def write(name, options, records):
    path = os.path.join(sys.argv[1], name + '.array_record')
    writer = ArrayRecordWriter(path, options)
    for one in records:
        writer.write(one)
    writer.close()
    if 'transpose' not in options:
        assert ArrayRecordReader(path).read_all() == list(records)
    with open(path, 'rb') as file, gzip.GzipFile(path + '.gz', 'wb', 9, mtime=0) as out:
        out.write(file.read())
    os.remove(path)


small = [record(i, 5 + 13 * i) for i in range(10)]
for group in (1, 4):
    for compression in ('uncompressed', 'brotli', 'zstd', 'snappy'):
        write('%s-%d' % (compression, group), 'group_size:%d,%s' % (group, compression), small)
write('default', '', small)
write('padded', 'group_size:1,uncompressed,pad_to_block_boundary:true', small[:3])
write('transposed', 'group_size:4,transpose:true', small)
write('none', 'group_size:1', [])
write('empty-records', 'group_size:3,uncompressed', [b'', b'a', b'', b'', b'bc', b'', b''])
write('blocks-1', 'group_size:1,uncompressed', [record(i, 40000 + i) for i in range(6)])
write('blocks-4', 'group_size:4,uncompressed', [record(i, 40000 + i) for i in range(6)])

import tensorflow as tf  # noqa: E402


def example(i):
    """An example as TFDS stores them."""
    feature = {
        'image': tf.train.Feature(bytes_list=tf.train.BytesList(value=[record(i, 12)])),
        'label': tf.train.Feature(int64_list=tf.train.Int64List(value=[i - 2])),
        'weights': tf.train.Feature(float_list=tf.train.FloatList(value=[i / 4, -i, 1e9])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(deterministic=True)


write('examples', 'group_size:2,zstd', [example(i) for i in range(5)])
